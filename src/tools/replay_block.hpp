// SPDX-License-Identifier: Apache-2.0
// A living allocation of a replayed trace, as the Replayer and the work on the GPU know it. A
// plain value; kept when its slot is free, so that the vector's memory is used again.
#pragma once

#include <vector>

#include "driver/driver_types.hpp"
#include "sim/sim_types.hpp"

namespace quarry::tools {

struct ReplayBlock {
  Address address = 0;       // 0: out of memory, or 0 bytes
  Bytes bytes = 0;           // as the trace asks
  std::uint64_t number = 0;  // its place among the trace's allocations
  StreamRef stream;
  sim::LifetimeId lifetime = sim::LifetimeId::kNone;  // simulated device only
  bool is_out_of_memory = false;
  std::vector<StreamRef> recorded;  // the other streams that use it
};

}  // namespace quarry::tools
