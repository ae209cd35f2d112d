// SPDX-License-Identifier: Apache-2.0
// What the allocator's figures must be, worked out from the user's side alone: sums of what is
// held, peaks, errors answered; and bounds for what is pending, because when the allocator looks
// at its fences is its own affair.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "driver/driver_types.hpp"
#include "stats/device_stats.hpp"

namespace quarry::model {

// A stream's number, and how often that number was given to a new stream.
struct StreamName {
  int number = 0;
  std::uint64_t generation = 0;
  friend bool operator==(const StreamName&, const StreamName&) = default;
};

// A block that was freed while other streams may still use it.
struct PendingBlock {
  struct ForeignUse {
    StreamName stream;
    std::uint64_t submissions = 0;  // of the stream, when the block was freed
  };
  Bytes bytes = 0;
  std::vector<ForeignUse> uses;
};

struct DeviceLedger {
  std::int64_t count = 0;
  std::int64_t bytes = 0;  // whole blocks
  std::int64_t requested_bytes = 0;
  std::int64_t peak_bytes = 0;
  std::int64_t risen_bytes = 0;  // since the last reset
  std::int64_t fallen_bytes = 0;
  std::int64_t ooms = 0;
  std::int64_t size_mismatches = 0;
  // May be pending. Emptied when nothing is.
  std::vector<PendingBlock> pending;

  void add(Bytes block_bytes, Bytes requested);
  void remove(Bytes block_bytes, Bytes requested);
};

struct Ledger {
  // Magazines make a peak inexact by what other threads did in theirs meanwhile.
  bool is_peak_exact = true;
  bool may_wait_on_device = false;  // streams of the allocator's own accord
  std::vector<DeviceLedger> devices;
  std::int64_t invalid_frees = 0;  // of all devices

  // Whether the use certainly still runs.
  using IsRunning = std::function<bool(const PendingBlock::ForeignUse&)>;
  // What is wrong with the figures of a device; empty: nothing.
  std::string compare(DeviceId device, const DeviceStats& stats, const IsRunning& is_running);
};

}  // namespace quarry::model
