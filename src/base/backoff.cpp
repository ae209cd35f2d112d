// SPDX-License-Identifier: Apache-2.0
#include "base/backoff.hpp"

#include <chrono>
#include <thread>

namespace quarry {

void Backoff::pause() noexcept {
  constexpr int kSpins = 100;
  constexpr int kYields = 50;
  const int tries = tries_++;
  if (tries < kSpins) return;
  if (tries < kSpins + kYields) {
    std::this_thread::yield();
  } else {
    tries_ = kSpins + kYields;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

}  // namespace quarry
