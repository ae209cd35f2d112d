// SPDX-License-Identifier: Apache-2.0
// The simulated device's time. It never goes back and has nothing to do with the wall clock; it
// moves when the user says so, when a host wait needs it, and for calls if they take time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

namespace quarry::sim {

// The end of work that nothing has ended yet.
inline constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();

class VirtualClock {
 public:
  std::uint64_t now_ns() const noexcept { return now_ns_; }
  void advance_to(std::uint64_t ns) noexcept { now_ns_ = std::max(now_ns_, ns); }
  void advance_by(std::uint64_t ns) noexcept { now_ns_ += ns; }

 private:
  std::uint64_t now_ns_ = 0;
};

}  // namespace quarry::sim
