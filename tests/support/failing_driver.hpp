// SPDX-License-Identifier: Apache-2.0
// A Driver whose k-th call from a chosen moment on fails, on any driver: the simulated one, whose
// own fault plan can do more, and the real one, which has none. Nothing is passed on for the call
// that fails, so the driver below is in the state that it reports. For one thread.
#pragma once

#include <cstdint>
#include <optional>

#include "tests/support/forwarding_driver.hpp"

namespace quarry::test {

class FailingDriver final : public ForwardingDriver {
 public:
  using ForwardingDriver::ForwardingDriver;

  // The k-th call from now on, from 1, answers `code`; the others are passed on.
  void fail_call(std::uint64_t k, DriverCode code) {
    calls_ = 0;
    failing_call_ = k;
    code_ = code;
    failed_.reset();
  }
  // No call fails any more.
  void stop() { failing_call_ = 0; }
  // Which entry was made to fail since fail_call; nothing if there were fewer than k calls.
  std::optional<DriverEntry> failed() const { return failed_; }

 protected:
  DriverCode before(DriverEntry entry) noexcept override {
    if (++calls_ != failing_call_) return DriverCode::kSuccess;
    failed_ = entry;
    return code_;
  }

 private:
  std::uint64_t calls_ = 0;
  std::uint64_t failing_call_ = 0;
  DriverCode code_ = DriverCode::kUnknown;
  std::optional<DriverEntry> failed_;
};

}  // namespace quarry::test
