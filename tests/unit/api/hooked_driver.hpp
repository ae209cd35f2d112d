// SPDX-License-Identifier: Apache-2.0
// A Driver that calls a hook before it passes each call on: to hold a thread inside the driver at
// a chosen moment, or to forbid calls. Owns the driver that it passes calls to.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "tests/support/forwarding_driver.hpp"

namespace quarry::testing_support {

class HookedDriver final : public test::ForwardingDriver {
 public:
  using Hook = std::function<void(DriverEntry)>;
  HookedDriver(std::unique_ptr<Driver> next, Hook hook)
      : ForwardingDriver(*next), owned_(std::move(next)), hook_(std::move(hook)) {}

 protected:
  DriverCode before(DriverEntry entry) noexcept override {
    hook_(entry);
    return DriverCode::kSuccess;
  }

 private:
  std::unique_ptr<Driver> owned_;
  Hook hook_;
};

}  // namespace quarry::testing_support
