// SPDX-License-Identifier: Apache-2.0
// quarry_policy_model: replays traces through models of expandable segments and prints a table.
// docs/recycling.md says what was learned with it.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bench/policy_model/policy_tables.hpp"

namespace quarry::policy_model {
namespace {

struct Command {
  std::vector<std::string> paths;
  std::string policy = "recycle";
  std::vector<std::uint64_t> lags_us = {0};
  bool is_sweep = false;
  RecyclingOptions recycling;
};

int run(const Command& command) {
  std::vector<PolicyTrace> traces;
  for (const std::string& path : command.paths) {
    Result<PolicyTrace> trace = read_policy_trace(path);
    if (!trace.is_ok()) {
      fmt::print(stderr, "quarry_policy_model: {}\n", trace.status().message());
      return 1;
    }
    traces.push_back(std::move(trace).value());
  }
  if (command.policy == "upstream_expandable") {
    print_upstream_table(traces);
  } else if (command.is_sweep) {
    print_sweep_table(traces, command.recycling, command.lags_us);
  } else {
    print_recycling_table(traces, command.recycling, command.lags_us);
  }
  return 0;
}

template <class Value>
void add_choice(CLI::App& app, const std::string& name, Value& value,
                const std::map<std::string, Value>& choices, const std::string& text) {
  std::vector<std::string> words;
  for (const auto& choice : choices)
    words.push_back(choice.first);
  const auto set = [&value, choices](const std::string& word) { value = choices.at(word); };
  app.add_option_function<std::string>(name, set, text)->check(CLI::IsMember(words));
}

void add_recycling_options(CLI::App& app, RecyclingOptions& options) {
  add_choice(app, "--recycle", options.recycle,
             {{"off", Recycle::kOff}, {"passed", Recycle::kPassed}, {"stream", Recycle::kStream}},
             "Which idle extents may move");
  app.add_option("--waits", options.allows_waits, "Device-side waits beyond the budget");
  app.add_option("--wait-first", options.waits_before_moving, "Rather wait than move");
  app.add_option("--slack", options.slack, "Part of the peak that may be reserved on top of it");
  app.add_option("--request-divisor", options.request_divisor, "Extents of request / this");
  app.add_option("--coarsen-at", options.coarsen_at, "Part of the time in moves; 0: never");
  app.add_option("--time-budget", options.time_budget,
                 "Part of the time in the driver from which the slack grows; 0: it does not");
  app.add_option("--most-slack", options.most_slack, "How far it grows");
  app.add_option("--extent-divisor", options.extents.divisor, "Extents of reserved / this");
  app.add_option("--extent-least", options.extents.least, "In bytes, a power of two")
      ->transform(CLI::AsSizeValue(false));
  app.add_option("--extent-most", options.extents.most, "In bytes, a power of two")
      ->transform(CLI::AsSizeValue(false));
  app.add_option("--small-range", options.has_small_range, "A sub-range for blocks up to 1 MiB");
  add_choice(app, "--fit", options.fit,
             {{"best", PieceFit::kBest}, {"lowest", PieceFit::kLowestAddress}}, "Hits");
  add_choice(app, "--tie", options.tie,
             {{"lowest", PlaceTie::kLowestAddress}, {"smallest-run", PlaceTie::kSmallestRun}},
             "Places that miss equally many pages");
  add_choice(app, "--victims", options.victims,
             {{"largest-run", VictimOrder::kLargestRun},
              {"smallest-run", VictimOrder::kSmallestRun},
              {"oldest", VictimOrder::kOldest},
              {"lowest", VictimOrder::kLowestAddress}},
             "Which extents move first");
  app.add_option("--half-life", options.half_life,
                 "Of the decayed peak, in multiples of the trace's peak; 0: none");
  app.add_option("--create-us", options.costs.create_us, "Cost of a creation");
  app.add_option("--move-us", options.costs.move_us, "Cost of a move");
}

}  // namespace
}  // namespace quarry::policy_model

int main(int argc, char** argv) {
  CLI::App app{"Replays traces through models of expandable segments."};
  quarry::policy_model::Command command;
  app.add_option("TRACE", command.paths, "Traces")->required();
  app.add_option("--policy", command.policy, "The model")
      ->check(CLI::IsMember({"upstream_expandable", "recycle"}));
  app.add_option("--lag-us", command.lags_us, "How far the host runs ahead; several: one row each")
      ->delimiter(',');
  app.add_flag("--sweep", command.is_sweep, "One row for each variation of the options");
  quarry::policy_model::add_recycling_options(app, command.recycling);
  CLI11_PARSE(app, argc, argv);
  return quarry::policy_model::run(command);
}
