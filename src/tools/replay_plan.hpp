// SPDX-License-Identifier: Apache-2.0
// The command line of `quarry replay` and its check: which options there are to give, which go
// together, and what is made of them. Runs nothing.
#pragma once

#include <string>
#include <vector>

#include "base/status.hpp"
#include "tools/reference_table.hpp"
#include "tools/replay_outcome.hpp"
#include "tools/replayer.hpp"

namespace quarry::tools {

inline constexpr char kDefaultReplayConf[] = "segments:plain,thread_cache:False";

// The command line as it was given. Empty texts stand for options that were not.
struct ReplayCommandLine {
  std::vector<std::string> traces;
  std::vector<std::string> confs;
  std::string driver = "sim";
  std::string device_memory;
  std::string oracle;
  std::string reference;
  std::string gpu_lag_us;
  std::string repeat = "1";
  bool touch = false;
  bool in_step = false;
  bool validate = false;
  bool segments = false;
  bool json = false;
};

// The command line after its check: everything that a walk needs.
struct ReplayPlan {
  ReplayOptions options;  // without a configuration
  std::uint64_t repeat = 1;
  std::vector<Config> configs;  // as ReplayCommandLine::confs
  ReferenceTable reference;
  ReportStyle style;
};

// kInvalidArgument names the option and what is wrong with it, or the two that exclude each other.
// Warnings about configurations go to standard error.
Status make_replay_plan(const ReplayCommandLine& line, ReplayPlan& plan);

}  // namespace quarry::tools
