// SPDX-License-Identifier: Apache-2.0
// Functions of the user that the allocator calls when memory is short. They run with no lock of
// Quarry held, on the thread whose request is short, and may call the allocator.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/mutex.hpp"
#include "core/oom_report.hpp"

namespace quarry {

// Told of every out-of-memory result, just before the caller gets it.
using OomObserver = std::function<void(const OomReport&)>;
// Asked to free memory of a device (by freeing blocks of this allocator, or device memory of
// others) before the driver is asked for more. Returns whether it did anything.
using FreeMemoryCallback = std::function<bool(DeviceId device, Bytes needed_bytes)>;

enum class CallbackId : std::uint64_t {};

class Callbacks {
 public:
  CallbackId add_oom_observer(OomObserver observer);
  CallbackId add_free_memory_callback(FreeMemoryCallback callback);
  // False if there is none of that id. A call under way in another thread may still finish.
  bool remove(CallbackId id);

  void notify_oom(const OomReport& report) const;
  // True if any callback did something.
  bool free_memory(DeviceId device, Bytes needed_bytes) const;
  bool has_free_memory_callbacks() const;

 private:
  template <class Function>
  struct Entry {
    CallbackId id;
    std::shared_ptr<Function> function;  // shared with calls under way
  };

  mutable Mutex mutex_{LockRank::kAllocator};
  std::uint64_t next_id_ QUARRY_GUARDED_BY(mutex_) = 1;
  std::vector<Entry<OomObserver>> oom_observers_ QUARRY_GUARDED_BY(mutex_);
  std::vector<Entry<FreeMemoryCallback>> free_memory_callbacks_ QUARRY_GUARDED_BY(mutex_);
};

}  // namespace quarry
