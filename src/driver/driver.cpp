// SPDX-License-Identifier: Apache-2.0
#include "driver/driver.hpp"

#include <chrono>

namespace quarry {

std::uint64_t Driver::read_clock_ns() noexcept {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

}  // namespace quarry
