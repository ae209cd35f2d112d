// SPDX-License-Identifier: Apache-2.0
// `quarry replay`: its options, and the walk over traces and configurations. The replay itself is
// Replayer's; how results are written is replay_outcome.hpp's.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tools/commands.hpp"
#include "tools/number_text.hpp"
#include "tools/option_check.hpp"
#include "tools/progress_bar.hpp"
#include "tools/replay_plan.hpp"
#include "tools/standard_output.hpp"
#include "tools/trace_file.hpp"

namespace quarry::tools {
namespace {

constexpr std::size_t kBatchEvents = 4096;

// One pass over the trace.
Result<ReplayResult> replay_once(TraceFile& file, const ReplayOptions& options,
                                 const std::string& label, ProgressBar& progress) {
  Result<std::unique_ptr<TraceReader>> reader = file.rewind();
  if (!reader.is_ok()) return std::move(reader).status();
  Result<std::unique_ptr<Replayer>> replayer = Replayer::create(options);
  if (!replayer.is_ok()) return std::move(replayer).status();
  std::vector<TraceEvent> events(kBatchEvents);
  for (;;) {
    Result<std::size_t> count = reader.value()->read(events);
    if (!count.is_ok()) return std::move(count).status();
    if (count.value() == 0) break;
    Status status = replayer.value()->replay({events.data(), count.value()});
    if (!status.is_ok()) {
      const std::uint64_t place = replayer.value()->event_count() - 1;
      return Status(status.code(),
                    reader.value()->describe_place(place) + ": " + std::string(status.message()));
    }
    progress.show(label, file.get_progress());
  }
  Result<ReplayResult> result = replayer.value()->finish();
  if (result.is_ok()) return result;
  return Status(result.code(),
                reader.value()->name() + ": " + std::string(result.status().message()));
}

// All passes: the figures of the last, the median of the speeds.
Status replay_repeatedly(TraceFile& file, const ReplayOptions& options, std::uint64_t repeat,
                         ProgressBar& progress, ReplayOutcome& outcome) {
  std::vector<double> speeds;
  for (std::uint64_t pass = 0; pass < repeat; ++pass) {
    Result<ReplayResult> result =
        replay_once(file, options, make_trace_label(outcome.trace), progress);
    if (!result.is_ok()) return std::move(result).status();
    outcome.result = std::move(result).value();
    speeds.push_back(outcome.result.calculate_events_per_second());
  }
  const auto middle = speeds.begin() + static_cast<std::ptrdiff_t>(speeds.size() / 2);
  std::nth_element(speeds.begin(), middle, speeds.end());
  outcome.events_per_second = *middle;
  return Status::ok();
}

void report(const ReplayOutcome& outcome, const ReportStyle& style) {
  const std::string label = make_trace_label(outcome.trace);
  if (!outcome.error.empty()) print_error("replay", outcome.error);
  const ReplayResult& result = outcome.result;
  if (!result.first_hazard.empty()) {
    print_error("replay", label + ": first hazard: " + result.first_hazard);
  }
  if (result.touch.has_value() && result.touch->wrong_words != 0) {
    print_error("replay", label + ": " + format_count(result.touch->wrong_words) +
                              " wrong words, first in the block of allocation " +
                              format_count(result.touch->first_wrong_alloc + 1));
  }
  if (!result.segment_difference.empty()) {
    print_error("replay", label + ": " + result.segment_difference);
  }
  if (style.has_segments && outcome.error.empty() && !result.has_recorded_segments) {
    print_error("replay", label + ": no S rows to compare segments with");
  }
}

// Appends to `outcomes`. Fails only where the output cannot be written.
Status replay_trace(const std::string& trace, const ReplayCommandLine& line,
                    const ReplayPlan& plan, ProgressBar& progress,
                    std::vector<ReplayOutcome>& outcomes) {
  const bool is_read_once = line.confs.size() == 1 && plan.repeat == 1;
  Result<std::unique_ptr<TraceFile>> file = TraceFile::open(trace, is_read_once);
  for (std::size_t i = 0; i < line.confs.size(); ++i) {
    ReplayOutcome outcome{trace, line.confs[i], {}, {}, 0.0, {}};
    ReplayOptions options = plan.options;
    options.config = plan.configs[i];
    if (file.is_ok()) {
      Status status = replay_repeatedly(*file.value(), options, plan.repeat, progress, outcome);
      outcome.error = status.message();
    } else {
      outcome.error = file.status().message();
    }
    outcome.pytorch_reserved_bytes = plan.reference.find(make_trace_label(trace));
    progress.clear();
    report(outcome, plan.style);
    outcomes.push_back(std::move(outcome));
    if (!line.json) continue;
    Status status = write_standard_output(format_json(outcomes.back(), plan.style) + "\n");
    if (!status.is_ok()) return status;
  }
  return Status::ok();
}

int fail_output(const Status& status) {
  print_error("replay", status.message());
  return kExitFailure;
}

int run_replay(ReplayCommandLine line) {
  if (line.confs.empty()) line.confs.emplace_back(kDefaultReplayConf);
  ReplayPlan plan;
  if (Status status = make_replay_plan(line, plan); !status.is_ok()) {
    print_error("replay", status.message());
    return kExitUsage;
  }
  // A real device that cannot be had fails once, not for every trace.
  if (Result<ReplayWork> work = make_replay_work(plan.options); !work.is_ok()) {
    print_error("replay", "--driver cuda: " + std::string(work.status().message()));
    return kExitFailure;
  }
  ProgressBar progress;
  std::vector<ReplayOutcome> outcomes;
  for (const std::string& trace : line.traces) {
    Status status = replay_trace(trace, line, plan, progress, outcomes);
    if (!status.is_ok()) return fail_output(status);
  }
  if (!line.json) {
    Status status = write_standard_output(format_table(outcomes, plan.style));
    if (!status.is_ok()) return fail_output(status);
  }
  const auto has_failed = [](const ReplayOutcome& outcome) {
    const auto& touch = outcome.result.touch;
    return !outcome.error.empty() || (touch.has_value() && touch->wrong_words != 0);
  };
  return std::any_of(outcomes.begin(), outcomes.end(), has_failed) ? kExitFailure : kExitSuccess;
}

void add_options(CLI::App& command, ReplayCommandLine& line) {
  command
      .add_option("TRACE", line.traces,
                  "Traces, - for standard input. Format and compression are told by content")
      ->required();
  command
      .add_option("--conf", line.confs,
                  std::string("Configuration of the allocator, in the grammar of QUARRY_CONF "
                              "(quarry --help-conf), which is not read; several are compared. "
                              "Default: ") +
                      kDefaultReplayConf + ", which decides as PyTorch does")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      // Otherwise a trace after it would count as one more configuration.
      ->allow_extra_args(false);
  command
      .add_option("--driver", line.driver,
                  "sim or cuda: on a simulated device, or on device 0 of the real driver, as fast "
                  "as it goes. Default: sim")
      ->check(CLI::IsMember({"sim", "cuda"}));
  command.add_flag("--touch", line.touch,
                   "With --driver cuda: kernels fill every block and check it before it is freed; "
                   "wrong words are a failure");
  command.add_flag("--in-step", line.in_step,
                   "With --driver cuda: wait for the GPU after each free of a block that other "
                   "streams used. The figures are then those of a simulated device without lag");
  command
      .add_option("--device-memory", line.device_memory,
                  "Memory of the simulated device, as 85899345920, 80G, 80GiB (both 2^30) or "
                  "80GB (10^9); 2M to 16T. Default: 150109880320, an H200")
      ->check(refuse_empty());
  command
      .add_option("--gpu-lag-us", line.gpu_lag_us,
                  "Microseconds from a row to the end of the GPU work that it stands for. "
                  "Default: 0, at once")
      ->check(refuse_empty());
  command
      .add_option("--oracle", line.oracle,
                  "on or off: look for memory that is handed out while an earlier use may still "
                  "run. Off is faster. Default: on")
      ->check(CLI::IsMember({"on", "off"}));
  command.add_flag("--validate", line.validate,
                   "Prove the allocator's invariants every 1,000 events and at the end");
  command.add_flag("--segments", line.segments,
                   "Compare the sequence of segment sizes with the trace's S rows");
  command
      .add_option("--reference", line.reference,
                  "CSV file with columns trace and pytorch_peak_reserved_bytes, to show beside "
                  "ours")
      ->check(refuse_empty());
  command.add_option("--repeat", line.repeat,
                     "Replay each so often, 1 to 1000 times, and give the median of the speeds. "
                     "Default: 1");
  command.add_flag("--json", line.json,
                   "One JSON object a line for each trace and configuration, no table");
}

}  // namespace

void add_replay_command(CLI::App& app, int& exit_code) {
  CLI::App* const command = app.add_subcommand(
      "replay", "Replay recorded traces through the allocator on a simulated or a real device");
  auto line = std::make_shared<ReplayCommandLine>();
  add_options(*command, *line);
  command->footer(
      "Columns: the trace's own peak (living requests, each rounded up to 512 bytes); the\n"
      "allocator's peaks of allocated, active (allocated, or freed and still in use on another\n"
      "stream) and reserved memory; ratio = reserved / trace peak; driver calls and their "
      "modelled\n"
      "time; speed of the replay loop alone (looking up ids, advancing time, calling the\n"
      "allocator; not reading the file); hazards; requests that ran out of memory.\n\n"
      "Examples:\n"
      "  quarry replay run.csv.gz\n"
      "  quarry replay run.csv.gz --conf segments:plain --conf max_split_size_mb:256\n"
      "  quarry replay run.csv.gz --device-memory 80GiB --gpu-lag-us 2000 --json\n"
      "  quarry replay run.csv.gz --oracle off --repeat 5      # how fast is the allocator?\n"
      "  quarry replay run.csv.gz --driver cuda --touch         # on the GPU, checking every "
      "word\n"
      "Exit code: 0 if all replays ran (out of memory is a result), 1 if one failed or a word "
      "was\n"
      "wrong, 2 for a wrong command line. docs/trace-format.md describes traces and the JSON.");
  command->callback([line, &exit_code] { exit_code = run_replay(*line); });
}

}  // namespace quarry::tools
