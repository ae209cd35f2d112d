// SPDX-License-Identifier: Apache-2.0
// How much of one device's physical memory is taken. Plain memory and extents share it; what lies
// where is not modelled, because no caller can see it.
#pragma once

#include "base/bytes.hpp"

namespace quarry::sim {

class PhysicalBudget {
 public:
  PhysicalBudget(Bytes limit, Bytes external) : limit_(limit), external_(external) {}

  bool try_take(Bytes bytes) noexcept {
    if (bytes > free_bytes()) return false;
    used_ += bytes;
    return true;
  }
  void give_back(Bytes bytes) noexcept { used_ -= bytes; }

  void set_limit(Bytes bytes) noexcept { limit_ = bytes; }
  void set_external(Bytes bytes) noexcept { external_ = bytes; }

  Bytes limit_bytes() const noexcept { return limit_; }
  Bytes used_bytes() const noexcept { return used_; }
  Bytes free_bytes() const noexcept {
    const Bytes taken = used_ + external_;  // may pass the limit: the limit can be lowered
    return taken < limit_ ? limit_ - taken : 0;
  }

 private:
  Bytes limit_;
  Bytes external_;
  Bytes used_ = 0;
};

}  // namespace quarry::sim
