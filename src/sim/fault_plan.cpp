// SPDX-License-Identifier: Apache-2.0
#include "sim/fault_plan.hpp"

#include <utility>

#include "base/check.hpp"

namespace quarry::sim {

void FaultPlan::fail_kth(std::optional<DriverEntry> entry, std::uint64_t k, DriverCode code) {
  QUARRY_CHECK(k > 0);
  faults_.push_back({entry, k, nullptr, code});
}

void FaultPlan::fail_if(DriverEntry entry, std::function<bool(Bytes)> predicate, DriverCode code) {
  faults_.push_back({entry, 0, std::move(predicate), code});
}

DriverCode FaultPlan::decide(DriverEntry entry, Bytes size) {
  DriverCode code = DriverCode::kSuccess;
  // Every fault sees every call, so that each counts on its own.
  for (Fault& fault : faults_) {
    if (applies(fault, entry, size) && code == DriverCode::kSuccess) code = fault.code;
  }
  std::erase_if(faults_, [](const Fault& f) { return !f.predicate && f.calls_left == 0; });
  if (code != DriverCode::kSuccess) ++injected_;
  return code;
}

bool FaultPlan::applies(Fault& fault, DriverEntry entry, Bytes size) {
  if (fault.entry && *fault.entry != entry) return false;
  if (fault.predicate) return fault.predicate(size);
  return --fault.calls_left == 0;
}

}  // namespace quarry::sim
