// SPDX-License-Identifier: Apache-2.0
// A thread's magazines for one device: small stacks of freed blocks of one exact size and stream,
// which serve most requests without the device's mutex. A block in a magazine is *parked*: for the
// tree, the pointer map and validate() it stays allocated; only Block::is_held says that no user
// has it. Parked bytes count as reserved, not as allocated.
//
// Which blocks park: those of sizes that this thread asks for again and again (a size that was
// asked for once is not worth keeping from the coalescer), without foreign uses, of a live stream
// that the thread can name. Bounded in blocks and bytes. Blocks above 1 MiB park only if they are
// whole segments, which never coalesce, and stay only while every large request is served from
// here: on the recorded traces that keeps peak reserved within 0.25 % of what it is without
// magazines, where parking all of them cost up to 8.5 %.
//
// Locking: each set has a lock of its own, which other threads take only to empty it. Whoever
// holds the device's mutex may take it; never the other way round. What decides whether parking is
// allowed at all (the routing word, a stream's life) is read under it: whoever changes one of
// those empties all sets afterwards, so nothing parked under the old rule survives.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/bytes.hpp"
#include "base/mutex.hpp"
#include "core/block.hpp"
#include "core/routing.hpp"
#include "core/segment.hpp"
#include "core/size_policy.hpp"
#include "core/stream_table.hpp"
#include "core/thread_counts.hpp"
#include "core/thread_state.hpp"
#include "driver/driver_types.hpp"

namespace quarry {

// What a thread was told of a stream: how to find it, and its lane, without the device's mutex.
struct StreamNote {
  StreamHandle handle = StreamHandle::kLegacy;
  int lane = kNoLane;
  Stream* stream = nullptr;  // null: nothing was told

  friend bool operator==(const StreamNote&, const StreamNote&) = default;
};

class alignas(64) ThreadMagazines {
 public:
  explicit ThreadMagazines(const RoutingWord& routing) noexcept : routing_(routing) {}

  // A parked block for a request of `bytes` on `handle`, marked held again; null if there is none
  // or the short way is closed. A miss remembers the size; blocks that had to make room for it are
  // leaving, and the caller returns them to the device.
  Block* try_take(Bytes bytes, StreamHandle handle) noexcept;
  // What the thread's last try_take found out, if that was a miss on `handle`; only once.
  struct Miss {
    bool has_leaving = false;
    StreamNote note;  // what the handle means
  };
  Miss take_last_miss(StreamHandle handle) noexcept {
    const Miss miss = std::exchange(last_miss_, {});
    return miss.note.handle == handle ? miss : Miss{};
  }

  // Parks a block that its user gave up and nobody else has (Block::is_held was exchanged to
  // false). False if it does not qualify: free it under the device's mutex.
  bool try_park(Block& block) noexcept;

  // For the lanes, whose figures are counted here too, so that a thread has one highest value. The
  // lane of whatever is counted is held.
  SpinLock& lock() noexcept QUARRY_RETURN_CAPABILITY(lock_) { return lock_; }
  ThreadCounts& counts() noexcept QUARRY_REQUIRES(lock_) { return counts_; }
  // What `handle` means: without a stream if the thread was not told, or it is retired since.
  StreamNote find_stream(StreamHandle handle) const noexcept QUARRY_REQUIRES(lock_) {
    const StreamNote& note = notes_[get_note_index(handle)];
    return note.handle == handle ? note : StreamNote{};
  }
  // A block that is leaving, null if none. It stays parked, for everybody else, until it is taken
  // out: by its thread with the block's lane held, or by take_all. So nobody overlooks it.
  Block* get_leaving() const noexcept QUARRY_REQUIRES(lock_) { return leaving_; }
  void take_leaving() noexcept QUARRY_REQUIRES(lock_);
  // All that are leaving, linked by Block::left. The device's mutex is held.
  Block* take_all_leaving() noexcept;
  // These two under the device's mutex.
  void remember_stream(const StreamNote& note) noexcept;
  void forget_streams() noexcept;

