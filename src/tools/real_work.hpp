// SPDX-License-Identifier: Apache-2.0
// The real device of a replay, and the recorded program's GPU work on it: nothing, or kernels that
// touch every block. A block is filled on its stream when it is allocated, and checked there
// before it is freed; a recorded stream checks it at the record_stream (after the block's own
// stream, as the program has it) and before the free. The same members as SimulatedWork; a row's
// time means nothing here, since the replay runs as fast as it can.
#pragma once

#include <functional>
#include <memory>

#include "base/status.hpp"
#include "cuda/block_toucher.hpp"
#include "tools/counting_driver.hpp"
#include "tools/replay_block.hpp"
#include "tools/replay_result.hpp"

namespace quarry::tools {

class RealWork {
 public:
  struct Options {
    bool touch = false;
    // After the free of a block that other streams use, wait for them: the allocator then finds
    // all work done, as on a simulated device without lag, and decides the same.
    bool in_step = false;
  };

  // `toucher` makes the streams in any case.
  RealWork(std::unique_ptr<Driver> driver, std::unique_ptr<cuda::BlockToucher> toucher,
           Options options)
      : driver_(std::move(driver)), toucher_(std::move(toucher)), options_(options) {}

  Driver& driver() noexcept { return driver_; }
  void observe_segments(std::function<void(Bytes)> observer) {
    driver_.observe_allocations(std::move(observer));
  }

  DriverResult<StreamRef> create_stream() { return toucher_->create_stream(); }
  void advance_to_us(std::uint64_t) {}
  DriverCode begin_use(ReplayBlock& block);
  DriverCode use_elsewhere(const ReplayBlock& block, StreamRef stream);
  DriverCode end_use(const ReplayBlock& block);
  DriverCode after_free(const ReplayBlock& block);

  void read_driver_figures(ReplayResult& result) const;
  // When the allocator has gone. Waits for the device. Fails if work on it failed, or if the
  // allocator did not give all memory back.
  Status close(ReplayResult& result);

 private:
  DriverCode check(const ReplayBlock& block, StreamRef stream);

  CountingDriver driver_;
  std::unique_ptr<cuda::BlockToucher> toucher_;
  Options options_;
  Bytes touched_bytes_ = 0;
};

}  // namespace quarry::tools
