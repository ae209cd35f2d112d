// SPDX-License-Identifier: Apache-2.0
#include "core/magazine.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace quarry {

Block* ThreadMagazines::take_or_note_miss(Bytes bytes, StreamHandle handle,
                                          bool& has_leaving) noexcept
    QUARRY_NO_THREAD_SAFETY_ANALYSIS {
  if (!is_servable(bytes) || !routing_.allows_parking()) return nullptr;
  const Bytes size = round_up(bytes, kMinBlock);
  const Set set = get_set(size, handle);
  Magazine* const magazine = find(set, size, handle);
  if (magazine != nullptr) {
    if (Block* const parked = take_any(*magazine, bytes)) return parked;
  }
  ++clock_;
  if (magazine != nullptr) magazine->last_use = clock_;
  const bool is_new = magazine == nullptr && is_seen_again(size, handle);
  const bool is_large = size > kSmallMax && large_sets_ != 0;
  if (!is_new && !is_large) [[likely]]
    return nullptr;
  const OwnerHold hold(lock_);
  if (is_large) empty_large();
  if (is_new) make_magazine(set, size, handle);
  has_leaving = leaving_ != nullptr;
  return nullptr;
}

Block* ThreadMagazines::take_any(Magazine& magazine,
                                 Bytes bytes) noexcept QUARRY_NO_THREAD_SAFETY_ANALYSIS {
  if (!lock_.try_enter()) return nullptr;
  Block* const block = routing_.allows_parking() ? magazine.top : nullptr;
  if (block != nullptr) {
    pop(magazine, *block, bytes);
    counts_.take(*block);
  }
  lock_.leave();
  return block;
}

// Whether the size was missed not long ago; remembers that it was now. Of the two at its place one
// at random makes room, so that no number of sizes that come in turn can keep each other out.
// Without branches: what comes next in a churn nobody can foresee.
bool ThreadMagazines::is_seen_again(Bytes size, StreamHandle handle) noexcept {
  const auto mark = static_cast<std::uint32_t>(hash(size, handle) >> 32);
  auto& place = sightings_[mark % sightings_.size()];
  const auto is_it = [this, mark](const Sighting& sighting) {
    return static_cast<unsigned>(sighting.mark == mark) &
           static_cast<unsigned>(clock_ - sighting.clock < kSightingAge);
  };
  const unsigned is_second = is_it(place[1]);
  const unsigned is_again = is_it(place[0]) | is_second;
  const unsigned at_random = clock_ * 0x9e3779b9u >> 31;
  place[is_again != 0 ? is_second : at_random] = {mark, clock_};
  return is_again != 0;
}

bool ThreadMagazines::park_elsewhere(Block& block) noexcept QUARRY_NO_THREAD_SAFETY_ANALYSIS {
  Stream& owner = *block.owner;
  const Bytes size = round_up(block.requested_bytes, kMinBlock);
  if (block.foreign_uses != nullptr || block.is_oversize_counted) return false;
  if (block.segment->is_private) return false;
  if (block.size > kSmallMax && block.size != block.segment->size) return false;
  // An aligned request may have got a small block of a large segment.
  if (block.segment->family != get_family(size)) return false;
  if (owner.is_per_thread() && owner.thread != thread_token_) return false;
  const std::size_t index = get_set_index(size, owner.ref.handle);
  Magazine* const magazine = find(get_set(index), size, owner.ref.handle);
  if (magazine == nullptr) return false;
  if (!lock_.try_enter()) return false;
  const bool may_park = routing_.allows_parking() && owner.is_live() &&
                        !block.segment->is_outdated && has_room(*magazine, block);
  if (may_park) {
    if ((owner.parking_threads.load(std::memory_order_relaxed) & thread_bit_) == 0) {
      owner.parking_threads.fetch_or(thread_bit_, std::memory_order_relaxed);
    }
    if (size > kSmallMax) large_sets_ |= 1u << index;
    block.home = magazine->name;
    push(*magazine, block);
    counts_.give_back(block);
  }
  lock_.leave();
  return may_park;
}

