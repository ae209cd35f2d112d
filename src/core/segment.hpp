// SPDX-License-Identifier: Apache-2.0
// A contiguous device address range from the driver, tiled by blocks. Plain, it is memory as a
// whole; expandable, it has memory where extents are mapped, and holes elsewhere
// (extent_range.hpp). Owned by its MemPool; knows nothing of pools, statistics or the driver.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/bytes.hpp"
#include "core/block.hpp"
#include "core/lane.hpp"
#include "core/pointer_map.hpp"
#include "core/stream_table.hpp"
#include "driver/driver_types.hpp"
#include "stats/device_stats.hpp"

namespace quarry {

class BlockPool;
struct ExtentRange;
struct MemPool;

struct alignas(64) Segment {
  // The first cache line: all that a request or a free within it touches.
  Address address = 0;
  Bytes size = 0;
  MemPool* pool = nullptr;  // its owner
  StatFamily family = StatFamily::kSmall;
  std::uint32_t active_blocks = 0;   // allocated or pending
  int lane = kNoLane;                // of all its blocks' owners; kNoLane if they differ
  bool is_private = false;           // of another pool than the default one
  bool was_captured = false;         // a capture was given a part of it, which its graph uses
  bool is_oversize_counted = false;  // in DeviceStats::oversize_segments
  bool is_detached = false;          // on its way back to the driver: its blocks are retiring
  bool is_outdated = false;          // its extents are of a kind that is not asked for any more
  // Order of creation on the device. Ties between blocks of one size are broken by it, so that
  // decisions depend on the sequence of calls and not on the driver's addresses.
  std::uint64_t sequence = 0;
  ExtentRange* range = nullptr;  // null: plain

  Block* first = nullptr;

  Segment* previous = nullptr;  // in the MemPool's list, in order of creation
  Segment* next = nullptr;
  Bytes reserved_bytes = 0;  // memory that it holds from the driver
  StreamRef stream;          // of the request that it was obtained for
  // Reasons to stay though nothing in it is in use. A restore that is under way; and each free
  // still to come of a block that a restore has taken from its holder: if another segment had the
  // address by then, that would free somebody else's block.
  std::uint32_t holds = 0;
  // Of a plain one: pinned ranges that lie in it. Extents of expandable ones have their own.
  std::uint32_t pins = 0;

  bool is_expandable() const noexcept { return range != nullptr; }
  // Whether requests and frees may pass a lane here.
  bool may_have_lane() const noexcept { return !is_private && !is_outdated; }
  // Where its free blocks are.
  BlockPool& get_free_blocks() const noexcept;
  PointerMap::RegionUse get_region_use() const noexcept {
    return PointerMap::get_region_use(address, size);
  }
  // Nothing in it is in use, now or by its address: it may go back to the driver, which waits for
  // the device's work.
  bool is_vacant() const noexcept { return active_blocks == 0 && holds == 0 && pins == 0; }
};

// Changes of inactive_split within one operation, which count as one: a split that replaces
// another is neither a rise nor a fall.
struct InactiveSplitChange {
  std::int64_t count = 0;
  std::int64_t bytes = 0;

  void add(const Block& block) noexcept {
    ++count;
    bytes += static_cast<std::int64_t>(block.size);
  }
  void remove(const Block& block) noexcept {
    --count;
    bytes -= static_cast<std::int64_t>(block.size);
  }
};

// Cuts `block` at `head_bytes`; returns the new block behind it, free, of the same owner and in no
// pool. 0 < head_bytes < block.size.
inline Block* split(Block& block, Bytes head_bytes, BlockStock& blocks) {
  QUARRY_ASSERT(head_bytes > 0 && head_bytes < block.size);
  Block* const tail = blocks.take();
  tail->address = block.address + head_bytes;
  tail->size = block.size - head_bytes;
  tail->segment = block.segment;
  tail->owner = block.owner;
  tail->fence_number = block.fence_number;
  ++tail->owner->references;
  tail->previous = &block;
  tail->next = block.next;
  blocks.set_previous(block.next, tail);
  block.next = tail;
  block.size = head_bytes;
  return tail;
}

// Whether the free `block` and its neighbour, or null, are to be one.
inline bool may_join(const Block& block, const Block* neighbour) noexcept {
  return neighbour != nullptr && neighbour->is_free() && neighbour->owner == block.owner;
}

// Joins `block` with the block behind it, which ceases to exist. Neither is in a pool.
inline void absorb_next(Block& block, BlockStock& blocks) noexcept {
  Block* const tail = block.next;
  QUARRY_ASSERT_EQ(block.end(), tail->address);
  --tail->owner->references;
  block.fence_number = std::max(block.fence_number, tail->fence_number);
  block.size += tail->size;
  block.next = tail->next;
  blocks.set_previous(block.next, &block);
  blocks.give_back(tail);
}

}  // namespace quarry
