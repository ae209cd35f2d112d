// SPDX-License-Identifier: Apache-2.0
// A ranked mutex with clang's thread-safety annotations. Ranks say in which order locks may be
// taken: a thread that holds a rank takes only higher ones. Debug builds check it.
#pragma once

#include <atomic>
#include <mutex>

#include "base/check.hpp"

#if defined(__clang__)
#define QUARRY_TSA(x) __attribute__((x))
#else
#define QUARRY_TSA(x)
#endif
#define QUARRY_CAPABILITY(name) QUARRY_TSA(capability(name))
#define QUARRY_SCOPED_CAPABILITY QUARRY_TSA(scoped_lockable)
#define QUARRY_GUARDED_BY(m) QUARRY_TSA(guarded_by(m))
#define QUARRY_PT_GUARDED_BY(m) QUARRY_TSA(pt_guarded_by(m))
#define QUARRY_REQUIRES(...) QUARRY_TSA(requires_capability(__VA_ARGS__))
#define QUARRY_EXCLUDES(...) QUARRY_TSA(locks_excluded(__VA_ARGS__))
#define QUARRY_ACQUIRE(...) QUARRY_TSA(acquire_capability(__VA_ARGS__))
#define QUARRY_RETURN_CAPABILITY(m) QUARRY_TSA(lock_returned(m))
#define QUARRY_TRY_ACQUIRE(...) QUARRY_TSA(try_acquire_capability(__VA_ARGS__))
#define QUARRY_ASSERT_HELD(...) QUARRY_TSA(assert_capability(__VA_ARGS__))
#define QUARRY_RELEASE(...) QUARRY_TSA(release_capability(__VA_ARGS__))
#define QUARRY_NO_THREAD_SAFETY_ANALYSIS QUARRY_TSA(no_thread_safety_analysis)

namespace quarry {

enum class LockRank : int {
  kProcess = 1,    // api: set-up and tear-down of the process's allocator
  kAllocator = 2,  // core: list of callbacks
  kDevice = 3,     // core: one device's whole state
  kFreeGate = 4,   // core: the guard under which no driver free happens
  kSimulator = 5,  // sim: the simulated device
};

class QUARRY_CAPABILITY("mutex") Mutex {
 public:
  explicit Mutex(LockRank rank) noexcept : rank_(rank) {}
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void lock() QUARRY_ACQUIRE() {
    check_order();
    mutex_.lock();
    note_locked();
  }
  void unlock() QUARRY_RELEASE() {
    note_unlocked();
    mutex_.unlock();
  }

 private:
#ifdef NDEBUG
  void check_order() const noexcept {}
  void note_locked() noexcept {}
  void note_unlocked() noexcept {}
#else
  // Bit n set: this thread holds a mutex of rank n.
  static unsigned& held_ranks() noexcept {
    thread_local unsigned held = 0;
    return held;
  }
  void check_order() const noexcept {
    QUARRY_CHECK((held_ranks() >> static_cast<int>(rank_)) == 0u);
  }
  void note_locked() noexcept {
    held_ranks() |= 1u << static_cast<int>(rank_);
  }
  void note_unlocked() noexcept {
    held_ranks() &= ~(1u << static_cast<int>(rank_));
  }
#endif

  std::mutex mutex_;
  [[maybe_unused]] const LockRank rank_;  // used by debug builds
};

// For critical sections of a few instructions that are hardly ever contended and call nothing:
// about a third of a Mutex's cost. Unranked: whoever takes one inside another says in which order.
class QUARRY_CAPABILITY("mutex") SpinLock {
 public:
  SpinLock() = default;
  SpinLock(const SpinLock&) = delete;
  SpinLock& operator=(const SpinLock&) = delete;

  void lock() QUARRY_ACQUIRE() {
    while (is_locked_.exchange(true, std::memory_order_acquire))
      [[unlikely]] wait();
  }
  bool try_lock() QUARRY_TRY_ACQUIRE(true) {
    return !is_locked_.exchange(true, std::memory_order_acquire);
  }
  void unlock() QUARRY_RELEASE() { is_locked_.store(false, std::memory_order_release); }

 private:
  void wait() const noexcept;  // until it looks free

  std::atomic<bool> is_locked_{false};
};

class QUARRY_SCOPED_CAPABILITY SpinLockHold {
 public:
  explicit SpinLockHold(SpinLock& lock) QUARRY_ACQUIRE(lock) : lock_(lock) { lock_.lock(); }
  ~SpinLockHold() QUARRY_RELEASE() { lock_.unlock(); }
  SpinLockHold(const SpinLockHold&) = delete;
  SpinLockHold& operator=(const SpinLockHold&) = delete;

 private:
  SpinLock& lock_;
};

template <class AnyMutex>
class QUARRY_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(AnyMutex& mutex) QUARRY_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() QUARRY_RELEASE() { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  AnyMutex& mutex_;
};

}  // namespace quarry
