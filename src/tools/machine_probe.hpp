// SPDX-License-Identifier: Apache-2.0
// Asks the machine: the real driver, or the simulated device in its place.
#pragma once

#include "api/environment.hpp"
#include "cuda/machine_report.hpp"

namespace quarry::tools {

// MachineReport::error says why there is no driver, in this build or on this machine.
cuda::MachineReport probe_machine(const ProcessOptions& options);

}  // namespace quarry::tools
