// SPDX-License-Identifier: Apache-2.0
// What commands that write a trace have in common: how its format is chosen, and their report.
#pragma once

#include <string>

#include "base/status.hpp"
#include "tools/trace_file.hpp"
#include "trace/trace_reader.hpp"

namespace CLI {
class App;
}

namespace quarry::tools {

struct TraceOutput {
  std::string path;
  std::string format;  // "csv", "native"; empty: by the path
};

// Adds --format.
void add_format_option(CLI::App& command, TraceOutput& output);

TraceFormat choose_format(const TraceOutput& output);
// Fails where binary would go to a terminal.
Status check_output(const TraceOutput& output);

// "1,000 events written as csv, 20,000 bytes".
std::string describe_written(const TraceOutput& output, std::uint64_t events,
                             const TraceFileWriter& writer);
// "PATH: text" on standard error.
void print_summary(const TraceOutput& output, const std::string& text);

}  // namespace quarry::tools
