// SPDX-License-Identifier: Apache-2.0
// Templates and the lock of DeviceAllocator, which includes this at its end.
#pragma once

#include "core/device_allocator.hpp"

namespace quarry {

class QUARRY_SCOPED_CAPABILITY DeviceAllocator::Section {
 public:
  explicit Section(DeviceAllocator& device) QUARRY_ACQUIRE(device.mutex_);
  ~Section() QUARRY_RELEASE();
  Section(const Section&) = delete;
  Section& operator=(const Section&) = delete;

 private:
  DeviceAllocator& device_;
};

template <class Visit>
void DeviceAllocator::for_each_pool(Visit visit) {
  visit(default_pool_);
  for (const auto& [id, pool] : private_pools_)
    visit(*pool);
}

template <class Call>
auto DeviceAllocator::run_unlocked(Call call) QUARRY_NO_THREAD_SAFETY_ANALYSIS {
  ++operations_under_way_;
  mutex_.unlock();
  auto result = call();
  mutex_.lock();
  --operations_under_way_;
  changed_.notify_all();
  return result;
}

}  // namespace quarry
