// SPDX-License-Identifier: Apache-2.0
#include "tests/model/fault_sweep.hpp"

#include <algorithm>
#include <cstdio>

#include "tests/model/isolate.hpp"
#include "tests/model/state.hpp"

namespace quarry::model {
namespace {

constexpr std::size_t kOperationsAfter = 6;
constexpr std::size_t kFailuresKept = 5;
constexpr unsigned kHangSeconds = 60;

using Counts = std::array<std::uint64_t, kDriverEntryCount>;

struct Report {
  bool has_request_failed = false;
  std::array<char, 1000> failure{};
};

// Which call of the next operation fails, and how.
struct Fault {
  DriverEntry entry{};
  std::uint64_t k = 0;
  DriverCode code{};
};

std::string describe(const Fault& fault, const std::string& where) {
  return std::string(get_name(fault.entry)) + " call " + std::to_string(fault.k) + " of " + where +
         " failing with " + quarry::describe(fault.code);
}

Counts get_counts(const State& state) {
  Counts counts{};
  for (int entry = 0; entry < kDriverEntryCount; ++entry)
    counts[static_cast<std::size_t>(entry)] =
        state.sim().call_count(static_cast<DriverEntry>(entry));
  return counts;
}

// What a request that fails may change, and nothing else:
// - fences may have been collected: active and requested figures fall;
// - vacant segments may have been given back: reserved figures and segments fall;
// - counters of attempts, waits and errors rise;
// - of expandable segments there may be another one, all holes.
std::string compare_failed(const DeviceStats& before, const DeviceStats& after,
                           bool is_expandable) {
  const auto is_same = [](const FamilyStat& a, const FamilyStat& b) {
    return a.all.current == b.all.current && a.all.peak == b.all.peak &&
           a.all.allocated == b.all.allocated && a.all.freed == b.all.freed;
  };
  const auto has_risen = [](const FamilyStat& a, const FamilyStat& b) {
    return b.all.current > a.all.current || b.all.allocated != a.all.allocated;
  };
  if (!is_same(before.allocation, after.allocation)) return "allocation changed";
  if (!is_same(before.allocated_bytes, after.allocated_bytes)) return "allocated_bytes changed";
  if (before.allocator_slack != after.allocator_slack) return "allocator_slack changed";
  if (before.oversize_allocations.current != after.oversize_allocations.current) {
    return "oversize_allocations changed";
  }
  if (has_risen(before.active, after.active)) return "active rose";
  if (has_risen(before.active_bytes, after.active_bytes)) return "active_bytes rose";
  if (has_risen(before.requested_bytes, after.requested_bytes)) return "requested_bytes rose";
  if (has_risen(before.reserved_bytes, after.reserved_bytes)) return "reserved_bytes rose";
  if (before.num_device_alloc != after.num_device_alloc) return "num_device_alloc changed";
  if (before.extents_created != after.extents_created) return "extents_created changed";
  if (before.extents_moved != after.extents_moved) return "extents_moved changed";
  if (is_expandable) return {};
  if (has_risen(before.segment, after.segment)) return "segment rose";
  const std::int64_t given_back = after.num_device_free - before.num_device_free;
  if (before.segment.all.current - after.segment.all.current != given_back) {
    return "segments are not balanced by num_device_free";
  }
  return {};
}

// Performs an operation of which one driver call fails, and says what that broke.
void perform_with_fault(State& state, const Operation& operation, Report& report) {
  const auto* const request = std::get_if<Allocate>(&operation);
  const bool is_request = request != nullptr && !state.block(request->slot).has_value();
  const DeviceId device = request != nullptr ? state.stream(request->stream).ref.device : 0;
  const DeviceStats before = state.stats(device);
  const DeviceLedger& own = state.ledger_of(device);
  const std::int64_t held_before = own.count;
  const std::int64_t risen_before = own.risen_bytes;
  perform(operation, state);
  const bool is_served = own.count != held_before || own.risen_bytes != risen_before;
  if (!is_request || state.block(request->slot).has_value() || is_served) return;
  report.has_request_failed = true;
  const std::string difference =
      compare_failed(before, state.stats(device), state.options().expandable);
  if (!difference.empty()) state.fail("a failed request: " + difference);
}

void validate(State& state) {
  state.check();
  if (!state.has_failed()) state.allocator().validate();
}

// The operations after the one that fails work as always, and everything can be given back.
void go_on(State& state, std::span<const Operation> operations) {
  for (const Operation& operation : operations) {
    perform(operation, state);
    state.check();
  }
  if (!state.has_failed()) state.finish();
}

class Sweep {
 public:
  explicit Sweep(const Case& experiment) : experiment_(experiment), state_(experiment.options) {}

