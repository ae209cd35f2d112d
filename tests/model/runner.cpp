// SPDX-License-Identifier: Apache-2.0
#include "tests/model/runner.hpp"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <new>

#include "base/check.hpp"
#include "tests/model/state.hpp"

namespace quarry::model {
namespace {

constexpr std::size_t kValidateEvery = 1000;

// Filled in as the run goes, because a broken invariant ends it without a word; of fixed size,
// because a child leaves it in memory that its parent sees.
struct Report {
  std::size_t performed = 0;
  bool has_ended = false;
  Tally tally;
  std::array<char, 4000> failure{};
};

void run_case(const Case& experiment, Report& report) {
  State state(experiment.options);
  for (const Operation& operation : experiment.operations) {
    ++report.performed;
    std::visit([&state](const auto& op) { op.perform(state); }, operation);
    state.check();
    if (state.has_failed()) break;
    if (report.performed % kValidateEvery == 0) state.allocator().validate();
  }
  if (!state.has_failed()) state.finish();
  report.tally = state.tally;
  report.tally.operations = report.performed;
  report.tally.driver_calls = state.sim().call_count();
  std::snprintf(report.failure.data(), report.failure.size(), "%s", state.failure().c_str());
  report.has_ended = true;
}

Outcome make_outcome(const Report& report) {
  return {report.failure.data(), report.performed, report.tally};
}

// What the child said before it ended without having finished.
std::string describe_death(int status, std::FILE* errors) {
  std::string text = WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM
                         ? "the process hung"
                         : "the process ended (status " + std::to_string(status) + ")";
  std::rewind(errors);
  std::array<char, 1500> said{};
  const std::size_t bytes = std::fread(said.data(), 1, said.size(), errors);
  return text + ": " + std::string(said.data(), bytes);
}

}  // namespace

Outcome run(const Case& experiment) {
  Report report;
  run_case(experiment, report);
  return make_outcome(report);
}

Outcome run_isolated(const Case& experiment, unsigned hang_seconds) {
  void* const shared =
      mmap(nullptr, sizeof(Report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  QUARRY_CHECK(shared != MAP_FAILED);
  Report& report = *new (shared) Report;
  std::FILE* const errors = std::tmpfile();
  QUARRY_CHECK(errors != nullptr);
  const pid_t child = fork();
  QUARRY_CHECK_GE(child, 0);
  if (child == 0) {
    dup2(fileno(errors), STDERR_FILENO);
    alarm(hang_seconds);
    run_case(experiment, report);
    _exit(0);
  }
  int status = 0;
  QUARRY_CHECK_EQ(waitpid(child, &status, 0), child);
  Outcome outcome = make_outcome(report);
  const bool has_ended = report.has_ended && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  if (!has_ended) outcome.failure = describe_death(status, errors);
  static_cast<void>(std::fclose(errors));
  munmap(shared, sizeof(Report));
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
