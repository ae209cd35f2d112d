// SPDX-License-Identifier: Apache-2.0
#include "core/callbacks.hpp"

#include <algorithm>
#include <utility>

#include "core/thread_state.hpp"

namespace quarry {

// A call under way, if the entry was not removed before it began.
class Callbacks::Call {
 public:
  Call(const Callbacks& callbacks, Entry& entry) : callbacks_(callbacks), entry_(entry) {
    MutexLock lock(callbacks_.mutex_);
    if (entry_.is_removed) return;
    entry_.callers.push_back(get_thread_token());
    is_allowed_ = true;
  }
  ~Call() {
    if (!is_allowed_) return;
    MutexLock lock(callbacks_.mutex_);
    std::erase(entry_.callers, get_thread_token());
    if (entry_.is_removed) callbacks_.call_ended_.notify_all();
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  bool is_allowed() const noexcept { return is_allowed_; }

 private:
  const Callbacks& callbacks_;
  Entry& entry_;
  bool is_allowed_ = false;
};

CallbackId Callbacks::add(std::variant<OomObserver, FreeMemoryCallback> function) {
  MutexLock lock(mutex_);
  const CallbackId id{next_id_++};
  entries_.push_back(std::make_shared<Entry>(Entry{id, std::move(function), false, {}}));
  return id;
}

CallbackId Callbacks::add_oom_observer(OomObserver observer) {
  return add(std::move(observer));
}

CallbackId Callbacks::add_free_memory_callback(FreeMemoryCallback callback) {
  return add(std::move(callback));
}

bool Callbacks::remove(CallbackId id) {
  const std::uint64_t self = get_thread_token();
  const auto has_id = [id](const auto& entry) { return entry->id == id; };
  const auto is_other = [self](std::uint64_t caller) { return caller != self; };
  std::shared_ptr<Entry> entry;  // outlives the lock: what the function owns is the user's
  MutexLock lock(mutex_);
  const auto found = std::ranges::find_if(entries_, has_id);
  if (found == entries_.end()) return false;
  entry = *found;
  entries_.erase(found);
  entry->is_removed = true;
  while (std::ranges::any_of(entry->callers, is_other))
    call_ended_.wait(mutex_);
  return true;
}

template <class Function, class Use>
void Callbacks::for_each(Use&& use) const {
  if (is_user_callback_thread()) return;
  std::vector<std::shared_ptr<Entry>> round;  // what a callback adds is for the next one
  {
    MutexLock lock(mutex_);
    round = entries_;
  }
  for (const auto& entry : round) {
    const auto* function = std::get_if<Function>(&entry->function);
    if (function == nullptr) continue;
    const Call call(*this, *entry);
    if (!call.is_allowed()) continue;
    const UserCallbackScope inside;
    use(*function);
  }
}

void Callbacks::notify_oom(const OomReport& report) const {
  for_each<OomObserver>([&](const OomObserver& observer) { observer(report); });
}

bool Callbacks::free_memory(DeviceId device, Bytes needed_bytes) const {
  bool did_something = false;
  for_each<FreeMemoryCallback>([&](const FreeMemoryCallback& callback) {
    did_something |= callback(device, needed_bytes);
  });
  return did_something;
}

bool Callbacks::has_free_memory_callbacks() const {
  MutexLock lock(mutex_);
  return std::ranges::any_of(entries_, [](const auto& entry) {
    return std::holds_alternative<FreeMemoryCallback>(entry->function);
  });
}

}  // namespace quarry
