// SPDX-License-Identifier: Apache-2.0
// What `quarry doctor` has to say about one thing: what it is, and what to do about it. A plain
// value.
#pragma once

#include <string>
#include <vector>

namespace quarry::tools {

enum class Severity {
  kNote,   // good to know
  kHurts,  // costs speed or memory, or does not work at all
};

struct Finding {
  Severity severity = Severity::kNote;
  std::string subject;  // a variable, a library, a device
  std::string text;     // what is the case
  std::string advice;   // what to do

  friend bool operator==(const Finding&, const Finding&) = default;
};

using Findings = std::vector<Finding>;

}  // namespace quarry::tools
