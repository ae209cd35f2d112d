// SPDX-License-Identifier: Apache-2.0
// The simulated device of a replay, and the recorded program's GPU work on it, modelled by its
// edges: work on a block's stream is submitted at its allocation and at its free, work on a
// recorded stream at the record_stream (which the program has ordered after the block's own
// stream) and at the free. Each ends `gpu_lag_us` after the row that submits it. The same members
// as RealWork; Replayer says when each is called.
#pragma once

#include <functional>

#include "base/status.hpp"
#include "sim/sim_driver.hpp"
#include "tools/replay_block.hpp"
#include "tools/replay_result.hpp"

namespace quarry::tools {

class SimulatedWork {
 public:
  SimulatedWork(Bytes device_memory_bytes, std::uint64_t gpu_lag_us, bool oracle);

  Driver& driver() noexcept { return driver_; }
  // Calls `observer` with the size of every segment that is asked for.
  void observe_segments(std::function<void(Bytes)> observer);

  DriverResult<StreamRef> create_stream();
  // Virtual time; never goes back.
  void advance_to_us(std::uint64_t time_us);
  DriverCode begin_use(ReplayBlock& block);
  DriverCode use_elsewhere(const ReplayBlock& block, StreamRef stream);
  DriverCode end_use(const ReplayBlock& block);
  DriverCode after_free(const ReplayBlock&) { return DriverCode::kSuccess; }

  // Calls and time of the driver so far.
  void read_driver_figures(ReplayResult& result) const;
  // When the allocator has gone. Fails if it misused the driver or did not give all memory back.
  Status close(ReplayResult& result);

 private:
  void submit(StreamRef stream, sim::LifetimeId lifetime);

  SimDriver driver_;
  Bytes device_memory_bytes_;
  std::uint64_t gpu_lag_us_;
  bool oracle_;
  bool submits_work_;  // false: all work ends at once and nobody looks at it
  std::uint64_t now_us_ = 0;
};

}  // namespace quarry::tools
