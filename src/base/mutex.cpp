// SPDX-License-Identifier: Apache-2.0
#include "base/mutex.hpp"

#include "base/backoff.hpp"

namespace quarry {

// Not inline, so that locking costs its callers no registers.
void SpinLock::wait() const noexcept {
  Backoff backoff;
  while (is_locked_.load(std::memory_order_relaxed))
    backoff.pause();
}

}  // namespace quarry
