// SPDX-License-Identifier: Apache-2.0
// Opens the real driver. This header needs no CUDA header, so that src/api can include it.
#pragma once

#include <memory>

#include "base/status.hpp"
#include "driver/driver.hpp"

namespace quarry::cuda {

// The CUDA driver API of this machine. Makes no context yet: a device's primary context is
// retained at the first call that names it, and never released (its end would pull memory from
// under other libraries). kNotSupported without a driver or with one too old.
Result<std::unique_ptr<Driver>> open_cuda_driver();

}  // namespace quarry::cuda
