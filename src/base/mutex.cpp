// SPDX-License-Identifier: Apache-2.0
#include "base/mutex.hpp"

#include <thread>

namespace quarry {

// The holder may have lost its processor: spin for a moment, then let it run. Not inline, so that
// locking costs its callers no registers.
void SpinLock::wait() const noexcept {
  for (int spins = 0; is_locked_.load(std::memory_order_relaxed); ++spins) {
    if (spins >= 100) std::this_thread::yield();
  }
}

}  // namespace quarry
