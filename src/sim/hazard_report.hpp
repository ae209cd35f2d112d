// SPDX-License-Identifier: Apache-2.0
// The text of a hazard: one line that names both uses.
#pragma once

#include <string>

#include "sim/sim_types.hpp"

namespace quarry::sim {

std::string format_hazard(HazardKind kind, const MemoryUse& earlier, const MemoryUse& later);

}  // namespace quarry::sim
