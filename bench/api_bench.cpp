// SPDX-License-Identifier: Apache-2.0
// What a program pays for a malloc and a free through the C API of the shared library, after
// warm-up: QUARRY_DRIVER=sim or cuda, QUARRY_CONF as wished. Threads use streams of their own; the
// handles are never given to the driver, since no block here has foreign uses.
#include <benchmark/benchmark.h>
#include <quarry/quarry.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <vector>

namespace {

quarry_stream get_stream(const benchmark::State& state) {
  const auto number = static_cast<std::uintptr_t>(state.thread_index());
  return reinterpret_cast<quarry_stream>((number + 1) << 12);
}

void* allocate(std::size_t bytes, quarry_stream stream) {
  void* ptr = nullptr;
  if (quarry_malloc(&ptr, bytes, 0, stream) != QUARRY_OK) std::abort();
  return ptr;
}

void equal_pair(benchmark::State& state) {
  const quarry_stream stream = get_stream(state);
  const auto bytes = static_cast<std::size_t>(state.range(0));
  for (int i = 0; i < 4; ++i)
    quarry_free(allocate(bytes, stream));
  for (auto _ : state)
    quarry_free(allocate(bytes, stream));
}
BENCHMARK(equal_pair)->Arg(512)->Arg(1 << 20)->Arg(64 << 20);
BENCHMARK(equal_pair)->Arg(64 << 10)->Threads(4)->Threads(8)->Threads(16)->UseRealTime();

// The activations of a transformer layer of a small model: each is allocated, and freed two later.
void layer_sizes(benchmark::State& state) {
  constexpr std::array<std::size_t, 24> kSizes = {
      3072, 9216,  12288, 393216, 786432, 4096,   8192,   16384,  98304,  196608, 512,   1024,
      2048, 24576, 49152, 65536,  131072, 262144, 524288, 655360, 327680, 163840, 81920, 40960};
  const quarry_stream stream = get_stream(state);
  std::array<void*, 3> held{};
  std::size_t next = 0;
  const auto step = [&](std::size_t i) {
    quarry_free(held[i % held.size()]);
    held[i % held.size()] = allocate(kSizes[i % kSizes.size()], stream);
  };
  for (; next < 4 * kSizes.size(); ++next)
    step(next);
  for (auto _ : state)
    step(next++);
  for (void* ptr : held)
    quarry_free(ptr);
}
BENCHMARK(layer_sizes);

// A constant number of live blocks of random sizes: each step frees one and allocates one.
void churn(benchmark::State& state) {
  const quarry_stream stream = get_stream(state);
  std::mt19937_64 random(static_cast<std::uint64_t>(state.thread_index()) + 1);
  const double log_max = std::log(static_cast<double>(state.range(1)));
  const bool is_log_uniform = state.range(2) != 0;
  const auto draw = [&]() -> std::size_t {
    if (!is_log_uniform) return 1 + random() % static_cast<std::uint64_t>(state.range(1));
    const double part = static_cast<double>(random() >> 11) * 0x1p-53;
    return static_cast<std::size_t>(
        std::exp(std::log(512.0) + part * (log_max - std::log(512.0))));
  };
  std::vector<void*> blocks(static_cast<std::size_t>(state.range(0)));
  for (void*& block : blocks)
    block = allocate(draw(), stream);
  const auto step = [&] {
    void*& block = blocks[random() % blocks.size()];
    quarry_free(block);
    block = allocate(draw(), stream);
  };
  for (int i = 0; i < 100'000; ++i)
    step();
  for (auto _ : state)
    step();
  for (void* block : blocks)
    quarry_free(block);
}
BENCHMARK(churn)
    ->ArgNames({"live", "max", "log"})
    ->Args({4096, 1 << 20, 0})
    ->Args({1024, 64 << 20, 1});
BENCHMARK(churn)
    ->ArgNames({"live", "max", "log"})
    ->Args({256, 1 << 20, 0})
    ->Threads(16)
    ->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
