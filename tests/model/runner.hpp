// SPDX-License-Identifier: Apache-2.0
// Runs cases, and makes failing ones small. A broken invariant ends the process, so cases that may
// fail run in a child and what it says becomes the failure. The calling process has one thread.
#pragma once

#include <cstddef>
#include <string>

#include "tests/model/case.hpp"
#include "tests/model/tally.hpp"

namespace quarry::model {

struct Outcome {
  std::string failure;        // empty: none
  std::size_t performed = 0;  // operations before the failure, the failing one included
  Tally tally;
  bool has_passed() const { return failure.empty(); }
};

// In this process. Validates every device each 1,000 operations; ends with nothing left.
Outcome run(const Case& experiment);
// In a child: ends of the process and hangs are failures too.
inline constexpr unsigned kHangSeconds = 60;
Outcome run_isolated(const Case& experiment, unsigned hang_seconds = kHangSeconds);

// The sort of failure, without its particulars: shrinking stays with one.
std::string get_kind(const std::string& failure);

// A case that still fails, from which hardly anything can be left out.
Case shrink(const Case& failing);

// The outcome, and for a failure the smallest case found, as a regression test to paste.
std::string explain(const Case& failing, const Outcome& outcome);

}  // namespace quarry::model
