// SPDX-License-Identifier: Apache-2.0
// What the maker of a private pool may wish for, and what he is told of it. Plain values.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "base/bytes.hpp"
#include "core/pool_id.hpp"
#include "driver/driver_types.hpp"
#include "stats/device_stats.hpp"

namespace quarry {

// Where a pool's segments come from and go to, instead of the driver. The functions are called
// with no lock of Quarry held, inside a relaxed capture bracket, and may call the allocator (but
// for memory of their own pool). Each address that `allocate` returned is given to `free` once,
// whoever asks for it and when. Work that was queued before may still use the memory: `free` waits
// for the device before it serves another, as cudaFree does. They must not throw.
struct SegmentBackend {
  // A multiple of 512, backed by at least `bytes` bytes; 0 for no more. Whatever else it returns
  // is given back to `free` and counts as no more.
  std::function<Address(Bytes bytes, StreamRef stream)> allocate;
  std::function<void(Address address, Bytes bytes, StreamRef stream)> free;
  // Once, after the last call of the other two: what they need may go.
  std::function<void()> on_unused;

  bool is_set() const noexcept { return allocate != nullptr; }
  bool has_any() const noexcept { return is_set() || on_unused != nullptr; }
};

struct PoolOptions {
  // When memory is short the default pool may take free blocks from here.
  bool use_on_oom = false;
  // Blocks are whole segments.
  bool no_split = false;
  // Vacant segments go back only when the pool is trimmed or released, never because memory is
  // short elsewhere: for memory that others have registered by its address.
  bool no_recycle = false;
  Bytes limit_bytes = kUnlimited;  // of reserved bytes
  SegmentBackend backend;          // not set: the driver
};

// What may change while a pool lives; what is not set stays.
struct PoolChange {
  std::optional<bool> use_on_oom;
  std::optional<bool> no_split;  // of blocks that are handed out from now on
  std::optional<Bytes> limit_bytes;
};

// Who is left after a release.
struct PoolHolders {
  int count = 0;
  std::uint64_t tenure = 0;  // MemPool::tenure; it is over with the last
};

// The figures of one pool; those of the device include them. Bytes of whole blocks.
struct PoolStats {
  Stat allocated_bytes, active_bytes, reserved_bytes;
  Stat allocations, segments;
  std::int64_t num_device_alloc = 0;
  std::int64_t num_device_free = 0;
  std::int64_t num_ooms = 0;
};

struct PoolReport {
  PoolId id;
  int use_count = 0;  // 0: released, and lives on until its last block is freed
  bool has_active_capture = false;
  PoolStats stats;
  Bytes limit_bytes = kUnlimited;
};

}  // namespace quarry
