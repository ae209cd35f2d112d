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
  struct Segment {
    Address address = 0;
    Bytes size = 0;
    std::vector<Block> blocks;
  };
  DeviceId device = 0;
  PoolId pool;
  std::vector<Segment> segments;
};

struct RestoredPool {
  // Blocks that were allocated and are so no longer. Whoever holds one may still free it, once:
  // that does nothing, also when the address has been handed out again.
  std::vector<Address> stale;
  // Blocks that are allocated now, as they were then: in the hands of whoever restored them.
  std::vector<Address> live;
};

}  // namespace quarry