  // Takes everything of the family out (nullopt: of both), linked by Block::left; null if empty.
  // The device's mutex is held.
  Block* take_all(std::optional<StatFamily> family) noexcept;
  // Moves the figures since the last call to `counts`; false if there are none.
  bool take_counts(ThreadCounts& counts) noexcept QUARRY_REQUIRES(lock_);
  Bytes get_parked_bytes() const noexcept QUARRY_REQUIRES(lock_) {
    return static_cast<Bytes>(parked_bytes_);
  }

  // Two share it, its device and its thread; true for the last to give its share back.
  bool give_back_share() noexcept { return shares_.fetch_sub(1, std::memory_order_acq_rel) == 1; }
  // For a sharer: whether the other still is one.
  bool is_shared() const noexcept { return shares_.load(std::memory_order_acquire) > 1; }
  void mark_thread_ended() noexcept { has_thread_ended_.store(true, std::memory_order_release); }
  bool has_thread_ended() const noexcept {
    return has_thread_ended_.load(std::memory_order_acquire);
  }

  // Calls visit(const Block&) for each parked block.
  template <class Visit>
  void for_each(Visit visit) noexcept;

 private:
  // Only the thread itself makes one serve another size, under the lock; so it may look for the
  // magazine of a size without. `top` and `count` are others' to change, too.
  struct Magazine {
    Bytes size = 0;  // of the requests that it serves, rounded to 512; 0: unused
    StreamHandle handle = StreamHandle::kLegacy;
    Block* top = nullptr;  // linked by Block::left
    std::uint16_t count = 0;
    std::uint16_t requests = 0;  // saturates; parking begins with the second
    std::uint32_t last_use = 0;  // clock_ then
  };
  static constexpr int kSetBits = 5;
  static constexpr std::size_t kSets = 1 << kSetBits;
  static_assert(kSets <= 32, "large_sets_ has a bit for each");
  static constexpr std::size_t kWays = 4;
  static constexpr std::uint16_t kBlocksMax = 16;             // of one magazine
  static constexpr std::int64_t kThreadBytesMax = 256 << 20;  // of all of a thread's
  static constexpr std::uint16_t kRequestsToPark = 2;

  static constexpr std::size_t kStreamNotes = 8;
  static std::size_t get_note_index(StreamHandle handle) noexcept {
    const auto number = static_cast<std::uint64_t>(handle);
    return (number * 0x9e3779b97f4a7c15ull >> 61) % kStreamNotes;
  }
  using Set = std::array<Magazine, kWays>;
  static std::size_t get_set_index(Bytes size, StreamHandle handle) noexcept;
  Set& get_set(Bytes size, StreamHandle handle) noexcept;
  static Magazine* find(Set& set, Bytes size, StreamHandle handle) noexcept;
  // Releases the lock; null.
  Block* end_in_miss(Bytes bytes, StreamHandle handle) noexcept QUARRY_RELEASE(lock_);
  static Magazine& choose_victim(Set& set) noexcept;
  void remember(Set& set, Bytes size, StreamHandle handle) noexcept QUARRY_REQUIRES(lock_);
  void empty(Magazine& magazine) noexcept QUARRY_REQUIRES(lock_);
  void note_large(Bytes size, StreamHandle handle) noexcept QUARRY_REQUIRES(lock_) {
    large_sets_ |= 1u << get_set_index(size, handle);
  }
  void empty_large() noexcept QUARRY_REQUIRES(lock_);
  Block* take_list_of_leaving() noexcept QUARRY_REQUIRES(lock_);

