// SPDX-License-Identifier: Apache-2.0
// A guard of the user's under which no driver free happens. A driver free waits for the devices,
// so one that begins between two launches of a collective can deadlock them (each launch waits for
// the other). Callers hold the gate around such launches; the allocator passes through it before
// it frees. Its own mutex is held for moments only. Waiting for the gate is another matter: the
// holder may need whatever the waiting thread has, so a thread waits with nothing in its hands.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/mutex.hpp"

namespace quarry {

class FreeGate {
 public:
  // Keeps driver frees from beginning until the last holder unlocks, and waits for those under
  // way. Several threads may hold it at once; a thread may hold it repeatedly. Not inside a driver
  // callback: a free under way may wait for that callback.
  void lock();
  // False if the calling thread does not hold it.
  bool unlock();
  // For a thread that ends, which could not unlock later. Returns how many holds it had.
  std::size_t drop_holds_of_this_thread();
  bool is_held_by_this_thread() const;
  // By any thread.
  bool is_held() const;

  // For the allocator: waits until no other thread holds the gate. False, at once, if the calling
  // thread itself holds it: nothing may be freed then. After true, call leave().
  [[nodiscard]] bool enter();
  void leave();

  enum class Entry {
    kEntered,           // call leave()
    kHeldByThisThread,  // nothing may be freed now
    kHeldByOthers,      // ask again after wait_until_open
  };
  // As enter, but never waits.
  [[nodiscard]] Entry try_enter();
  // Returns when nobody holds the gate; the next moment somebody may. Not for a holder, and with
  // no lock held.
  void wait_until_open();

 private:
  bool holds(std::uint64_t thread) const QUARRY_REQUIRES(mutex_);

  mutable Mutex mutex_{LockRank::kFreeGate};
  std::condition_variable_any changed_;
  // Thread tokens, once a hold. A thread that still waits in lock is among them.
  std::vector<std::uint64_t> holders_ QUARRY_GUARDED_BY(mutex_);
  int frees_under_way_ QUARRY_GUARDED_BY(mutex_) = 0;
};

}  // namespace quarry
