// SPDX-License-Identifier: Apache-2.0
// The core's own cost, over the simulated device with the oracle off: what a malloc and a free
// take when the cache serves them.
#include <benchmark/benchmark.h>

#include <memory>
#include <random>
#include <vector>

#include "core/allocator.hpp"
#include "sim/sim_driver.hpp"

namespace quarry {
namespace {

struct Device {
  Device() : sim(make_options()), allocator(Allocator::create(sim, Config{}).value()) {}

  static sim::SimOptions make_options() {
    sim::SimOptions options;
    options.oracle = false;
    return options;
  }
  Address allocate(Bytes bytes, StreamHandle stream = StreamHandle::kLegacy) {
    return allocator->allocate({0, stream}, bytes).value();
  }
  void free(Address address) { static_cast<void>(allocator->free(address)); }

  SimDriver sim;
  std::unique_ptr<Allocator> allocator;
};

// The same size again and again.
void equal_pair(benchmark::State& state) {
  Device device;
  const auto bytes = static_cast<Bytes>(state.range(0));
  device.free(device.allocate(bytes));
  for (auto _ : state) device.free(device.allocate(bytes));
}
BENCHMARK(equal_pair)->Arg(512)->Arg(64 << 10)->Arg(1 << 20)->Arg(16 << 20);

// Random sizes with a constant number of live blocks: each step frees one and allocates one.
void churn(benchmark::State& state) {
  Device device;
  const auto live = static_cast<std::size_t>(state.range(0));
  const auto max_bytes = static_cast<Bytes>(state.range(1));
  std::mt19937_64 random(1);
  const auto draw = [&] { return 1 + random() % max_bytes; };
  std::vector<Address> blocks(live);
  for (Address& block : blocks) block = device.allocate(draw());
  for (auto _ : state) {
    Address& block = blocks[random() % live];
    device.free(block);
    block = device.allocate(draw());
  }
}
BENCHMARK(churn)->Args({4096, 1 << 20})->Args({1024, 64 << 20});

// A block that a second stream uses too: one event recorded and queried a round.
void foreign_use_pair(benchmark::State& state) {
  Device device;
  const StreamRef side = device.sim.create_stream(0, sim::StreamKind::kNonBlocking);
  for (auto _ : state) {
    const Address block = device.allocate(1 << 20);
    static_cast<void>(device.allocator->record_stream(block, side.handle));
    device.free(block);
  }
}
BENCHMARK(foreign_use_pair);

}  // namespace
}  // namespace quarry

BENCHMARK_MAIN();
