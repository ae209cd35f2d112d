// SPDX-License-Identifier: Apache-2.0
#include "core/callbacks.hpp"

#include <utility>

namespace quarry {

CallbackId Callbacks::add_oom_observer(OomObserver observer) {
  MutexLock lock(mutex_);
  const CallbackId id{next_id_++};
  oom_observers_.push_back({id, std::make_shared<OomObserver>(std::move(observer))});
  return id;
}

CallbackId Callbacks::add_free_memory_callback(FreeMemoryCallback callback) {
  MutexLock lock(mutex_);
  const CallbackId id{next_id_++};
  free_memory_callbacks_.push_back(
      {id, std::make_shared<FreeMemoryCallback>(std::move(callback))});
  return id;
}

bool Callbacks::remove(CallbackId id) {
  MutexLock lock(mutex_);
  const auto has_id = [id](const auto& entry) { return entry.id == id; };
  return std::erase_if(oom_observers_, has_id) + std::erase_if(free_memory_callbacks_, has_id) > 0;
}

void Callbacks::notify_oom(const OomReport& report) const {
  std::vector<Entry<OomObserver>> observers;
  {
    MutexLock lock(mutex_);
    observers = oom_observers_;
  }
  for (const auto& entry : observers)
    (*entry.function)(report);
}

bool Callbacks::free_memory(DeviceId device, Bytes needed_bytes) const {
  std::vector<Entry<FreeMemoryCallback>> callbacks;
  {
    MutexLock lock(mutex_);
    callbacks = free_memory_callbacks_;
  }
  bool did_something = false;
  for (const auto& entry : callbacks)
    did_something |= (*entry.function)(device, needed_bytes);
  return did_something;
}

bool Callbacks::has_free_memory_callbacks() const {
  MutexLock lock(mutex_);
  return !free_memory_callbacks_.empty();
}

}  // namespace quarry
