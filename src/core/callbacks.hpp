// SPDX-License-Identifier: Apache-2.0
// Functions of the user that the allocator calls when memory is short. They run with no lock of
// Quarry held, on the thread whose request is short, and may call the allocator. Requests that a
// callback makes itself call no callbacks: one whose own request is short would never end.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <variant>
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
  // False if there is none of that id, or no longer. Once it returns true the callback is not
  // called any more, and no call of it is under way but the calling thread's own. It waits for
  // those of other threads, so the caller must hold nothing that they may need.
  bool remove(CallbackId id);

  // Both call nobody inside a callback.
  void notify_oom(const OomReport& report) const;
  // True if any callback did something.
  bool free_memory(DeviceId device, Bytes needed_bytes) const;
  bool has_free_memory_callbacks() const;

 private:
  // Shared with the rounds that may still call it. The first two never change; the rest is guarded
  // by mutex_.
  struct Entry {
    CallbackId id;
    std::variant<OomObserver, FreeMemoryCallback> function;
    bool is_removed = false;
    std::vector<std::uint64_t> callers;  // thread tokens, one for each call under way
  };
  class Call;

  CallbackId add(std::variant<OomObserver, FreeMemoryCallback> function);
  // Calls `use` with every function of the type that is not removed by the time of its turn.
  template <class Function, class Use>
  void for_each(Use&& use) const;

  mutable Mutex mutex_{LockRank::kAllocator};
  mutable std::condition_variable_any call_ended_;
  std::uint64_t next_id_ QUARRY_GUARDED_BY(mutex_) = 1;
  std::vector<std::shared_ptr<Entry>> entries_ QUARRY_GUARDED_BY(mutex_);  // in order of addition
};

}  // namespace quarry
