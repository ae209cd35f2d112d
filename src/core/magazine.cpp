// SPDX-License-Identifier: Apache-2.0
#include "core/magazine.hpp"

#include <algorithm>
#include <utility>

#include "core/segment.hpp"
#include "core/size_policy.hpp"
#include "core/stream_table.hpp"

namespace quarry {

ThreadMagazines::Set& ThreadMagazines::get_set(Bytes size, StreamHandle handle) noexcept {
  const std::uint64_t key = (size >> 9) + static_cast<std::uint64_t>(handle) * 31;
  return sets_[(key * 0x9e3779b97f4a7c15ull >> 59) % kSets];
}

ThreadMagazines::Magazine* ThreadMagazines::find(Set& set, Bytes size,
                                                 StreamHandle handle) noexcept {
  for (Magazine& magazine : set) {
    if (magazine.size == size && magazine.handle == handle) return &magazine;
  }
  return nullptr;
}

Block* ThreadMagazines::try_take(Bytes bytes, StreamHandle handle, Block** evicted) noexcept {
  const Bytes size = round_up(bytes, kMinBlock);
  const SpinLockHold hold(lock_);
  if (!routing_.is_clear()) return nullptr;
  Set& set = get_set(size, handle);
  Magazine* const magazine = find(set, size, handle);
  if (magazine == nullptr || magazine->top == nullptr) {
    if (size > kSmallMax) empty_large(evicted);
    remember(set, size, handle, evicted);
    return nullptr;
  }
  Block& block = *magazine->top;
  magazine->top = block.left;
  --magazine->count;
  magazine->last_use = ++clock_;
  block.requested_bytes = bytes;
  block.is_held.store(true, std::memory_order_relaxed);

  const auto block_bytes = static_cast<std::int64_t>(block.size);
  parked_bytes_ -= block_bytes;
  large_parked_ -= size > kSmallMax ? 1 : 0;
  const int family = static_cast<int>(block.segment->family);
  has_counts_ = true;
  counts_.blocks.take(family, 1);
  counts_.bytes.take(family, block_bytes);
  counts_.requested.take(family, static_cast<std::int64_t>(bytes));
  return &block;
}

bool ThreadMagazines::try_park(Block& block, std::uint64_t thread_token) noexcept {
  const Stream& owner = *block.owner;
  if (block.foreign_uses != nullptr || block.is_oversize_counted) return false;
  if (block.size > kSmallMax && block.size != block.segment->size) return false;
  if (owner.is_per_thread() && owner.thread != thread_token) return false;
  const Bytes size = round_up(block.requested_bytes, kMinBlock);
  const auto block_bytes = static_cast<std::int64_t>(block.size);
  const SpinLockHold hold(lock_);
  if (!routing_.is_clear() || !owner.is_live()) return false;
  Magazine* const magazine = find(get_set(size, owner.ref.handle), size, owner.ref.handle);
  if (magazine == nullptr || magazine->requests < kRequestsToPark) return false;
  if (magazine->count == kBlocksMax || parked_bytes_ + block_bytes > kThreadBytesMax) return false;
  block.left = magazine->top;
  magazine->top = &block;
  ++magazine->count;

  parked_bytes_ += block_bytes;
  large_parked_ += size > kSmallMax ? 1 : 0;
  const int family = static_cast<int>(block.segment->family);
  has_counts_ = true;
  counts_.blocks.park(family, 1);
  counts_.bytes.park(family, block_bytes);
  counts_.requested.park(family, static_cast<std::int64_t>(block.requested_bytes));
  return true;
}

// A size that is asked for again gets a magazine, if need be in place of the one that was not used
// for longest.
void ThreadMagazines::remember(Set& set, Bytes size, StreamHandle handle,
                               Block** evicted) noexcept {
  ++clock_;
  Magazine* magazine = find(set, size, handle);
  if (magazine == nullptr) {
    magazine = &*std::min_element(
        set.begin(), set.end(),
        [](const Magazine& a, const Magazine& b) { return a.last_use < b.last_use; });
    empty(*magazine, evicted);
    *magazine = Magazine{};
    magazine->size = size;
    magazine->handle = handle;
  }
  magazine->last_use = clock_;
  if (magazine->requests < kRequestsToPark) ++magazine->requests;
}

// A large request that is not served from here may do with one of these: all go back first.
void ThreadMagazines::empty_large(Block** list) noexcept {
  if (large_parked_ == 0) return;
  for (Set& set : sets_) {
    for (Magazine& magazine : set) {
      if (magazine.size > kSmallMax) empty(magazine, list);
    }
  }
}

void ThreadMagazines::empty(Magazine& magazine, Block** list) noexcept {
  if (magazine.size > kSmallMax) large_parked_ -= magazine.count;
  while (Block* block = magazine.top) {
    magazine.top = block->left;
    block->left = *list;
    *list = block;
    parked_bytes_ -= static_cast<std::int64_t>(block->size);
  }
  magazine.count = 0;
}

Block* ThreadMagazines::take_all() noexcept {
  const SpinLockHold hold(lock_);
  Block* list = nullptr;
  for (Set& set : sets_) {
    for (Magazine& magazine : set)
      empty(magazine, &list);
  }
  return list;
}

bool ThreadMagazines::take_counts(MagazineCounts& counts) noexcept {
  const SpinLockHold hold(lock_);
  if (!has_counts_) return false;
  counts = std::exchange(counts_, MagazineCounts{});
  has_counts_ = false;
  return true;
}

Bytes ThreadMagazines::get_parked_bytes() noexcept {
  const SpinLockHold hold(lock_);
  return static_cast<Bytes>(parked_bytes_);
}

}  // namespace quarry
