// SPDX-License-Identifier: Apache-2.0
// What a machine's driver and devices mean for Quarry: findings, and what the allocator will use
// and why. Pure functions of values.
#pragma once

#include <string>
#include <vector>

#include "base/owner_lock.hpp"
#include "cuda/machine_report.hpp"
#include "tools/environment_check.hpp"
#include "tools/finding.hpp"

namespace quarry::tools {

// One thing that the allocator decides by itself.
struct Choice {
  std::string what;
  std::string value;
  std::string why;

  friend bool operator==(const Choice&, const Choice&) = default;
};

// `visible` is count_visible_devices of the environment that the report was made in.
Findings check_machine(const cuda::MachineReport& machine, int visible);

// What an allocator with this environment would use on this machine.
std::vector<Choice> explain_choices(const Environment& environment,
                                    const cuda::MachineReport& machine);
// How threads get into their magazines; `order` is what the kernel let a process do.
Choice explain_owner_order(const OwnerOrderChoice& order);

// "13.0" for 13000.
std::string format_cuda_version(int version);

}  // namespace quarry::tools
