// SPDX-License-Identifier: Apache-2.0
// All that `quarry doctor` has found out, and its two written forms.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cuda/machine_report.hpp"
#include "tools/finding.hpp"
#include "tools/machine_check.hpp"
#include "tools/process_check.hpp"

namespace quarry::tools {

struct DoctorReport {
  bool is_simulated = false;  // `machine` is the simulated device's
  cuda::MachineReport machine;
  std::vector<Choice> choices;
  std::optional<int> pid;                // the process that --pid names
  std::vector<LoadedLibrary> libraries;  // of that process
  Findings findings;

  bool hurts() const;  // at least one finding does
};

// For people.
std::string format_doctor_text(const DoctorReport& report);
// One JSON object over several lines. docs/tuning.md describes it.
std::string format_doctor_json(const DoctorReport& report);

}  // namespace quarry::tools
