// SPDX-License-Identifier: Apache-2.0
#include "base/owner_lock.hpp"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/backoff.hpp"

#if defined(__SANITIZE_THREAD__)
#define QUARRY_UNDER_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define QUARRY_UNDER_THREAD_SANITIZER 1
#endif
#endif
#ifndef QUARRY_UNDER_THREAD_SANITIZER
#define QUARRY_UNDER_THREAD_SANITIZER 0
#endif

namespace quarry {
namespace {

// The C library has no function for it.
bool call_membarrier(int command) noexcept {
  return ::syscall(__NR_membarrier, command, 0, 0) == 0;
}

OwnerOrderChoice choose_order() {
  if (QUARRY_UNDER_THREAD_SANITIZER != 0) {
    return {OwnerOrder::kByFence, "ThreadSanitizer knows nothing of membarrier"};
  }
  // Both once: a sandbox may allow the first only.
  if (call_membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) &&
      call_membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED)) {
    return {OwnerOrder::kByMembarrier, "the kernel has membarrier"};
  }
  return {OwnerOrder::kByFence,
          std::string("membarrier is not to be had: ") + std::strerror(errno)};
}

}  // namespace

const OwnerOrderChoice& get_owner_order() noexcept {
  static const OwnerOrderChoice choice = choose_order();
  return choice;
}

void OwnerLock::order_owners() noexcept {
  if (get_owner_order().order == OwnerOrder::kByFence) return;
  if (call_membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED)) return;
  // It worked before, so the kernel is out of memory, or the process has gone into a sandbox
  // since. Owners do not fence, and cannot be made to at once. Their stores wait in their
  // processors to become visible, which takes nanoseconds; after this they all are.
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void OwnerLock::wait_for_owner() noexcept QUARRY_NO_THREAD_SAFETY_ANALYSIS {
  Backoff backoff;
  while (is_inside_.load(std::memory_order_acquire))
    backoff.pause();
}

void OwnerLock::wait_for_other() const noexcept {
  Backoff backoff;
  while (is_asked())
    backoff.pause();
}

}  // namespace quarry
