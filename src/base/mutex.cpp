// SPDX-License-Identifier: Apache-2.0
#include "base/mutex.hpp"

#include <chrono>
#include <thread>

namespace quarry {

// Not inline, so that locking costs its callers no registers. The holder may have lost its
// processor: after a moment it is let run, and if yielding is not enough (it has a lower priority
// than this thread, or the machine is crowded) this thread sleeps for as long as a wake-up takes.
void SpinLock::wait() const noexcept {
  constexpr int kSpins = 100;
  constexpr int kYields = 50;
  for (int tries = 0; is_locked_.load(std::memory_order_relaxed); ++tries) {
    if (tries < kSpins) continue;
    if (tries < kSpins + kYields) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
}

}  // namespace quarry
