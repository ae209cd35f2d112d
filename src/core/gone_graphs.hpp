// SPDX-License-Identifier: Apache-2.0
// Where the driver leaves word that a graph is gone, for its device to find. The word comes on a
// thread that may call nothing, at any time, perhaps when the allocator is gone: so it is shared
// by the device and every graph that may still report.
#pragma once

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "base/mutex.hpp"
#include "core/pool_id.hpp"

namespace quarry {

class GoneGraphs {
 public:
  // What a graph reports with: to be passed to `report`, once, or deleted.
  struct Report {
    std::shared_ptr<GoneGraphs> to;
    PoolId pool;
  };
  // A GraphGoneCallback. Takes a lock for a moment, that nobody holds while he calls anything.
  static void report(void* user) noexcept {
    const std::unique_ptr<Report> word(static_cast<Report*>(user));
    const SpinLockHold hold(word->to->lock_);
    word->to->pools_.push_back(word->pool);
    word->to->has_news_.store(true, std::memory_order_release);
  }

  bool has_news() const noexcept { return has_news_.load(std::memory_order_acquire); }
  // The pools whose graphs are gone since the last time.
  std::vector<PoolId> take() {
    const SpinLockHold hold(lock_);
    has_news_.store(false, std::memory_order_relaxed);
    return std::exchange(pools_, {});
  }

 private:
  SpinLock lock_;
  std::atomic<bool> has_news_{false};
  std::vector<PoolId> pools_ QUARRY_GUARDED_BY(lock_);
};

}  // namespace quarry
