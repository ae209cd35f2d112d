// SPDX-License-Identifier: Apache-2.0
// Makes a failing case small: first fewer operations (delta debugging, from halves down to single
// ones), then simpler ones, until neither helps. Every candidate runs in a child of its own and
// must fail in the same way.
#include <algorithm>

#include "tests/model/runner.hpp"

namespace quarry::model {
namespace {

// Well above what a list of this size takes, far below the first run's patience.
constexpr unsigned kHangSecondsOfCandidate = 5;

class Shrinker {
 public:
  // Operations after the failure are left out at once.
  Shrinker(const Case& failing, const Outcome& outcome)
      : small_(failing), kind_(get_kind(outcome.failure)) {
    small_.operations.resize(std::min(outcome.performed, small_.operations.size()));
  }

  bool does_fail(const Case& candidate) const {
    const Outcome outcome = run_isolated(candidate, kHangSecondsOfCandidate);
    return !outcome.has_passed() && get_kind(outcome.failure) == kind_;
  }
  void shrink_list();
  void simplify_options();
  bool simplify_operations();
  const Case& small() const { return small_; }

 private:
  bool leave_out(std::size_t length);
  // Takes the changed case if it fails too.
  template <class Change>
  bool attempt(Change change) {
    Case candidate = small_;
    change(candidate);
    if (!does_fail(candidate)) return false;
    small_ = std::move(candidate);
    return true;
  }

  Case small_;
  const std::string kind_;
};

// Runs of `length` operations, wherever the rest still fails. True if any went.
bool Shrinker::leave_out(std::size_t length) {
  bool has_changed = false;
  for (std::size_t end = small_.operations.size(); end > 0;) {
    const std::size_t begin = end > length ? end - length : 0;
    has_changed |= attempt([begin, end](Case& candidate) {
      const auto first = candidate.operations.begin();
      candidate.operations.erase(first + static_cast<std::ptrdiff_t>(begin),
                                 first + static_cast<std::ptrdiff_t>(end));
    });
    end = begin;
  }
  return has_changed;
}

void Shrinker::shrink_list() {
  for (std::size_t length = small_.operations.size() / 2; length > 1; length /= 2)
    leave_out(length);
  while (leave_out(1)) {
  }
}

void Shrinker::simplify_options() {
  const CaseOptions usual;
  attempt([](Case& candidate) { candidate.options.device_count = 1; });
  attempt([&](Case& candidate) { candidate.options.physical_bytes = usual.physical_bytes; });
  attempt([](Case& candidate) { candidate.options.calls_take_time = false; });
  attempt([](Case& candidate) { candidate.options.reuse_addresses = true; });
  attempt([](Case& candidate) { candidate.options.reuse_stream_handles = true; });
}

// Candidates that say the same in a simpler way, one change each.
std::vector<Operation> simplify(const Operation& operation) {
  std::vector<Operation> simpler;
  const auto add = [&](auto copy, auto change) {
    const std::string before = format(copy);
    change(copy);
    if (format(copy) != before) simpler.push_back(copy);
  };
  std::visit(
      [&](const auto& op) {
        if constexpr (requires { op.caller; }) add(op, [](auto& o) { o.caller = Caller::kMain; });
        if constexpr (requires { op.work_ns; }) add(op, [](auto& o) { o.work_ns = 0; });
        if constexpr (requires { op.alignment; }) add(op, [](auto& o) { o.alignment = 512; });
        if constexpr (requires { op.stream; }) add(op, [](auto& o) { o.stream = 0; });
        if constexpr (requires {
                        op.alignment;
                        op.bytes;
                      }) {
          for (const Bytes bytes : {Bytes{512}, 1_MiB, 2_MiB, 10_MiB, 20_MiB})
            add(op, [bytes](auto& o) { o.bytes = std::min(o.bytes, bytes); });
        }
      },
      operation);
  return simpler;
}

bool Shrinker::simplify_operations() {
  bool has_changed = false;
  for (std::size_t i = 0; i < small_.operations.size(); ++i) {
    for (const Operation& simpler : simplify(small_.operations[i])) {
      if (!attempt([&](Case& candidate) { candidate.operations[i] = simpler; })) continue;
      has_changed = true;
      break;
    }
  }
  return has_changed;
}

}  // namespace

Case shrink(const Case& failing) {
  const Outcome outcome = run_isolated(failing);
  if (outcome.has_passed()) return failing;
  Shrinker shrinker(failing, outcome);
  if (!shrinker.does_fail(shrinker.small())) return failing;
  shrinker.shrink_list();
  shrinker.simplify_options();
  // A simplification may make others possible; each makes some field smaller, so this ends.
  while (shrinker.simplify_operations()) {
  }
  shrinker.shrink_list();
  return shrinker.small();
}

}  // namespace quarry::model
