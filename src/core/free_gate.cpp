// SPDX-License-Identifier: Apache-2.0
#include "core/free_gate.hpp"

#include <algorithm>

#include "core/thread_state.hpp"

namespace quarry {

bool FreeGate::holds(std::uint64_t thread) const {
  return std::find(holders_.begin(), holders_.end(), thread) != holders_.end();
}

void FreeGate::lock() {
  const std::uint64_t self = get_thread_token();
  MutexLock lock(mutex_);
  const bool held_it_already = holds(self);
  // Before the wait, so that no free begins during it: a stream of them could make it endless.
  holders_.push_back(self);
  // A thread that holds it already has kept frees out; waiting again could only deadlock.
  if (held_it_already) return;
  while (frees_under_way_ > 0)
    changed_.wait(mutex_);
}

bool FreeGate::unlock() {
  MutexLock lock(mutex_);
  const auto hold = std::find(holders_.begin(), holders_.end(), get_thread_token());
  if (hold == holders_.end()) return false;
  holders_.erase(hold);
  if (holders_.empty()) changed_.notify_all();
  return true;
}

std::size_t FreeGate::drop_holds_of_this_thread() {
  MutexLock lock(mutex_);
  const std::size_t dropped = std::erase(holders_, get_thread_token());
  if (dropped > 0 && holders_.empty()) changed_.notify_all();
  return dropped;
}

bool FreeGate::is_held_by_this_thread() const {
  const std::uint64_t self = get_thread_token();
  MutexLock lock(mutex_);
  return holds(self);
}

bool FreeGate::is_held() const {
  MutexLock lock(mutex_);
  return !holders_.empty();
}

bool FreeGate::enter() {
  const std::uint64_t self = get_thread_token();
  MutexLock lock(mutex_);
  if (holds(self)) return false;
  while (!holders_.empty())
    changed_.wait(mutex_);
  ++frees_under_way_;
  return true;
}

FreeGate::Entry FreeGate::try_enter() {
  const std::uint64_t self = get_thread_token();
  MutexLock lock(mutex_);
  if (holds(self)) return Entry::kHeldByThisThread;
  if (!holders_.empty()) return Entry::kHeldByOthers;
  ++frees_under_way_;
  return Entry::kEntered;
}

void FreeGate::wait_until_open() {
  MutexLock lock(mutex_);
  while (!holders_.empty())
    changed_.wait(mutex_);
}

void FreeGate::leave() {
  MutexLock lock(mutex_);
  if (--frees_under_way_ == 0) changed_.notify_all();
}

}  // namespace quarry
