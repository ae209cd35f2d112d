// SPDX-License-Identifier: Apache-2.0
// What came of giving segments back to the driver (release.cpp). A value.
#pragma once

#include "core/free_gate.hpp"
#include "driver/driver_types.hpp"

namespace quarry {

struct Released {
  FreeGate::Entry gate = FreeGate::Entry::kEntered;  // else nothing was tried
  DriverCode failure = DriverCode::kSuccess;         // the driver's first
  bool is_done() const noexcept {
    return gate == FreeGate::Entry::kEntered && failure == DriverCode::kSuccess;
  }
};

}  // namespace quarry
