// SPDX-License-Identifier: Apache-2.0
// What driver calls cost, as measured on one H200 (driver 580, CUDA 13): per entry, and by size
// where size matters. Medians of an idle card; they say how configurations compare, not how long a
// run will take elsewhere.
#pragma once

#include <array>

#include "driver/driver_types.hpp"

namespace quarry::sim {

// What decides the cost of a call besides its entry.
struct CallSize {
  Bytes bytes = 0;              // of the extent, the mapping or the allocation
  std::uint64_t count = 1;      // mappings in the range; busy streams for record_context_event
  bool fits_open_page = false;  // a small plain allocation beside others
  bool has_failed = false;
};

std::uint64_t calculate_cost_ns(DriverEntry entry, const CallSize& size);

// Calls made and what they would have cost.
class CallLedger {
 public:
  void count(DriverEntry entry) noexcept {
    ++counts_[static_cast<int>(entry)];
    ++total_count_;
  }
  void charge(DriverEntry entry, std::uint64_t ns) noexcept {
    costs_ns_[static_cast<int>(entry)] += ns;
    total_ns_ += ns;
  }
  void reset() noexcept { *this = {}; }

  std::uint64_t count_of(DriverEntry entry) const { return counts_[static_cast<int>(entry)]; }
  std::uint64_t count() const noexcept { return total_count_; }
  std::uint64_t ns_of(DriverEntry entry) const { return costs_ns_[static_cast<int>(entry)]; }
  std::uint64_t ns() const noexcept { return total_ns_; }

 private:
  std::array<std::uint64_t, kDriverEntryCount> counts_{};
  std::array<std::uint64_t, kDriverEntryCount> costs_ns_{};
  std::uint64_t total_count_ = 0;
  std::uint64_t total_ns_ = 0;
};

}  // namespace quarry::sim
