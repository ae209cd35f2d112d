// SPDX-License-Identifier: Apache-2.0
// How long single calls take, by percentile: a lane that times each malloc and each free of any
// workload. The cost of reading the clock is subtracted and reported beside the figures.
#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "bench/workloads/lane.hpp"
#include "bench/workloads/measure.hpp"
#include "bench/workloads/tick_clock.hpp"

namespace quarry::bench {

class Samples {
 public:
  explicit Samples(std::size_t capacity) : ticks_(capacity) {}  // touched, so that none faults
  void add(std::uint64_t ticks) {
    if (count_ == ticks_.size()) return;
    ticks_[count_++] = static_cast<std::uint32_t>(std::min<std::uint64_t>(ticks, UINT32_MAX));
  }
  void clear() { count_ = 0; }
  bool is_full() const { return count_ == ticks_.size(); }
  std::size_t size() const { return count_; }
  void sort() { std::sort(ticks_.begin(), ticks_.begin() + static_cast<std::ptrdiff_t>(count_)); }
  // By nearest rank, of sorted samples: the smallest that `percent` of all do not exceed.
  std::uint64_t percentile(double percent) const {
    const double rank = std::ceil(percent / 100 * static_cast<double>(count_) - 1e-6);
    return ticks_[std::min(count_, std::max<std::size_t>(static_cast<std::size_t>(rank), 1)) - 1];
  }

 private:
  std::vector<std::uint32_t> ticks_;
  std::size_t count_ = 0;
};

struct CallTimes {
  explicit CallTimes(std::size_t capacity) : mallocs(capacity), frees(capacity) {}
  Samples mallocs;
  Samples frees;
};

template <class Lane>
class TimedLane {
 public:
  TimedLane(Lane lane, CallTimes& times) : lane_(lane), times_(&times) {}

  Block malloc(std::size_t bytes) {
    const std::uint64_t begin = TickClock::begin();
    const Block block = lane_.malloc(bytes);
    times_->mallocs.add(TickClock::end() - begin);
    return block;
  }
  void free(Block block) {
    const std::uint64_t begin = TickClock::begin();
    lane_.free(block);
    times_->frees.add(TickClock::end() - begin);
  }

 private:
  Lane lane_;
  CallTimes* times_;
};

inline void report_percentiles(benchmark::State& state, const TickClock& clock,
                               const std::string& call, Samples& samples) {
  samples.sort();
  constexpr struct {
    const char* name;
    double percent;
  } kPercentiles[] = {
      {"p50", 50}, {"p99", 99}, {"p99.9", 99.9}, {"p99.999", 99.999}, {"p100", 100}};
  for (const auto& [name, percent] : kPercentiles) {
    const std::uint64_t ticks = samples.percentile(percent);
    const std::uint64_t own = ticks - std::min(ticks, clock.overhead_ticks());
    state.counters[call + "_" + name] = static_cast<double>(own) * clock.ns_per_tick();
  }
}

// One iteration of `state` is a whole series: a million steps, or as many as `seconds` hold.
template <class Workload, class Prepare>
void measure_latency(benchmark::State& state, std::optional<Workload>& workload, CallTimes& times,
                     double seconds, Prepare prepare) {
  static const TickClock clock;
  try {
    prepare();
  } catch (const std::exception& error) {
    state.SkipWithError(error.what());
  }
  while (state.KeepRunning()) {
    try {
      times.mallocs.clear();
      times.frees.clear();
      const auto deadline = Clock::now() + std::chrono::duration<double>(seconds);
      while (!times.mallocs.is_full() && Clock::now() < deadline) {
        for (int i = 0; i < 100; ++i)
          workload->step();
      }
    } catch (const std::exception& error) {
      state.SkipWithError(error.what());
      return;
    }
  }
  if (times.mallocs.size() == 0) return;
  state.counters["samples"] = static_cast<double>(times.mallocs.size());
  state.counters["clock_ns"] = static_cast<double>(clock.overhead_ticks()) * clock.ns_per_tick();
  report_percentiles(state, clock, "malloc", times.mallocs);
  report_percentiles(state, clock, "free", times.frees);
}

}  // namespace quarry::bench
