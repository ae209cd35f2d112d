// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/cases/call_counts.hpp"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace quarry::test {

thread_local CallCounts call_counts;
thread_local const std::function<void()>* before_lock = nullptr;

}  // namespace quarry::test

using quarry::test::before_lock;
using quarry::test::call_counts;

#if QUARRY_TEST_IS_SANITIZED

void* operator new(std::size_t bytes) {
  ++call_counts.host_allocations;
  void* const memory = std::malloc(bytes);
  if (memory == nullptr) std::abort();
  return memory;
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  ++call_counts.host_allocations;
  const auto unit = static_cast<std::size_t>(alignment);
  void* const memory = std::aligned_alloc(unit, (bytes + unit - 1) & ~(unit - 1));
  if (memory == nullptr) std::abort();
  return memory;
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

#else

// The project hides symbols; these must be found by shared libraries too.
#define EXPORTED __attribute__((visibility("default")))

extern "C" {

void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* memory, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);

EXPORTED void* malloc(std::size_t bytes) noexcept {
  ++call_counts.host_allocations;
  return __libc_malloc(bytes);
}
EXPORTED void* calloc(std::size_t count, std::size_t bytes) noexcept {
  ++call_counts.host_allocations;
  return __libc_calloc(count, bytes);
}
EXPORTED void* realloc(void* memory, std::size_t bytes) noexcept {
  ++call_counts.host_allocations;
  return __libc_realloc(memory, bytes);
}
EXPORTED void* aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept {
  ++call_counts.host_allocations;
  return __libc_memalign(alignment, bytes);
}

EXPORTED int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  using Lock = int (*)(pthread_mutex_t*);
  static std::atomic<Lock> real{nullptr};  // found twice if two threads come at once
  Lock lock = real.load(std::memory_order_relaxed);
  if (lock == nullptr) {
    lock = reinterpret_cast<Lock>(dlsym(RTLD_NEXT, "pthread_mutex_lock"));
    real.store(lock, std::memory_order_relaxed);
  }
  ++call_counts.mutex_locks;
  if (before_lock != nullptr) (*before_lock)();
  return lock(mutex);
}

}  // extern "C"

#endif
