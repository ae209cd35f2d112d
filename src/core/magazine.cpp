// SPDX-License-Identifier: Apache-2.0
#include "core/magazine.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace quarry {

Block* ThreadMagazines::end_in_miss(Bytes bytes, StreamHandle handle) noexcept
    QUARRY_NO_THREAD_SAFETY_ANALYSIS {
  if (is_servable(bytes) && routing_.allows_parking()) {
    const Bytes size = round_up(bytes, kMinBlock);
    if (size > kSmallMax) empty_large();
    remember(get_set(size, handle), size, handle);
    last_miss_ = {leaving_ != nullptr, find_stream(handle)};
    last_miss_.note.handle = handle;
  }
  lock_.unlock();
  return nullptr;
}

void ThreadMagazines::remember_stream(const StreamNote& note) noexcept {
  const SpinLockHold hold(lock_);
  notes_[get_note_index(note.handle)] = note;
}

void ThreadMagazines::forget_streams() noexcept {
  const SpinLockHold hold(lock_);
  notes_ = {};
}

// The magazine of the set that was not used for longest. Compares without branches, which nobody
// could foresee.
ThreadMagazines::Magazine& ThreadMagazines::choose_victim(Set& set) noexcept {
  std::uint64_t oldest = ~std::uint64_t{0};
  for (std::size_t way = 0; way < kWays; ++way)
    oldest = std::min(oldest, (std::uint64_t{set[way].last_use} << 32) | way);
  return set[static_cast<std::uint32_t>(oldest)];
}

// A size that is asked for again gets a magazine, if need be in place of another.
void ThreadMagazines::remember(Set& set, Bytes size, StreamHandle handle) noexcept {
  Magazine* magazine = find(set, size, handle);
  if (magazine == nullptr) {
    magazine = &choose_victim(set);
    empty(*magazine);
    *magazine = Magazine{};
    magazine->size = size;
    magazine->handle = handle;
  }
  magazine->last_use = ++clock_;
  if (magazine->requests < kRequestsToPark) ++magazine->requests;
}

// A large request that is not served from here may do with one of these: all go back first.
void ThreadMagazines::empty_large() noexcept {
  for (; large_sets_ != 0; large_sets_ &= large_sets_ - 1) {
    for (Magazine& magazine : sets_[static_cast<std::size_t>(std::countr_zero(large_sets_))]) {
      if (magazine.size > kSmallMax) empty(magazine);
    }
  }
}

void ThreadMagazines::empty(Magazine& magazine) noexcept {
  while (Block* block = magazine.top) {
    magazine.top = block->left;
    block->left = leaving_;
    leaving_ = block;
  }
  magazine.count = 0;
}

void ThreadMagazines::take_leaving() noexcept {
  Block& block = *leaving_;
  leaving_ = block.left;
  block.left = nullptr;
  parked_bytes_ -= static_cast<std::int64_t>(block.size);
}

Block* ThreadMagazines::take_list_of_leaving() noexcept {
  for (const Block* block = leaving_; block != nullptr; block = block->left)
    parked_bytes_ -= static_cast<std::int64_t>(block->size);
  return std::exchange(leaving_, nullptr);
}

Block* ThreadMagazines::take_all_leaving() noexcept {
  const SpinLockHold hold(lock_);
  return take_list_of_leaving();
}

Block* ThreadMagazines::take_all(std::optional<StatFamily> family) noexcept {
  const SpinLockHold hold(lock_);
  for (Set& set : sets_) {
    for (Magazine& magazine : set) {
      if (!family.has_value() || *family == get_family(magazine.size)) empty(magazine);
    }
  }
  return take_list_of_leaving();
}

bool ThreadMagazines::take_counts(ThreadCounts& counts) noexcept {
  if (counts_.is_empty) return false;
  counts = std::exchange(counts_, ThreadCounts{});
  return true;
}

}  // namespace quarry
