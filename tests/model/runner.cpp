// SPDX-License-Identifier: Apache-2.0
#include "tests/model/runner.hpp"

#include <array>
#include <cstdio>

#include "tests/model/isolate.hpp"
#include "tests/model/state.hpp"

namespace quarry::model {
namespace {

constexpr std::size_t kValidateEvery = 1000;

// Filled in as the run goes, because a broken invariant ends it without a word.
struct Report {
  std::size_t performed = 0;
  Tally tally;
  std::array<char, 4000> failure{};
};

void run_case(const Case& experiment, Report& report) {
  State state(experiment.options);
  for (const Operation& operation : experiment.operations) {
    ++report.performed;
    perform(operation, state);
    state.check();
    if (state.has_failed()) break;
    if (report.performed % kValidateEvery == 0) state.allocator().validate();
  }
  if (!state.has_failed()) state.finish();
  report.tally = state.tally;
  report.tally.operations = report.performed;
  report.tally.driver_calls = state.sim().call_count();
  std::snprintf(report.failure.data(), report.failure.size(), "%s", state.failure().c_str());
}

Outcome make_outcome(const Report& report) {
  return {report.failure.data(), report.performed, report.tally};
}

}  // namespace

Outcome run(const Case& experiment) {
  Report report;
  run_case(experiment, report);
  return make_outcome(report);
}

Outcome run_isolated(const Case& experiment, unsigned hang_seconds) {
  Isolated<Report> isolated;
  const std::string end =
      isolated.run([&experiment](Report& report) { run_case(experiment, report); }, hang_seconds);
  Outcome outcome = make_outcome(isolated.report());
  if (!end.empty()) outcome.failure = end;
  return outcome;
}

std::string get_kind(const std::string& failure) {
  return failure.substr(0, failure.find_first_of(":("));
}

std::string explain(const Case& failing, const Outcome& outcome) {
  const Case small = shrink(failing);
  const Outcome again = run_isolated(small);
  return "after " + std::to_string(outcome.performed) + " operations: " + outcome.failure +
         "\nthe smallest case found (" + std::to_string(small.operations.size()) +
         " operations) fails with: " + again.failure + "\n" + format(small) + "\n";
}

}  // namespace quarry::model
