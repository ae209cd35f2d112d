// SPDX-License-Identifier: Apache-2.0
// The command line of a suite program: Google Benchmark's own options, and these.
#pragma once

#include <string>
#include <vector>

namespace quarry::bench {

struct SuiteOptions {
  std::string allocator;
  bool is_simulated = false;
  double seconds = 0.1;          // of a row and repetition, at least
  double latency_seconds = 1.0;  // of a series of single calls, at most
};

// `allocators` are those that the program knows. A mistake, and --help or --list, end the process.
SuiteOptions parse_suite_options(int argc, char** argv,
                                 const std::vector<std::string>& allocators);

}  // namespace quarry::bench
