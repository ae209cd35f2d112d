// SPDX-License-Identifier: Apache-2.0
// `quarry convert`: rewrites a trace in another format. Keeps every row as it is, also where rows
// make no sense together; replay is what judges that.
#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "tools/commands.hpp"
#include "tools/trace_file.hpp"
#include "tools/trace_output.hpp"

namespace quarry::tools {
namespace {

constexpr std::size_t kBatchEvents = 4096;

struct ConvertOptions {
  std::string input;
  TraceOutput output;
};

Status convert(const ConvertOptions& options, std::string& summary) {
  if (Status status = check_output(options.output); !status.is_ok()) return status;
  Result<std::unique_ptr<TraceFile>> file = TraceFile::open(options.input, true);
  if (!file.is_ok()) return std::move(file).status();
  Result<std::unique_ptr<TraceReader>> reader = file.value()->rewind();
  if (!reader.is_ok()) return std::move(reader).status();
  Result<std::unique_ptr<TraceFileWriter>> writer =
      TraceFileWriter::create(options.output.path, choose_format(options.output));
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
  summary = describe_written(options.output, event_count, *writer.value());
  return Status::ok();
}

int run_convert(const ConvertOptions& options) {
  std::string summary;
  Status status = convert(options, summary);
  if (!status.is_ok()) {
    print_error("convert", status.message());
    return kExitFailure;
  }
  print_summary(options.output, summary);
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
      ->add_option("OUT", options->output.path,
                   "File to write, - for standard output; gzip'd if it ends in .gz")
      ->required();
  add_format_option(*command, options->output);
  command->footer(
      "Examples:\n"
      "  quarry convert run.csv.gz run.qtrace        # smaller, and faster to read\n"
      "  quarry convert run.qtrace - --format csv    # to look at\n"
      "Exit code: 0 if the trace was written, 1 if not, 2 for a wrong command line.\n"
      "docs/trace-format.md describes the formats.");
  command->callback([options, &exit_code] { exit_code = run_convert(*options); });
}

}  // namespace quarry::tools
