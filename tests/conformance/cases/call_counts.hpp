// SPDX-License-Identifier: Apache-2.0
// Counts what the calling thread asks of the C runtime. Linking call_counts.cpp replaces malloc
// and pthread_mutex_lock in the whole program; under a sanitizer, which replaces them itself, it
// counts operator new in place of the one and goes without the other.
#pragma once

#include <cstdint>
#include <functional>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define QUARRY_TEST_IS_SANITIZED 1
#else
#define QUARRY_TEST_IS_SANITIZED 0
#endif

namespace quarry::test {

struct CallCounts {
  std::uint64_t host_allocations = 0;
  std::uint64_t mutex_locks = 0;
};
extern thread_local CallCounts call_counts;

// Called before each lock of a mutex by a thread that set it.
extern thread_local const std::function<void()>* before_lock;

}  // namespace quarry::test