void ThreadMagazines::remember_stream(const StreamNote& note) noexcept {
  const std::size_t index = get_note_index(note.handle);
  notes_[index] = note;
  lanes_after_[index].store(note.lane + 1, std::memory_order_relaxed);
}

void ThreadMagazines::forget_streams() noexcept {
  notes_ = {};
  for (std::atomic<int>& lane : lanes_after_)
    lane.store(0, std::memory_order_relaxed);
  for (Magazine& magazine : magazines_)
    rename(magazine);
}

// The magazine of the set that was not used for longest. Compares without branches, which nobody
// could foresee.
ThreadMagazines::Magazine& ThreadMagazines::choose_victim(Set set) noexcept {
  std::uint64_t oldest = ~std::uint64_t{0};
  for (std::size_t way = 0; way < kWays; ++way)
    oldest = std::min(oldest, (std::uint64_t{set[way].last_use} << 32) | way);
  return set[static_cast<std::uint32_t>(oldest)];
}

// Names are taken from a stock of the process, a number of them at a time.
void ThreadMagazines::rename(Magazine& magazine) noexcept {
  constexpr std::uint64_t kNamesAtATime = 1 << 16;
  static std::atomic<std::uint64_t> next_stock{1};
  if (next_name_ % kNamesAtATime == 0)
    next_name_ = next_stock.fetch_add(1, std::memory_order_relaxed) * kNamesAtATime;
  const auto place = static_cast<std::size_t>(&magazine - magazines_.data());
  magazine.name = next_name_++ * kMagazines + place;
}

// In place of another of the set.
void ThreadMagazines::make_magazine(Set set, Bytes size, StreamHandle handle) noexcept {
  Magazine& magazine = choose_victim(set);
  empty(magazine);
  magazine = Magazine{};
  magazine.size = size;
  magazine.handle = handle;
  magazine.counts = &counts_.family[static_cast<int>(get_family(size))];
  magazine.last_use = clock_;
  magazine.room = kBlocksMax;
  rename(magazine);
}

// A large request that is not served from here may do with one of these: all go back first. The
// new names send whatever parks there next through park_elsewhere, which notes the set again.
void ThreadMagazines::empty_large() noexcept {
  for (; large_sets_ != 0; large_sets_ &= large_sets_ - 1) {
    for (Magazine& magazine : get_set(static_cast<std::size_t>(std::countr_zero(large_sets_)))) {
      if (magazine.size <= kSmallMax) continue;
      empty(magazine);
      rename(magazine);
    }
  }
}

void ThreadMagazines::empty(Magazine& magazine) noexcept {
  while (Block* block = magazine.top) {
    magazine.top = block->left;
    ++magazine.room;
    block->left = leaving_;
    leaving_ = block;
  }
}

void ThreadMagazines::take_leaving() noexcept {
  Block& block = *leaving_;
  leaving_ = block.left;
  block.left = nullptr;
  room_bytes_ += static_cast<std::int64_t>(block.size);
}

Block* ThreadMagazines::take_all_leaving() noexcept {
  for (const Block* block = leaving_; block != nullptr; block = block->left)
    room_bytes_ += static_cast<std::int64_t>(block->size);
  return std::exchange(leaving_, nullptr);
}

Block* ThreadMagazines::take_all() noexcept {
  for (Magazine& magazine : magazines_)
    empty(magazine);
  return take_all_leaving();
}

Block* ThreadMagazines::take_all_of(const Stream& stream, StatFamily family) noexcept {
  for (Magazine& magazine : magazines_) {
    if (magazine.handle != stream.ref.handle) continue;
    if (get_family(magazine.size) == family) empty(magazine);
  }
  return take_all_leaving();
}

bool ThreadMagazines::is_far_below() noexcept {
  if (!lock_.try_enter()) return false;  // somebody is about to take them
  std::int64_t held = 0;
  for (const ThreadCounts::Family& family : counts_.family)
    held += family[ThreadCounts::kBytes].get_now();
  lock_.leave();
  return held < -kUncountedFallMax;
}

bool ThreadMagazines::take_counts(ThreadCounts& counts) noexcept {
  if (counts_.is_empty()) return false;
  counts = std::exchange(counts_, ThreadCounts{});
  return true;
}

}  // namespace quarry
