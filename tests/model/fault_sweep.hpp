// SPDX-License-Identifier: Apache-2.0
// Every driver call of a program fails once, each in a world of its own: for every entry and every
// k that occurs, the k-th call is made to fail, and the allocator must be as before the request
// and go on as if nothing had been. The worlds are children of one run of the program, begun just
// before the operation whose call fails, so the sweep costs about one operation a fault.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tests/model/case.hpp"

namespace quarry::model {

struct SweepResult {
  // Faults tried, by entry.
  std::array<std::uint64_t, kDriverEntryCount> tried{};
  std::uint64_t failed_requests = 0;  // faults that the user's call answered with an error
  std::vector<std::string> failures;  // the first few
};

// The codes with which each call of `entry` is made to fail.
std::vector<DriverCode> get_codes(DriverEntry entry);

// `experiment` needs one thread only and passes without faults.
SweepResult sweep_faults(const Case& experiment);

}  // namespace quarry::model
