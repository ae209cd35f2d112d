// SPDX-License-Identifier: Apache-2.0
// A lock that one thread, its owner, takes all the time, and others hardly ever. The owner pays a
// store and a load and no locked instruction; who comes instead of it pays for both, with a system
// call that interrupts every processor of the process. Not a lock among the others: they come one
// at a time, by a mutex of theirs.
//
// Invariant: never are the owner and another inside at once.
//
// It is Dekker's: the owner says that it is inside and then looks whether another has asked; the
// other asks, and then looks whether the owner is inside. If each one's store is seen before its
// own load is made, at least one of them sees the other. The owner gives way if it sees that
// another has asked; the other waits until it has once seen the owner outside. What keeps a
// processor from making the load first is a barrier between the two, on both sides.
//
//   by membarrier: the owner's is for the compiler only. The other calls membarrier(2) between
//   asking and looking, with MEMBARRIER_CMD_PRIVATE_EXPEDITED. Its man page promises that then
//   "all its running thread siblings have passed through a state where all memory accesses to
//   user-space addresses match program order between entry to and return from the system call
//   (non-running threads are de facto in such a state)". Either the owner's load was made before
//   that state: then its store was too, and the other sees it inside. Or after: then the owner
//   sees that another has asked.
//
//   by fence: where there is no membarrier (an old kernel, a sandbox), and under ThreadSanitizer,
//   which knows nothing of it, the owner looks by a read-modify-write of what the other asks by,
//   after its store. Of two such changes of one thing one comes second and reads the first: the
//   other's, and it sees the owner inside (release, acquire); or the owner's, and it sees that the
//   other has asked.
//
// What was written inside is seen by whoever is inside next, either way round. The other reads
// "outside" (acquire) from a store (release) that the owner made after all that it did inside. The
// owner reads "nobody asks" (acquire) from the store (release) of the last other that was inside:
// had it read an older one, then that last other would have seen it inside, and waited.
//
// The owner is one thread. It may not come in again while it is inside, so not from a signal
// handler either. When it has ended it is outside for good, and nobody need ask. The others'
// mutex keeps them away from the owner as from each other: while it has that it need not enter. In
// the child of a fork the lock is as useless as any: its owner may have been inside.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "base/check.hpp"
#include "base/mutex.hpp"

namespace quarry {

// How owners are ordered before whoever comes instead of them.
enum class OwnerOrder : std::uint8_t { kByMembarrier, kByFence };

struct OwnerOrderChoice {
  OwnerOrder order = OwnerOrder::kByFence;
  std::string why;
};
// What this process does: decided at the first call, which registers the process with the kernel.
// With other threads running, that takes milliseconds, once.
const OwnerOrderChoice& get_owner_order() noexcept;

class QUARRY_CAPABILITY("mutex") OwnerLock {
 public:
  OwnerLock() noexcept : OwnerLock(get_owner_order().order) {}
  // kByMembarrier only where get_owner_order says so.
  explicit OwnerLock(OwnerOrder order) noexcept
      : flags_(get_flags(order)), order_(get_flags(order)) {}
  OwnerLock(const OwnerLock&) = delete;
  OwnerLock& operator=(const OwnerLock&) = delete;

  // --- the owner ---

  // False: another is inside, or about to be. Does not wait.
  bool try_enter() noexcept QUARRY_TRY_ACQUIRE(true) QUARRY_NO_THREAD_SAFETY_ANALYSIS {
    QUARRY_ASSERT(!is_inside_.load(std::memory_order_relaxed));
    is_inside_.store(true, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    std::uint8_t flags = flags_.load(std::memory_order_acquire);
    if (flags == 0) [[likely]]
      return true;
    if (flags == kFenced) flags = flags_.fetch_add(0, std::memory_order_acq_rel);
    if (!(flags & kAsked)) return true;
    leave();
    return false;
  }
  // Waits while another is inside.
  void enter() noexcept QUARRY_ACQUIRE() QUARRY_NO_THREAD_SAFETY_ANALYSIS {
    while (!try_enter())
      wait_for_other();
  }
  void leave() noexcept QUARRY_RELEASE() { is_inside_.store(false, std::memory_order_release); }
  // For the analysis: who calls this is alone, by the others' mutex or because it has asked.
  void assume_alone() const noexcept QUARRY_ASSERT_HELD() {}

  // --- another, one at a time: ask, order_owners, wait_for_owner, let_in ---

  // From now on the owner does not come in, unless it is about to.
  void ask() noexcept {
    QUARRY_ASSERT(!is_asked());
    flags_.exchange(order_ | kAsked, std::memory_order_acq_rel);
  }
  // The barrier for all locks that the calling thread has asked for: once for any number of them.
  static void order_owners() noexcept;
  // Afterwards this thread is inside.
  void wait_for_owner() noexcept QUARRY_ACQUIRE();
  void let_in() noexcept QUARRY_RELEASE() { flags_.store(order_, std::memory_order_release); }
  // For another: whether it is it that has asked, and not let the owner in.
  bool is_asked() const noexcept { return flags_.load(std::memory_order_relaxed) & kAsked; }

 private:
  // One byte, so that the owner has one thing to look at: 0 if it may go on.
  static constexpr std::uint8_t kAsked = 1;
  static constexpr std::uint8_t kFenced = 2;  // the owner has to fence first
  static constexpr std::uint8_t get_flags(OwnerOrder order) noexcept {
    return order == OwnerOrder::kByFence ? kFenced : 0;
  }

  void wait_for_other() const noexcept;

  std::atomic<std::uint8_t> flags_;
  std::atomic<bool> is_inside_{false};
  const std::uint8_t order_;  // kFenced, or 0
};

// The owner inside, for a scope.
class QUARRY_SCOPED_CAPABILITY OwnerHold {
 public:
  explicit OwnerHold(OwnerLock& lock) QUARRY_ACQUIRE(lock) : lock_(lock) { lock_.enter(); }
  ~OwnerHold() QUARRY_RELEASE() { lock_.leave(); }
  OwnerHold(const OwnerHold&) = delete;
  OwnerHold& operator=(const OwnerHold&) = delete;

 private:
  OwnerLock& lock_;
};

}  // namespace quarry
