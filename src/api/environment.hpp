// SPDX-License-Identifier: Apache-2.0
// What the environment says about the process's allocator, and the driver that it names. Reads and
// checks only; the allocator is made in process.cpp.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/bytes.hpp"
#include "base/status.hpp"
#include "driver/driver.hpp"

namespace quarry {

inline constexpr int kMostSimDevices = 64;

enum class DriverKind { kCuda, kSim };

struct ProcessOptions {
  std::string conf;
  std::string conf_source;  // who said it, for errors; empty if that is plain
  DriverKind driver = DriverKind::kCuda;
  int sim_device_count = 1;
  Bytes sim_memory_bytes = 0;  // 0: the simulated device's own default
  bool is_disabled = false;    // the kill switch
};

// The value of a variable; empty for one that is not set, which means the same.
using LookUpVariable = std::function<std::string_view(const char* name)>;

// Of this process, or of whatever `look_up` knows. kInvalidArgument names the variable, its value
// and what is allowed.
Result<ProcessOptions> read_environment();
Result<ProcessOptions> read_environment(const LookUpVariable& look_up);

// kNotSupported, with what to do, for a driver that this build does not have.
Result<std::unique_ptr<Driver>> make_driver(const ProcessOptions& options);

}  // namespace quarry