  const RoutingWord& routing_;
  const std::uint64_t thread_token_ = get_thread_token();  // of the thread that makes this
  SpinLock lock_;
  std::atomic<bool> has_thread_ended_{false};
  std::atomic<int> shares_{2};
  Miss last_miss_;                                    // the thread's own
  std::uint32_t clock_ QUARRY_GUARDED_BY(lock_) = 0;  // misses
  std::int64_t parked_bytes_ QUARRY_GUARDED_BY(lock_) = 0;
  // Bit i: sets_[i] may have blocks of more than 1 MiB.
  std::uint32_t large_sets_ QUARRY_GUARDED_BY(lock_) = 0;
  Block* leaving_ QUARRY_GUARDED_BY(lock_) = nullptr;  // linked by Block::left; parked still
  ThreadCounts counts_ QUARRY_GUARDED_BY(lock_);
  std::array<Set, kSets> sets_ QUARRY_GUARDED_BY(lock_);
  std::array<StreamNote, kStreamNotes> notes_ QUARRY_GUARDED_BY(lock_);
};

// --- The short way, inline: most calls are nothing else ---

inline std::size_t ThreadMagazines::get_set_index(Bytes size, StreamHandle handle) noexcept {
  const std::uint64_t key = (size >> 9) + static_cast<std::uint64_t>(handle) * 31;
  return key * 0x9e3779b97f4a7c15ull >> (64 - kSetBits);
}

inline ThreadMagazines::Set& ThreadMagazines::get_set(Bytes size, StreamHandle handle) noexcept
    QUARRY_NO_THREAD_SAFETY_ANALYSIS {
  return sets_[get_set_index(size, handle)];
}

inline ThreadMagazines::Magazine* ThreadMagazines::find(Set& set, Bytes size,
                                                        StreamHandle handle) noexcept {
  for (Magazine& magazine : set) {
    if (magazine.size == size && magazine.handle == handle) return &magazine;
  }
  return nullptr;
}

// Neither waits for its lock: whoever has it is emptying magazines. Nor do they call anything on
// the way of a hit, which would cost registers.
inline Block* ThreadMagazines::try_take(Bytes bytes, StreamHandle handle) noexcept
    QUARRY_NO_THREAD_SAFETY_ANALYSIS {
  const Bytes size = round_up(bytes, kMinBlock);
  Magazine* const magazine = find(get_set(size, handle), size, handle);
  if (!lock_.try_lock()) [[unlikely]]
    return nullptr;
  Block* const block = magazine != nullptr && routing_.allows_parking() ? magazine->top : nullptr;
  if (block == nullptr) [[unlikely]]
    return end_in_miss(bytes, handle);
  magazine->top = block->left;
  --magazine->count;
  magazine->last_use = clock_;
  block->requested_bytes = bytes;
  block->is_held.store(true, std::memory_order_relaxed);
  parked_bytes_ -= static_cast<std::int64_t>(block->size);
  counts_.take(*block);
  lock_.unlock();
  return block;
}

inline bool ThreadMagazines::try_park(Block& block) noexcept QUARRY_NO_THREAD_SAFETY_ANALYSIS {
  const Stream& owner = *block.owner;
  if (block.foreign_uses != nullptr || block.is_oversize_counted) [[unlikely]]
    return false;
  if (block.segment->is_private) [[unlikely]]
    return false;
  if (block.size > kSmallMax && block.size != block.segment->size) return false;
  if (owner.is_per_thread() && owner.thread != thread_token_) return false;
  const Bytes size = round_up(block.requested_bytes, kMinBlock);
  Magazine* const magazine = find(get_set(size, owner.ref.handle), size, owner.ref.handle);
  if (magazine == nullptr || magazine->requests < kRequestsToPark) return false;
  const std::int64_t block_bytes = static_cast<std::int64_t>(block.size);
  if (!lock_.try_lock()) [[unlikely]]
    return false;
  const bool may_park = routing_.allows_parking() && owner.is_live() &&
                        magazine->count < kBlocksMax &&
                        parked_bytes_ + block_bytes <= kThreadBytesMax;
  if (may_park) [[likely]] {
    block.left = magazine->top;
    magazine->top = &block;
    ++magazine->count;
    parked_bytes_ += block_bytes;
    if (size > kSmallMax) note_large(size, owner.ref.handle);
    counts_.give_back(block);
  }
  lock_.unlock();
  return may_park;
}

template <class Visit>
void ThreadMagazines::for_each(Visit visit) noexcept {
  const SpinLockHold hold(lock_);
  for (const Block* block = leaving_; block != nullptr; block = block->left)
    visit(*block);
  for (const Set& set : sets_) {
    for (const Magazine& magazine : set) {
      for (const Block* block = magazine.top; block != nullptr; block = block->left)
        visit(*block);
    }
  }
}

}  // namespace quarry
