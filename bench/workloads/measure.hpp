// SPDX-License-Identifier: Apache-2.0
// Runs a workload under Google Benchmark: set-up and warm-up outside the measured time, all
// threads beginning together. The figure is the counter pair_ns: wall time of a step (a malloc and
// a free) as each thread sees it, averaged over the threads. A peer that throws ends its own row
// only.
#pragma once

#include <benchmark/benchmark.h>

#include <chrono>
#include <exception>
#include <optional>

namespace quarry::bench {

using Clock = std::chrono::steady_clock;

// Up to `steps` steps, or as many as 20 ms hold.
template <class Workload>
void warm_up(Workload& workload, int steps) {
  const Clock::time_point deadline = Clock::now() + std::chrono::milliseconds(20);
  for (int done = 0; done < steps && Clock::now() < deadline;) {
    for (int end = done + 50; done < end; ++done)
      workload.step();
  }
}

// For workloads whose threads must take equally many steps.
template <class Workload>
void warm_up_exactly(Workload& workload, int steps) {
  for (int i = 0; i < steps; ++i)
    workload.step();
}

// `prepare` puts a warm workload in its place.
template <class Workload, class Prepare>
void measure(benchmark::State& state, std::optional<Workload>& workload, Prepare prepare) {
  try {
    prepare();
  } catch (const std::exception& error) {
    state.SkipWithError(error.what());
  }
  // One batch of all iterations; also after an error, since the other threads wait there.
  while (state.KeepRunningBatch(state.max_iterations)) {
    try {
      const Clock::time_point begin = Clock::now();
      for (auto left = state.max_iterations; left > 0; --left)
        workload->step();
      const std::chrono::duration<double, std::nano> passed = Clock::now() - begin;
      state.counters["pair_ns"] =
          benchmark::Counter(passed.count() / static_cast<double>(state.max_iterations),
                             benchmark::Counter::kAvgThreads);
    } catch (const std::exception& error) {
      state.SkipWithError(error.what());
    }
  }
}

}  // namespace quarry::bench
