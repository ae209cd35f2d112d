// SPDX-License-Identifier: Apache-2.0
// What the environment says about the process's allocator, and the driver that it names. Reads and
// checks only; the allocator is made in process.cpp.
#pragma once

#include <memory>
#include <string>

#include "base/bytes.hpp"
#include "base/status.hpp"
#include "driver/driver.hpp"

namespace quarry {

inline constexpr int kMostSimDevices = 64;

enum class DriverKind { kCuda, kSim };

struct ProcessOptions {
  std::string conf;
  DriverKind driver = DriverKind::kCuda;
  int sim_device_count = 1;
  Bytes sim_memory_bytes = 0;  // 0: the simulated device's own default
  bool is_disabled = false;    // the kill switch
};

// kInvalidArgument names the variable, its value and what is allowed.
Result<ProcessOptions> read_environment();

// kNotSupported, with what to do, for a driver that this build does not have.
Result<std::unique_ptr<Driver>> make_driver(const ProcessOptions& options);

}  // namespace quarry
