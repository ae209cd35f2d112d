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

#include "base/bytes.hpp"
#include "base/mutex.hpp"
#include "core/block.hpp"
#include "core/routing.hpp"
#include "driver/driver_types.hpp"
#include "stats/device_stats.hpp"

namespace quarry {

// What a thread's magazines have served and parked since the device last took the figures into its
// statistics. Each figure for small, large and all.
struct MagazineCounts {
  struct Figure {
    std::int64_t taken[2] = {};  // by StatFamily
    std::int64_t parked[2] = {};
    std::int64_t high[2] = {};  // the highest of taken - parked
    std::int64_t all = 0;       // taken - parked, both families
    std::int64_t high_all = 0;

    void take(int family, std::int64_t amount) noexcept {
      taken[family] += amount;
      high[family] = std::max(high[family], taken[family] - parked[family]);
      all += amount;
      high_all = std::max(high_all, all);
    }
    void park(int family, std::int64_t amount) noexcept {
      parked[family] += amount;
      all -= amount;
    }
  };
  Figure blocks;
  Figure bytes;
  Figure requested;
};

class alignas(64) ThreadMagazines {
 public:
  explicit ThreadMagazines(const RoutingWord& routing) noexcept : routing_(routing) {}

  // A parked block for a request of `bytes` on `handle`, marked held again; null if there is none
  // or the short way is closed. A miss remembers the size. Blocks that had to make room for it
  // come out in `evicted` (linked by Block::left): free them under the device's mutex.
  Block* try_take(Bytes bytes, StreamHandle handle, Block** evicted) noexcept;

  // Parks a block that its user gave up and nobody else has (Block::is_held was exchanged to
  // false). False if it does not qualify: free it under the device's mutex.
  bool try_park(Block& block, std::uint64_t thread_token) noexcept;

  // Takes everything out, linked by Block::left; null if empty. The device's mutex is held.
  Block* take_all() noexcept;
  // Moves the figures since the last call to `counts`; false if there are none.
  bool take_counts(MagazineCounts& counts) noexcept;
  Bytes get_parked_bytes() noexcept;

  // Two share it, its device and its thread; true for the last to give its share back.
  bool give_back_share() noexcept { return shares_.fetch_sub(1, std::memory_order_acq_rel) == 1; }
  void mark_thread_ended() noexcept { has_thread_ended_.store(true, std::memory_order_release); }
  bool has_thread_ended() const noexcept {
    return has_thread_ended_.load(std::memory_order_acquire);
  }

  // Calls visit(const Block&) for each parked block.
  template <class Visit>
  void for_each(Visit visit) noexcept;

 private:
  struct Magazine {
    Bytes size = 0;  // of the requests that it serves, rounded to 512; 0: unused
    StreamHandle handle = StreamHandle::kLegacy;
    Block* top = nullptr;  // linked by Block::left
    std::uint16_t count = 0;
    std::uint16_t requests = 0;  // saturates; parking begins with the second
    std::uint32_t last_use = 0;  // clock_ then
  };
  static constexpr std::size_t kSets = 32;
  static constexpr std::size_t kWays = 4;
  static constexpr std::uint16_t kBlocksMax = 16;             // of one magazine
  static constexpr std::int64_t kThreadBytesMax = 256 << 20;  // of all of a thread's
  static constexpr std::uint16_t kRequestsToPark = 2;

  using Set = std::array<Magazine, kWays>;
  Set& get_set(Bytes size, StreamHandle handle) noexcept QUARRY_REQUIRES(lock_);
  static Magazine* find(Set& set, Bytes size, StreamHandle handle) noexcept;
  void remember(Set& set, Bytes size, StreamHandle handle, Block** evicted) noexcept
      QUARRY_REQUIRES(lock_);
  void empty(Magazine& magazine, Block** list) noexcept QUARRY_REQUIRES(lock_);
  void empty_large(Block** list) noexcept QUARRY_REQUIRES(lock_);

  const RoutingWord& routing_;
  SpinLock lock_;
  std::atomic<bool> has_thread_ended_{false};
  std::atomic<int> shares_{2};
  std::uint32_t clock_ QUARRY_GUARDED_BY(lock_) = 0;
  std::int64_t parked_bytes_ QUARRY_GUARDED_BY(lock_) = 0;
  std::int64_t large_parked_ QUARRY_GUARDED_BY(lock_) = 0;  // blocks of more than 1 MiB
  MagazineCounts counts_ QUARRY_GUARDED_BY(lock_);
  bool has_counts_ QUARRY_GUARDED_BY(lock_) = false;
  std::array<Set, kSets> sets_ QUARRY_GUARDED_BY(lock_);
};

template <class Visit>
void ThreadMagazines::for_each(Visit visit) noexcept {
  const SpinLockHold hold(lock_);
  for (const Set& set : sets_) {
    for (const Magazine& magazine : set) {
      for (const Block* block = magazine.top; block != nullptr; block = block->left)
        visit(*block);
    }
  }
}

}  // namespace quarry
