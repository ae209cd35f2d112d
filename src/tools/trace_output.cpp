// SPDX-License-Identifier: Apache-2.0
#include "tools/trace_output.hpp"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "tools/number_text.hpp"

namespace quarry::tools {

void add_format_option(CLI::App& command, TraceOutput& output) {
  command
      .add_option("--format", output.format,
                  "csv or native; without it, names in .csv and .csv.gz (or .CSV) mean csv, and "
                  "all others, also .txt and -, native")
      ->check(CLI::IsMember({"csv", "native"}));
}

TraceFormat choose_format(const TraceOutput& output) {
  if (!output.format.empty()) {
    return output.format == "csv" ? TraceFormat::kCsv : TraceFormat::kNative;
  }
  const bool is_csv = has_suffix(output.path, ".csv") || has_suffix(output.path, ".csv.gz");
  return is_csv ? TraceFormat::kCsv : TraceFormat::kNative;
}

Status check_output(const TraceOutput& output) {
  const bool is_native = choose_format(output) == TraceFormat::kNative;
  if (!is_native || output.path != kStandardStream || ::isatty(STDOUT_FILENO) != 1) {
    return Status::ok();
  }
  return Status(StatusCode::kInvalidArgument,
                "the native format is binary and not written to a terminal; add --format csv, or "
                "redirect the output");
}

std::string describe_written(const TraceOutput& output, std::uint64_t events,
                             const TraceFileWriter& writer) {
  const bool is_csv = choose_format(output) == TraceFormat::kCsv;
  return format_count(events) + " events written as " + (is_csv ? "csv" : "native") + ", " +
         format_count(writer.written_bytes()) + " bytes";
}

void print_summary(const TraceOutput& output, const std::string& text) {
  const bool is_standard = output.path == kStandardStream;
  std::fprintf(stderr, "%s: %s\n", is_standard ? "standard output" : output.path.c_str(),
               text.c_str());
}

}  // namespace quarry::tools