  SweepResult run(const std::vector<Counts>& calls);

 private:
  template <class Body>
  void try_faults(const Counts& calls, const std::string& where, Body body);
  void keep(const Fault& fault, const std::string& where, const std::string& failure);

  const Case& experiment_;
  State state_;
  Isolated<Report> isolated_;
  SweepResult result_;
};

void Sweep::keep(const Fault& fault, const std::string& where, const std::string& failure) {
  if (failure.empty() || result_.failures.size() >= kFailuresKept) return;
  result_.failures.push_back(describe(fault, where) + ": " + failure);
}

// `body` does, in a child, what makes these calls, after each in turn was told to fail.
template <class Body>
void Sweep::try_faults(const Counts& calls, const std::string& where, Body body) {
  for (int entry = 0; entry < kDriverEntryCount; ++entry) {
    Fault fault{static_cast<DriverEntry>(entry), 0, {}};
    for (fault.k = 1; fault.k <= calls[static_cast<std::size_t>(entry)]; ++fault.k) {
      for (const DriverCode code : get_codes(fault.entry)) {
        fault.code = code;
        const std::string end = isolated_.run(
            [&](Report& report) {
              state_.are_faults_possible = state_.may_captures_be_lost = true;
              state_.may_driver_hold_more = true;
              state_.sim().fail_call(fault.entry, fault.k, fault.code);
              body(report);
              std::snprintf(report.failure.data(), report.failure.size(), "%s",
                            state_.failure().c_str());
            },
            kHangSeconds);
        ++result_.tried[static_cast<std::size_t>(entry)];
        result_.failed_requests += isolated_.report().has_request_failed ? 1 : 0;
        keep(fault, where, end.empty() ? isolated_.report().failure.data() : end);
      }
    }
  }
}

SweepResult Sweep::run(const std::vector<Counts>& calls) {
  const std::span<const Operation> all(experiment_.operations);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::string where = "operation " + std::to_string(i) + " " + format(all[i]);
    try_faults(calls[i], where, [&](Report& report) {
      perform_with_fault(state_, all[i], report);
      validate(state_);
      state_.sim().clear_faults();
      state_.are_faults_possible = false;
      go_on(state_, all.subspan(i + 1, std::min(kOperationsAfter, all.size() - i - 1)));
    });
    if (!result_.failures.empty()) return result_;
    perform(all[i], state_);
  }
  // The end of the program, whose last calls destroy the events: nobody can try those again.
  try_faults(calls[all.size()], "the end", [&](Report&) { state_.finish(); });
  return result_;
}

// How many calls each operation makes, and the end of the program.
std::vector<Counts> count_calls(const Case& experiment) {
  State state(experiment.options);
  std::vector<Counts> calls;
  const auto count = [&](auto act) {
    const Counts before = get_counts(state);
    act();
    Counts after = get_counts(state);
    for (std::size_t i = 0; i < after.size(); ++i)
      after[i] -= before[i];
    calls.push_back(after);
  };
  for (const Operation& operation : experiment.operations)
    count([&] { perform(operation, state); });
  count([&] { state.finish(); });
  return calls;
}

}  // namespace

std::vector<DriverCode> get_codes(DriverEntry entry) {
  if (entry == DriverEntry::kRecordEvent) {
    return {DriverCode::kOutOfMemory, DriverCode::kUnknown, DriverCode::kNotPermitted};
  }
  return {DriverCode::kOutOfMemory, DriverCode::kUnknown};
}

SweepResult sweep_faults(const Case& experiment) {
  const std::vector<Counts> calls = count_calls(experiment);
  return Sweep(experiment).run(calls);
}

}  // namespace quarry::model
