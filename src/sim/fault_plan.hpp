// SPDX-License-Identifier: Apache-2.0
// Which driver calls are to fail, and with what. It only decides; a failed call has no effect.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "driver/driver_types.hpp"

namespace quarry::sim {

class FaultPlan {
 public:
  // Without an entry calls of every entry count.
  void fail_kth(std::optional<DriverEntry> entry, std::uint64_t k, DriverCode code);
  void fail_if(DriverEntry entry, std::function<bool(Bytes)> predicate, DriverCode code);
  void clear() { faults_.clear(); }
  bool is_empty() const noexcept { return faults_.empty(); }

  // One call of `entry` is being made. kSuccess: let it through.
  DriverCode decide(DriverEntry entry, Bytes size);
  std::uint64_t injected_count() const noexcept { return injected_; }

 private:
  struct Fault {
    std::optional<DriverEntry> entry;
    std::uint64_t calls_left = 0;  // 1: the next one fails; used without a predicate
    std::function<bool(Bytes)> predicate;
    DriverCode code{};
  };
  static bool applies(Fault& fault, DriverEntry entry, Bytes size);

  std::vector<Fault> faults_;
  std::uint64_t injected_ = 0;
};

}  // namespace quarry::sim
