// SPDX-License-Identifier: Apache-2.0
#include "core/magazine.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace quarry {

Block* ThreadMagazines::take_or_note_miss(Bytes bytes, StreamHandle handle) noexcept
    QUARRY_NO_THREAD_SAFETY_ANALYSIS {
  if (!is_servable(bytes) || !lock_.try_lock()) return nullptr;
  Block* block = nullptr;
  if (routing_.allows_parking()) {
    const Bytes size = round_up(bytes, kMinBlock);
    const Set set = get_set(size, handle);
    Magazine* const magazine = find(set, size, handle);
    if (magazine != nullptr) block = magazine->top;
    if (block != nullptr) {
      pop(*magazine, *block, bytes);
      counts_.take(*block);
    } else {
      if (size > kSmallMax) empty_large();
      remember(set, magazine, size, handle);
      last_miss_ = {leaving_ != nullptr, find_stream(handle)};
      last_miss_.note.handle = handle;
    }
  }
  lock_.unlock();
  return block;
}

bool ThreadMagazines::park_elsewhere(Block& block) noexcept QUARRY_NO_THREAD_SAFETY_ANALYSIS {
  const Stream& owner = *block.owner;
  const Bytes size = round_up(block.requested_bytes, kMinBlock);
  if (block.foreign_uses != nullptr || block.is_oversize_counted) return false;
  if (block.segment->is_private) return false;
  if (block.size > kSmallMax && block.size != block.segment->size) return false;
  // An aligned request may have got a small block of a large segment.
  if (block.segment->family != get_family(size)) return false;
  if (owner.is_per_thread() && owner.thread != thread_token_) return false;
  const std::size_t index = get_set_index(size, owner.ref.handle);
  Magazine* const magazine = find(get_set(index), size, owner.ref.handle);
  if (magazine == nullptr || magazine->requests < kRequestsToPark) return false;
  if (!lock_.try_lock()) return false;
  const bool may_park = routing_.allows_parking() && owner.is_live() && has_room(*magazine, block);
  if (may_park) {
    block.home = magazine->name;
    push(*magazine, block);
    counts_.give_back(block);
  }
  lock_.unlock();
  return may_park;
}

void ThreadMagazines::remember_stream(const StreamNote& note) noexcept {
  const SpinLockHold hold(lock_);
  notes_[get_note_index(note.handle)] = note;
}

void ThreadMagazines::forget_streams() noexcept {
  const SpinLockHold hold(lock_);
  notes_ = {};
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

// A size that is asked for again gets a magazine, if need be in place of another. `magazine` is
// the one that it has in the set, or null.
void ThreadMagazines::remember(Set set, Magazine* magazine, Bytes size,
                               StreamHandle handle) noexcept {
  if (magazine == nullptr) {
    magazine = &choose_victim(set);
    empty(*magazine);
    *magazine = Magazine{};
    magazine->size = size;
    magazine->handle = handle;
    magazine->counts = &counts_.family[static_cast<int>(get_family(size))];
    rename(*magazine);
  }
  magazine->last_use = ++clock_;
  if (magazine->requests == kRequestsToPark) return;
  if (++magazine->requests < kRequestsToPark) return;
  magazine->room = kBlocksMax;
  if (size > kSmallMax) large_sets_ |= 1u << get_set_index(size, handle);
}

// A large request that is not served from here may do with one of these: all go back first.
void ThreadMagazines::empty_large() noexcept {
  std::uint32_t still_large = 0;
  for (std::uint32_t left = large_sets_; left != 0; left &= left - 1) {
    for (Magazine& magazine : get_set(static_cast<std::size_t>(std::countr_zero(left)))) {
      if (magazine.size <= kSmallMax) continue;
      empty(magazine);
      still_large |= left & -left;
    }
  }
  large_sets_ = still_large;
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

Block* ThreadMagazines::take_list_of_leaving() noexcept {
  for (const Block* block = leaving_; block != nullptr; block = block->left)
    room_bytes_ += static_cast<std::int64_t>(block->size);
  return std::exchange(leaving_, nullptr);
}

Block* ThreadMagazines::take_all_leaving() noexcept {
  const SpinLockHold hold(lock_);
  return take_list_of_leaving();
}

Block* ThreadMagazines::take_all(std::optional<StatFamily> family) noexcept {
  const SpinLockHold hold(lock_);
  for (Magazine& magazine : magazines_) {
    if (!family.has_value() || *family == get_family(magazine.size)) empty(magazine);
  }
  return take_list_of_leaving();
}

bool ThreadMagazines::take_counts(ThreadCounts& counts) noexcept {
  if (counts_.is_empty()) return false;
  counts = std::exchange(counts_, ThreadCounts{});
  return true;
}

}  // namespace quarry
