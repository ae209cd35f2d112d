// SPDX-License-Identifier: Apache-2.0
// The layout of a pool at one moment, to which it can be brought back: for engines that replay
// trees of graphs and return to a branch (PyTorch's setCheckpointPoolState). Plain values; says
// nothing of the memory's contents.
#pragma once

#include <cstdint>
#include <vector>

#include "core/pool_id.hpp"
#include "driver/driver_types.hpp"

namespace quarry {

struct PoolCheckpoint {
  struct Block {
    Address address = 0;
    Bytes size = 0;
    Bytes requested_bytes = 0;
    bool is_allocated = false;
    CaptureId capture{};       // that it was given to
    std::uint64_t stream = 0;  // the owner's serial (Stream)
  };
  using Place = std::vector<Block>::const_iterator;
  struct Segment {
    Address address = 0;
    Bytes size = 0;
    std::uint64_t sequence = 0;  // Segment::sequence: another may come at the same address
    std::vector<Block> blocks;
  };
  DeviceId device = 0;
  std::uint64_t device_serial = 0;  // of this allocator's device: pools of another may be equal
  PoolId pool;
  std::uint64_t pool_serial = 0;  // MemPool::serial
  std::vector<Segment> segments;
};

// What holders of stale blocks will do.
enum class StaleFrees {
  kToCome,  // each frees its block, once, or says by forget_stale that it will not
  kNone,    // none does
};

struct RestoredPool {
  // Blocks that were allocated and are so no longer. With StaleFrees::kToCome whoever holds one
  // frees it, once: that does nothing, also when the address has been handed out again. Until then
  // its segment stays, so that the address cannot become another pool's.
  std::vector<Address> stale;
  // Blocks that are allocated now, as they were then.
  std::vector<Address> live;
  // Of these, those that were so when the restore began, with the same size: still in the hands of
  // whoever held them. The others are in the hands of whoever restored them.
  std::vector<Address> kept;
};

}  // namespace quarry
