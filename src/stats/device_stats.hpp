// SPDX-License-Identifier: Apache-2.0
// The figures of one device's allocator, with PyTorch's names and exact meanings (docs/stats.md).
// Plain values: the device allocator owns one set under its lock, readers get copies.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"

namespace quarry {

// One figure that rises and falls.
struct Stat {
  std::int64_t current = 0;
  std::int64_t peak = 0;       // highest `current` since the start or the last peak reset
  std::int64_t allocated = 0;  // sum of all rises since the start or the last accumulated reset
  std::int64_t freed = 0;      // sum of all falls, likewise

  void add(std::int64_t amount) noexcept {  // may be negative, or 0
    current += amount;
    peak = std::max(peak, current);
    (amount > 0 ? allocated : freed) += amount > 0 ? amount : -amount;
  }
  // Many rises and falls at once, during which the sum of them was at most `high`.
  void add_many(std::int64_t rises, std::int64_t falls, std::int64_t high) noexcept;
  void reset_peak() noexcept { peak = current; }
  void reset_accumulated() noexcept { allocated = freed = 0; }
};

// The two families that PyTorch's statistics are split by.
enum class StatFamily : int { kSmall = 0, kLarge = 1 };

// A figure that is kept for small and large pools and for both together.
struct FamilyStat {
  Stat all;
  std::array<Stat, 2> family;

  void add(StatFamily f, std::int64_t amount) noexcept {
    all.add(amount);
    family[static_cast<int>(f)].add(amount);
  }
};

struct DeviceStats {
  // Counts of: blocks held by the user; segments from the driver; held or pending blocks; free
  // blocks that are a part of a split segment.
  FamilyStat allocation, segment, active, inactive_split;
  // The same in bytes of whole blocks; and the bytes that users asked for (falls when a free
  // completes, as upstream).
  FamilyStat allocated_bytes, reserved_bytes, active_bytes, inactive_split_bytes, requested_bytes;
  Stat oversize_allocations, oversize_segments;  // size >= max_split_size

  std::int64_t num_alloc_retries = 0;  // driver allocations tried again after releasing all caches
  std::int64_t num_ooms = 0;           // out-of-memory results given to callers
  std::int64_t num_oom_rejections =
      0;  // refused before the driver was asked (throw_on_cudamalloc_oom)
  std::int64_t num_sync_all_streams = 0;  // waits for all pending fences; +1 an empty_cache
  std::int64_t num_device_alloc = 0;      // driver allocations that succeeded
  std::int64_t num_device_free = 0;       // driver frees that succeeded
  std::int64_t max_split_size = -1;       // bytes; -1 is unlimited

  // Quarry's own.
  std::int64_t allocator_slack = 0;     // allocated_bytes - bytes users asked for, of held blocks
  std::int64_t external_bytes = 0;      // in use on the device, not reserved by this allocator
  std::int64_t largest_free_block = 0;  // bytes, over all streams
  std::int64_t pending_bytes = 0;       // freed by the user, still waiting for fences
  std::int64_t cached_bytes = 0;        // free blocks, over all streams
  std::int64_t parked_bytes = 0;        // freed blocks in the magazines of threads
  std::int64_t idle_bytes = 0;          // of those, usable by any stream
  std::int64_t pinned_bytes = 0;        // plain segments and extents that pins keep in place
  std::int64_t fences_outstanding = 0;  // events recorded and not yet seen passed
  std::int64_t fences_failed = 0;       // fence queries that the driver answered with an error
  std::int64_t invalid_frees = 0;       // frees of unknown pointers and double frees
  std::int64_t size_mismatches = 0;     // sized frees that named another size
  std::int64_t driver_free_failures = 0;  // segments that the driver refused to take back
  // Expandable segments: extents made, given back, and moved to where they were needed; waits of
  // one stream for another, on the device, to reuse its memory.
  std::int64_t extents_created = 0, extents_released = 0, extents_moved = 0;
  std::int64_t stream_waits = 0;

  void reset_peak() noexcept;
  void reset_accumulated() noexcept;
};

// Bytes cached for one stream: what a one-shot stream strands until the cache is emptied.
struct StreamCache {
  std::uint64_t stream = 0;  // the handle; ~0 for idle memory that any stream may take
  Bytes cached_bytes = 0;
  Bytes largest_free_block = 0;
};

struct NamedValue {
  std::string name;  // "allocated_bytes.all.peak", "num_ooms", ...: torch.cuda.memory_stats() keys
  std::int64_t value;
};

// All figures under PyTorch's flattened keys, then Quarry's own, sorted by name.
std::vector<NamedValue> flatten(const DeviceStats& stats);

}  // namespace quarry
