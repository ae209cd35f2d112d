// SPDX-License-Identifier: Apache-2.0
// The two locks of a device. Every stream has a *lane*: a small lock under which most requests and
// frees of that stream's own memory are served, so that threads on streams of their own do not
// meet. Whatever concerns more than one stream takes the device's mutex, which here means: the
// mutex and every lane that is in use. So all state that the device's mutex guards is still
// guarded by it alone; what a lane guards, its holder may touch too:
//
//   - the free blocks of the lane's streams, in their BlockPools;
//   - all blocks of a segment whose `lane` says that every block in it is of this lane's streams;
//   - the lane's stock of Block records;
//   - its own thread's ThreadMagazines, which other threads touch with the device's mutex only.
//
// Lock order: device, lanes by rising number, a thread's magazines, the locks of the pointer map.
#pragma once

#include <array>
#include <cstdint>

#include "base/mutex.hpp"
#include "core/block_stock.hpp"

namespace quarry {

inline constexpr int kNoLane = -1;
// More streams than this share lanes.
inline constexpr int kLanes = 32;

struct alignas(64) Lane {
  SpinLock lock;
  int number = kNoLane;
  BlockStock blocks;
  std::uint64_t free_count = 0;  // by users, ever
};

class QUARRY_CAPABILITY("mutex") DeviceMutex {
 public:
  explicit DeviceMutex(BlockSource& blocks) noexcept {
    for (int i = 0; i < kLanes; ++i) {
      get(i).number = i;
      get(i).blocks.set_source(blocks);
    }
  }
  DeviceMutex(const DeviceMutex&) = delete;
  DeviceMutex& operator=(const DeviceMutex&) = delete;

  void lock() QUARRY_ACQUIRE() QUARRY_NO_THREAD_SAFETY_ANALYSIS {
    mutex_.lock();
    for (int i = 0; i < open_count_; ++i)
      get(i).lock.lock();
  }
  void unlock() QUARRY_RELEASE() QUARRY_NO_THREAD_SAFETY_ANALYSIS {
    for (int i = open_count_; i-- > 0;)
      get(i).lock.unlock();
    mutex_.unlock();
  }

  // 0 <= number < kLanes. The lane may be locked by itself from now on; to be called under the
  // mutex, which then includes it.
  void open(int number) QUARRY_REQUIRES(this) QUARRY_NO_THREAD_SAFETY_ANALYSIS {
    for (; open_count_ <= number; ++open_count_)
      get(open_count_).lock.lock();
  }
  Lane& get(int number) noexcept { return lanes_[static_cast<std::size_t>(number)]; }
  int open_count() const noexcept { return open_count_; }

 private:
  Mutex mutex_{LockRank::kDevice};
  int open_count_ = 0;  // changes under the mutex
  std::array<Lane, kLanes> lanes_;
};

}  // namespace quarry
