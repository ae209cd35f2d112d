// SPDX-License-Identifier: Apache-2.0
// A contiguous device address range from the driver, tiled by blocks. Owned by its MemPool; knows
// nothing of pools, statistics or the driver.
#pragma once

#include <cstdint>

#include "base/bytes.hpp"
#include "core/block.hpp"
#include "core/lane.hpp"
#include "driver/driver_types.hpp"
#include "stats/device_stats.hpp"

namespace quarry {

class BlockPool;
struct MemPool;

struct Segment {
  Address address = 0;
  Bytes size = 0;
  StatFamily family = StatFamily::kSmall;
  // Order of creation on the device. Ties between blocks of one size are broken by it, so that
  // decisions depend on the sequence of calls and not on the driver's addresses.
  std::uint64_t sequence = 0;
  MemPool* pool = nullptr;    // its owner
  bool is_private = false;    // of another pool than the default one
  bool was_captured = false;  // a capture was given a part of it, which its graph uses at launch
  StreamRef stream;           // of the request that it was obtained for
  Block* first = nullptr;
  std::uint32_t active_blocks = 0;   // allocated or pending
  int lane = kNoLane;                // of all its blocks' owners; kNoLane if they differ
  bool is_oversize_counted = false;  // in DeviceStats::oversize_segments
  bool is_detached = false;          // on its way back to the driver: its blocks are retiring
  Segment* previous = nullptr;       // in the MemPool's list, in order of creation
  Segment* next = nullptr;

  // Where its free blocks are.
  BlockPool& get_free_blocks() const noexcept;
  // Nothing in it is in use: it may go back to the driver, which waits for the device's work.
  bool is_vacant() const noexcept { return active_blocks == 0; }
};

// Cuts `block` at `head_bytes`; returns the new block behind it, free, of the same owner and in no
// pool. 0 < head_bytes < block.size.
Block* split(Block& block, Bytes head_bytes, BlockStock& blocks);

// Joins `block` with the block behind it, which ceases to exist. Neither is in a pool.
void absorb_next(Block& block, BlockStock& blocks) noexcept;

}  // namespace quarry
