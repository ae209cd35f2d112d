// SPDX-License-Identifier: Apache-2.0
// What came of replaying one trace with one configuration, and its two written forms: a line of
// JSON for programs and a table for people.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "tools/replayer.hpp"

namespace quarry::tools {

struct ReplayOutcome {
  std::string trace;  // the path as the user gave it
  std::string conf;   // likewise
  std::string error;  // empty: `result` holds
  ReplayResult result;
  double events_per_second = 0.0;               // median, if there were several passes
  std::optional<Bytes> pytorch_reserved_bytes;  // from the reference table
};

struct ReportStyle {
  bool has_reference = false;  // show PyTorch's figures
  bool has_segments = false;   // the sequences of segments were compared
  bool has_oracle = true;      // hazards were looked for
};

// "run" for "some/dir/run.csv.gz": what a trace is called in tables.
std::string make_trace_label(const std::string& path);

// One object without line end. docs/trace-format.md describes every field.
std::string format_json(const ReplayOutcome& outcome, const ReportStyle& style);

// The configurations, then one line for each outcome that is not an error.
std::string format_table(const std::vector<ReplayOutcome>& outcomes, const ReportStyle& style);

}  // namespace quarry::tools
