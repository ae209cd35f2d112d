// SPDX-License-Identifier: Apache-2.0
// Settings in a process's environment that contradict each other or hurt. Pure functions of the
// environment as a value: nothing here reads a variable, a file or a device.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "api/environment.hpp"
#include "core/config.hpp"
#include "tools/finding.hpp"

namespace quarry::tools {

using Environment = std::map<std::string, std::string, std::less<>>;

// From "NAME=value" strings that each end in a zero byte, as /proc/PID/environ has them. Of a name
// that stands twice the first counts, as for getenv.
Environment parse_environment(std::string_view block);

// Empty for a variable that is not set.
std::string_view find_variable(const Environment& environment, std::string_view name);

// What Quarry reads from it, as the process's allocator would.
Result<ProcessOptions> read_process_options(const Environment& environment);
Result<Config> read_config(const Environment& environment);

// Everything below, in this order.
Findings check_environment(const Environment& environment);

// QUARRY_*: values that are refused (with the parser's own text), and those that change much.
Findings check_quarry_variables(const Environment& environment);
// PyTorch's settings of its allocator: options that Quarry does not have, refuses, or is told
// otherwise in QUARRY_CONF.
Findings check_pytorch_variables(const Environment& environment);
// CUDA's own variables.
Findings check_cuda_variables(const Environment& environment);
// Other allocators, and hooks of the driver, in LD_PRELOAD.
Findings check_preloads(const Environment& environment);

// How many devices a value of CUDA_VISIBLE_DEVICES names; -1 for "not told" (not set).
int count_visible_devices(const Environment& environment);

}  // namespace quarry::tools
