// SPDX-License-Identifier: Apache-2.0
// All workloads for one peer: each is registered with Google Benchmark here, once, whichever the
// peer. Names are the rows of the table that compare.py prints; those that begin with latency/
// time single calls. Several threads use streams of their own.
#pragma once

#include <benchmark/benchmark.h>

#include <memory>
#include <optional>
#include <string>

#include "bench/workloads/churn.hpp"
#include "bench/workloads/handover.hpp"
#include "bench/workloads/latency.hpp"
#include "bench/workloads/measure.hpp"
#include "bench/workloads/pair.hpp"
#include "bench/workloads/suite_options.hpp"

namespace quarry::bench {

constexpr std::size_t kKiB = 1024;
constexpr std::size_t kMiB = 1024 * kKiB;

template <class Peer>
class Suite {
 public:
  using PlainLane = Lane<Peer>;
  using Timed = TimedLane<PlainLane>;

  Suite(Peer& peer, const SuiteOptions& options) : peer_(peer), options_(options) {}
  Suite(const Suite&) = delete;
  Suite& operator=(const Suite&) = delete;

  void add_all() {
    add<EqualPair<PlainLane>>("pair/512_B", 1, std::size_t{512});
    add<EqualPair<PlainLane>>("pair/1_MiB", 1, kMiB);
    add<EqualPair<PlainLane>>("pair/64_MiB", 1, 64 * kMiB);
    add<LayerSizes<PlainLane>>("layer/24_sizes", 1);
    add_churn("churn/4096_live_to_1_MiB", 1, 4096, SizeLaw::kUniform, kMiB);
    add_churn("churn/1024_live_log_to_64_MiB", 1, 1024, SizeLaw::kLogUniform, 64 * kMiB);
    for (const int threads : {1, 4, 8, 16})
      add<EqualPair<PlainLane>>("pair/64_KiB", threads, 64 * kKiB);
    for (const int threads : {1, 4, 8, 16})
      add_churn("churn/256_live_to_1_MiB", threads, 256, SizeLaw::kUniform, kMiB);
    add_handover();
    for (const std::size_t holes : {std::size_t{64}, std::size_t{65'536}})
      add_among_holes(holes);
    add_latencies();
  }

 private:
  // `arguments` follow the lane in the workload's constructor.
  template <class Workload, class... Arguments>
  void add(const std::string& name, int threads, Arguments... arguments) {
    const auto run = [this, arguments...](benchmark::State& state) {
      peer_.enter_thread();
      std::optional<Workload> workload;
      measure(state, workload, [&] {
        holes_of(state, 0);
        workload.emplace(PlainLane(peer_, state.thread_index()), arguments...);
        warm_up(*workload, 50'000);
      });
    };
    set_up(benchmark::RegisterBenchmark(name.c_str(), run), threads);
  }

  void add_churn(const std::string& name, int threads, std::size_t live, SizeLaw law,
                 std::size_t max_bytes) {
    const auto run = [this, live, law, max_bytes](benchmark::State& state) {
      peer_.enter_thread();
      std::optional<Churn<PlainLane>> workload;
      measure(state, workload, [&] {
        holes_of(state, 0);
        const int thread = state.thread_index();
        workload.emplace(PlainLane(peer_, thread), live, law, max_bytes, seed_of(thread));
        warm_up(*workload, 50'000);
      });
    };
    set_up(benchmark::RegisterBenchmark(name.c_str(), run), threads);
  }

  void add_handover() {
    const auto run = [this](benchmark::State& state) {
      using Side = typename Handover<PlainLane>::Side;
      peer_.enter_thread();
      std::optional<Handover<PlainLane>> workload;
      measure(state, workload, [&] {
        const Side side = state.thread_index() == 0 ? Side::kProducer : Side::kConsumer;
        workload.emplace(PlainLane(peer_, 0), ring_, side, 64 * kKiB);
        warm_up_exactly(*workload, 2000);
      });
      if (workload && workload->is_refused()) state.SkipWithError("out of memory");
    };
    set_up(benchmark::RegisterBenchmark("handover/64_KiB", run), 2);
  }

  void add_among_holes(std::size_t holes) {
    const std::string suffix = "_among_" + std::to_string(holes) + "_holes";
    const auto pair = [this, holes](benchmark::State& state) {
      peer_.enter_thread();
      std::optional<EqualPair<PlainLane>> workload;
      measure(state, workload, [&] {
        holes_of(state, holes);
        workload.emplace(PlainLane(peer_, 0), HoleField<PlainLane>::kMaxHole / 2);
        warm_up(*workload, 50'000);
      });
    };
    set_up(benchmark::RegisterBenchmark(("pair/32_KiB" + suffix).c_str(), pair), 1);
    const auto churn = [this, holes](benchmark::State& state) {
      peer_.enter_thread();
      std::optional<Churn<PlainLane>> workload;
      measure(state, workload, [&] {
        holes_of(state, holes);
        workload.emplace(PlainLane(peer_, 0), std::size_t{1024}, SizeLaw::kUniform,
                         HoleField<PlainLane>::kMaxHole, seed_of(0));
        warm_up(*workload, 50'000);
      });
    };
    set_up(benchmark::RegisterBenchmark(("churn/1024_live" + suffix).c_str(), churn), 1);
  }

  void add_latencies() {
    add_latency<EqualPair<Timed>>("latency/pair/512_B", std::size_t{512});
    add_latency<EqualPair<Timed>>("latency/pair/1_MiB", kMiB);
    add_latency<LayerSizes<Timed>>("latency/layer/24_sizes");
    add_latency<Churn<Timed>>("latency/churn/4096_live_to_1_MiB", std::size_t{4096},
                              SizeLaw::kUniform, kMiB, seed_of(0));
    add_latency<Churn<Timed>>("latency/churn/1024_live_log_to_64_MiB", std::size_t{1024},
                              SizeLaw::kLogUniform, 64 * kMiB, seed_of(0));
  }

  template <class Workload, class... Arguments>
  void add_latency(const std::string& name, Arguments... arguments) {
    const auto run = [this, arguments...](benchmark::State& state) {
      peer_.enter_thread();
      CallTimes times(1'000'000);
      std::optional<Workload> workload;
      measure_latency(state, workload, times, options_.latency_seconds, [&] {
        holes_of(state, 0);
        workload.emplace(Timed(PlainLane(peer_, 0), times), arguments...);
        warm_up(*workload, 50'000);
      });
    };
    benchmark::RegisterBenchmark(name.c_str(), run)->Iterations(1)->UseRealTime();
  }

  void set_up(benchmark::internal::Benchmark* registered, int threads) {
    registered->MinTime(options_.seconds)->UseRealTime();
    registered->Threads(threads);
  }

  // Making holes takes long where a malloc does: they stay until a row asks for another number.
  void holes_of(const benchmark::State& state, std::size_t holes) {
    if (state.thread_index() != 0 || (holes_ ? holes_->size() : 0) == holes) return;
    holes_.reset();
    if (holes > 0) holes_ = std::make_unique<HoleField<PlainLane>>(PlainLane(peer_, 0), holes);
  }

  static std::uint64_t seed_of(int thread) { return static_cast<std::uint64_t>(thread) + 1; }

  Peer& peer_;
  SuiteOptions options_;
  BlockRing ring_;
  std::unique_ptr<HoleField<PlainLane>> holes_;
};

// `options` as parse_suite_options left them; returns main's status.
template <class Peer>
int run_suite(Peer& peer, const SuiteOptions& options) {
  peer.enter_thread();
  {
    Suite<Peer> suite(peer, options);
    suite.add_all();
    benchmark::RunSpecifiedBenchmarks();
  }
  benchmark::Shutdown();
  return 0;
}

}  // namespace quarry::bench
