// SPDX-License-Identifier: Apache-2.0
// Reads the processor's time stamp counter around a single call, and says what a tick is in
// nanoseconds and what reading costs. On processors without one: the steady clock.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace quarry::bench {

class TickClock {
 public:
  // The fences keep the timed call between the two readings.
  static std::uint64_t begin() {
#if defined(__x86_64__)
    _mm_lfence();
    const std::uint64_t ticks = __rdtsc();
    _mm_lfence();
    return ticks;
#else
    return steady_ns();
#endif
  }
  static std::uint64_t end() {
#if defined(__x86_64__)
    unsigned processor = 0;
    const std::uint64_t ticks = __rdtscp(&processor);
    _mm_lfence();
    return ticks;
#else
    return steady_ns();
#endif
  }

  // Takes 20 ms.
  TickClock() {
    const std::uint64_t start_ns = steady_ns();
    const std::uint64_t start = begin();
    while (steady_ns() - start_ns < 20'000'000) {
    }
    const auto passed_ns = static_cast<double>(steady_ns() - start_ns);
    ns_per_tick_ = passed_ns / static_cast<double>(end() - start);
    std::vector<std::uint64_t> empty(10'001);
    for (std::uint64_t& ticks : empty) {
      const std::uint64_t first = begin();
      ticks = end() - first;
    }
    const auto middle = empty.begin() + static_cast<std::ptrdiff_t>(empty.size() / 2);
    std::nth_element(empty.begin(), middle, empty.end());
    overhead_ticks_ = *middle;
  }

  double ns_per_tick() const {
    return ns_per_tick_;
  }
  // What two readings with nothing between them differ by, in the middle of 10,001 tries.
  std::uint64_t overhead_ticks() const {
    return overhead_ticks_;
  }

 private:
  static std::uint64_t steady_ns() {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
  }

  double ns_per_tick_ = 1;
  std::uint64_t overhead_ticks_ = 0;
};

}  // namespace quarry::bench
