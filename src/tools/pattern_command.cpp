// SPDX-License-Identifier: Apache-2.0
// `quarry pattern`: one subcommand for each pattern, whose options are its table of knobs. What a
// pattern is, and how a trace comes of it, is src/patterns.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <utility>

#include "patterns/pattern.hpp"
#include "tools/commands.hpp"
#include "tools/number_text.hpp"
#include "tools/option_check.hpp"
#include "tools/trace_output.hpp"

namespace quarry::tools {
namespace {

using patterns::Knob;
using patterns::KnobValues;
using patterns::Pattern;

struct PatternCommandLine {
  std::map<std::string, std::string> knobs;  // name and text, of those that were given
  std::string seed = "0";
  std::string request_file;
  TraceOutput output;
};

Result<std::vector<patterns::Request>> read_request_file(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  // A folder opens, and then refuses to be read; an empty file leaves no cause behind.
  if (!file.is_open() || (text.fail() && errno != 0)) {
    return Status(StatusCode::kInvalidArgument,
                  path + ": cannot read: " + std::strerror(errno != 0 ? errno : ENOENT));
  }
  return patterns::parse_requests(text.str(), path);
}

Status read_command_line(const PatternCommandLine& line, patterns::PatternInput& input,
                         std::uint64_t& seed) {
  for (const auto& [name, text] : line.knobs) {
    if (Status status = input.knobs.set(name, text); !status.is_ok()) return status;
  }
  const Result<std::uint64_t> number =
      parse_whole_number(line.seed, 0, std::numeric_limits<std::uint64_t>::max());
  if (!number.is_ok()) {
    return Status(number.code(), "--seed: " + std::string(number.status().message()));
  }
  seed = number.value();
  return Status::ok();
}

Status write_trace(const TraceOutput& output, const patterns::PatternTrace& trace) {
  Result<std::unique_ptr<TraceFileWriter>> writer =
      TraceFileWriter::create(output.path, choose_format(output));
  if (!writer.is_ok()) return std::move(writer).status();
  if (Status status = writer.value()->write(trace.events); !status.is_ok()) return status;
  if (Status status = writer.value()->finish(); !status.is_ok()) return status;
  print_summary(output, describe_written(output, trace.events.size(), *writer.value()));
  return Status::ok();
}

int fail(const Pattern& pattern, const Status& status, int exit_code) {
  print_error("pattern " + std::string(pattern.name), status.message());
  return exit_code;
}

int run_pattern(const Pattern& pattern, const PatternCommandLine& line) {
  patterns::PatternInput input{patterns::make_knob_values(pattern), {}};
  std::uint64_t seed = 0;
  if (Status status = read_command_line(line, input, seed); !status.is_ok()) {
    return fail(pattern, status, kExitUsage);
  }
  if (Status status = check_output(line.output); !status.is_ok()) {
    return fail(pattern, status, kExitFailure);
  }
  if (!line.request_file.empty()) {
    Result<std::vector<patterns::Request>> requests = read_request_file(line.request_file);
    if (!requests.is_ok()) return fail(pattern, requests.status(), kExitFailure);
    input.requests = std::move(requests).value();
  }
  const Result<patterns::PatternTrace> trace = patterns::make_trace(pattern, input, seed);
  if (!trace.is_ok()) return fail(pattern, trace.status(), kExitUsage);
  if (Status status = write_trace(line.output, trace.value()); !status.is_ok()) {
    return fail(pattern, status, kExitFailure);
  }
  return kExitSuccess;
}

void add_knob(CLI::App& command, const Knob& knob, PatternCommandLine& line) {
  const std::string name(knob.name);
  const std::string unit = knob.unit.empty() ? "" : fmt::format(", in {}", knob.unit);
  command
      .add_option_function<std::string>(
          "--" + name, [&line, name](const std::string& text) { line.knobs[name] = text; },
          fmt::format("{}{}: {}. Default: {}", knob.text, unit, describe_allowed(knob),
                      describe_default(knob)))
      ->type_name(knob.choices.empty() ? "N" : "WORD")
      ->check(refuse_empty());
}

void add_pattern(CLI::App& parent, const Pattern& pattern, int& exit_code) {
  CLI::App* const command =
      parent.add_subcommand(std::string(pattern.name), std::string(pattern.summary));
  auto line = std::make_shared<PatternCommandLine>();
  command
      ->add_option("-o,--output", line->output.path,
                   "Trace to write, - for standard output; gzip'd if it ends in .gz")
      ->required()
      ->check(refuse_empty());
  add_format_option(*command, line->output);
  command->add_option("--seed", line->seed, "Another number gives another trace. Default: 0")
      ->type_name("N")
      ->check(refuse_empty());
  if (pattern.takes_requests) {
    command
        ->add_option("--request-file", line->request_file,
                     "CSV with the header " + std::string(patterns::kRequestHeader) +
                         ", a request a line, in the order of arrival. Without it requests are "
                         "made at random")
        ->check(refuse_empty());
  }
  const KnobValues values = patterns::make_knob_values(pattern);
  for (const Knob& knob : values.knobs())
    add_knob(*command, knob, *line);
  command->footer(fmt::format(
      "At the end live: {}.\n"
      "Exit code: 0 if the trace was written, 1 if not, 2 for a wrong command line or knobs that "
      "do\nnot go together. docs/patterns.md describes the patterns.",
      pattern.at_end));
  command->callback([&pattern, line, &exit_code] { exit_code = run_pattern(pattern, *line); });
}

std::string list_all() {
  std::size_t width = 0;
  for (const Pattern* const pattern : patterns::list_patterns())
    width = std::max(width, pattern->name.size());
  std::string text;
  for (const Pattern* const pattern : patterns::list_patterns())
    text += fmt::format("{:<{}}  {}\n", pattern->name, width, pattern->summary);
  text.pop_back();  // whoever prints it adds a line end
  return text;
}

}  // namespace

void add_pattern_command(CLI::App& app, int& exit_code) {
  CLI::App* const command = app.add_subcommand(
      "pattern",
      "Write a trace of an invented workload: a server, an image model, a training job");
  command->add_flag_callback(
      "--list", [] { throw CLI::CallForVersion(list_all(), 0); },
      "Print the patterns, a line each, and exit");
  command->require_subcommand(1);
  for (const Pattern* const pattern : patterns::list_patterns())
    add_pattern(*command, *pattern, exit_code);
  command->footer(
      "Examples:\n"
      "  quarry pattern --list\n"
      "  quarry pattern unet --help                                 # its knobs\n"
      "  quarry pattern moe --experts 64 --seed 7 -o moe.qtrace.gz\n"
      "  quarry pattern kv_concat -o kv.csv && quarry replay kv.csv\n"
      "docs/patterns.md describes the patterns.");
}

}  // namespace quarry::tools
