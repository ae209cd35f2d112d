// SPDX-License-Identifier: Apache-2.0
// Which kind of extents a device makes: what the settings ask for, or the next weaker kind where
// the device or the driver refuses that. Pure functions of values.
#pragma once

#include <span>
#include <string>

#include "core/config.hpp"
#include "driver/driver_types.hpp"

namespace quarry {

// What the settings ask for, on a device that can all of it.
ExtentKind get_wanted_kind(const Config& config);

// The strongest kind that the device can make and that is not among `refused`, of those that are
// no stronger than `wanted`. Types of handles are asked for by name, RDMA is not: it is given up
// first. The weakest kind, which every driver makes, is never looked for among the refused.
ExtentKind choose_kind(const ExtentKind& wanted, const DeviceProperties& properties,
                       std::span<const ExtentKind> refused);

// "posix_fd handles, rdma"; "no handles".
std::string describe(const ExtentKind& kind);

}  // namespace quarry
