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
  DriverKind driver = DriverKind::kSim;
  bool has_touch = false;         // real device: kernels touched every block
  bool is_in_step = false;        // likewise: the host waited for the GPU
  Bytes device_memory_bytes = 0;  // simulated device, as the next
  std::uint64_t gpu_lag_us = 0;
};

// "run" for "some/dir/run.csv.gz": what a trace is called in tables.
std::string make_trace_label(const std::string& path);

// The configuration as tables and messages show it: cut where it is long, line ends and other
// bytes that do not print as escapes.
std::string shorten_conf(const std::string& conf);

// One object without line end. docs/trace-format.md describes every field.
std::string format_json(const ReplayOutcome& outcome, const ReportStyle& style);

// What was replayed on, then one line for each outcome; one that is an error says "failed". Traces
// of one label are shown with their paths.
std::string format_table(const std::vector<ReplayOutcome>& outcomes, const ReportStyle& style);

}  // namespace quarry::tools
