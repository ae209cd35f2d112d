// SPDX-License-Identifier: Apache-2.0
// `quarry convert`: rewrites a trace in another format. Keeps every row as it is, also where rows
// make no sense together; replay is what judges that.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "tools/commands.hpp"
#include "tools/number_text.hpp"
#include "tools/trace_file.hpp"

namespace quarry::tools {
namespace {

constexpr std::size_t kBatchEvents = 4096;

struct ConvertOptions {
  std::string input;
  std::string output;
  std::string format;  // empty: by the output's name
};

TraceFormat choose_format(const ConvertOptions& options) {
  if (!options.format.empty()) {
    return options.format == "csv" ? TraceFormat::kCsv : TraceFormat::kNative;
  }
  const bool is_csv = has_suffix(options.output, ".csv") || has_suffix(options.output, ".csv.gz");
  return is_csv ? TraceFormat::kCsv : TraceFormat::kNative;
}

Status convert(const ConvertOptions& options, std::string& summary) {
  const TraceFormat format = choose_format(options);
  const bool is_csv = format == TraceFormat::kCsv;
  if (!is_csv && options.output == kStandardStream && ::isatty(STDOUT_FILENO) == 1) {
    return Status(
        StatusCode::kInvalidArgument,
        "the native format is binary and not written to a terminal; add --format csv, or "
        "redirect the output");
  }
  Result<std::unique_ptr<TraceFile>> file = TraceFile::open(options.input, true);
  if (!file.is_ok()) return std::move(file).status();
  Result<std::unique_ptr<TraceReader>> reader = file.value()->rewind();
  if (!reader.is_ok()) return std::move(reader).status();
  Result<std::unique_ptr<TraceFileWriter>> writer =
      TraceFileWriter::create(options.output, format);
  if (!writer.is_ok()) return std::move(writer).status();

  std::vector<TraceEvent> events(kBatchEvents);
  std::uint64_t event_count = 0;
  for (;;) {
    Result<std::size_t> count = reader.value()->read(events);
    if (!count.is_ok()) return std::move(count).status();
    if (count.value() == 0) break;
    event_count += count.value();
    if (Status status = writer.value()->write({events.data(), count.value()}); !status.is_ok()) {
      return status;
    }
  }
  if (Status status = writer.value()->finish(); !status.is_ok()) return status;
  summary = format_count(event_count) + " events written as " + (is_csv ? "csv" : "native") +
            ", " + format_count(writer.value()->written_bytes()) + " bytes";
  return Status::ok();
}

int run_convert(const ConvertOptions& options) {
  std::string summary;
  Status status = convert(options, summary);
  if (!status.is_ok()) {
    print_error("convert", status.message());
    return kExitFailure;
  }
  const bool is_standard = options.output == kStandardStream;
  std::fprintf(stderr, "%s: %s\n", is_standard ? "standard output" : options.output.c_str(),
               summary.c_str());
  return kExitSuccess;
}

}  // namespace

void add_convert_command(CLI::App& app, int& exit_code) {
  CLI::App* const command =
      app.add_subcommand("convert", "Rewrite a trace as CSV or in the compact native format");
  auto options = std::make_shared<ConvertOptions>();
  command
      ->add_option("IN", options->input,
                   "Trace to read, - for standard input; its format is told by its content, "
                   "gzip included")
      ->required();
  command
      ->add_option("OUT", options->output,
                   "File to write, - for standard output; gzip'd if it ends in .gz")
      ->required();
  command
      ->add_option("--format", options->format,
                   "csv or native; without it, names in .csv and .csv.gz (or .CSV) mean csv, and "
                   "all others, also .txt and -, native")
      ->check(CLI::IsMember({"csv", "native"}));
  command->footer(
      "Examples:\n"
      "  quarry convert run.csv.gz run.qtrace        # smaller, and faster to read\n"
      "  quarry convert run.qtrace - --format csv    # to look at\n"
      "Exit code: 0 if the trace was written, 1 if not, 2 for a wrong command line.\n"
      "docs/trace-format.md describes the formats.");
  command->callback([options, &exit_code] { exit_code = run_convert(*options); });
}

}  // namespace quarry::tools
