// SPDX-License-Identifier: Apache-2.0
// The basic tests of PyTorch's TestCuda, under their names, against one simulated H200. Where they
// fill tensors and compare, the hazard oracle watches lifetimes instead (in Scenario).
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "tests/support/scenario.hpp"

namespace quarry::test {
namespace {

constexpr Bytes kDeviceBytes = 150'109'880'320;

// A device on which the context takes its usual part.
ScenarioOptions with_context() {
  ScenarioOptions options;
  options.sim.external_bytes = 600_MiB;
  return options;
}

TEST(TestCuda, test_memory_allocation) {
  Scenario s;
  s.malloc(4096);
  const Bytes before = s.allocated();
  const Address p = s.malloc(1);
  EXPECT_GT(s.allocated(), before);
  s.free(p);
  EXPECT_EQ(s.allocated(), before);
}

TEST(TestCuda, test_out_of_memory) {
  Scenario s(with_context());
  EXPECT_EQ(s.malloc(800'000'000_GiB), 0u);
  EXPECT_EQ(s.last_code(), StatusCode::kOutOfMemory);
  EXPECT_NE(s.last_message().find("Tried to allocate 800000000.00 GiB. GPU 0 has a total capacity "
                                  "of"),
            std::string::npos)
      << s.last_message();
  EXPECT_EQ(s.malloc(8'000'000'000_GiB), 0u);
  EXPECT_EQ(s.last_code(), StatusCode::kOutOfMemory);
  EXPECT_NE(s.last_message().find("Tried to allocate more than 1EB memory"), std::string::npos);
  EXPECT_NE(s.malloc(4096), 0u) << "no error sticks";
}

TEST(TestCuda, test_out_of_memory_retry) {
  Scenario s(with_context());
  const Address first = s.malloc(kDeviceBytes / 2);
  ASSERT_NE(first, 0u);
  EXPECT_EQ(s.malloc(kDeviceBytes / 2), 0u);
  EXPECT_EQ(s.last_code(), StatusCode::kOutOfMemory);
  s.free(first);
  EXPECT_NE(s.malloc(kDeviceBytes / 2), 0u);
}

TEST(TestCuda, test_set_per_process_memory_fraction) {
  Scenario s(with_context());
  Allocator& a = s.allocator();
  for (const double fraction : {-0.1, 2.0})
    EXPECT_EQ(a.set_memory_fraction(0, fraction).code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(a.set_memory_fraction(0, 0.5).is_ok());
  const Address almost_half = s.malloc(static_cast<Bytes>(0.499 * kDeviceBytes));
  ASSERT_NE(almost_half, 0u);
  s.free(almost_half);
  EXPECT_EQ(s.empty_cache(), StatusCode::kOk);
  EXPECT_EQ(s.malloc(kDeviceBytes / 2), 0u) << "its segment is rounded up";
  EXPECT_EQ(s.last_code(), StatusCode::kOutOfMemory);
  EXPECT_NE(s.last_message().find("CUDA out of memory"), std::string::npos);

  std::mt19937 random(0);
  for (const double fraction : {0.0, 1.0, std::uniform_real_distribution<>(0, 1)(random)}) {
    ASSERT_TRUE(a.set_memory_fraction(0, fraction).is_ok());
    EXPECT_EQ(a.get_memory_fraction(0).value(), fraction);
  }
}

TEST(TestCuda, test_record_stream) {
  Scenario s;
  const StreamHandle side = s.make_stream();
  const Address tensor = s.malloc(4096);
  s.record(tensor, side);
  s.busy(side);
  s.free(tensor);
  const Address other = s.malloc(4096);
  EXPECT_NE(other, tensor) << "the side stream still works on it";
  s.complete(side);
  EXPECT_EQ(s.malloc(4096), tensor) << "and now it does not";
}

TEST(TestCuda, test_record_stream_on_shifted_view) {
  Scenario s;
  const StreamHandle side = s.make_stream();
  const Address tensor = s.malloc(10 * 4096);
  const Address view = tensor + 4096 * 5;
  const Address storage = s.allocator().find_block(view).value().address;
  EXPECT_EQ(storage, tensor);
  s.record(storage, side);
  s.busy(side);
  s.free(storage);
  EXPECT_NE(s.malloc(10 * 4096), tensor);
  s.complete(side);
  EXPECT_EQ(s.malloc(10 * 4096), tensor);
}

TEST(TestCuda, test_caching_allocator_record_stream_oom) {
  Scenario s(2_GiB);
  const StreamHandle side = s.make_stream();
  const Bytes bytes = 40'000'000 * sizeof(float);
  const Address x = s.malloc(bytes);
  for (int round = 0; round < 100; ++round) {
    const Address y = s.malloc(bytes);
    ASSERT_NE(y, 0u) << "round " << round << ": " << s.last_message();
    s.record(y, side);
    s.busy(side);
    s.free(y);
  }
  s.free(x);
  EXPECT_GT(s.stats().num_alloc_retries, 0);
  EXPECT_EQ(s.stats().num_ooms, 0);
}

// What the statistics of one device are predicted to be.
struct Prediction {
  std::int64_t allocated = 0, peak_allocated = 0;
  std::vector<std::pair<Address, Bytes>> live;

  void check(const DeviceStats& stats) const {
    EXPECT_EQ(stats.allocated_bytes.all.current, allocated);
    EXPECT_EQ(stats.allocated_bytes.all.peak, peak_allocated);
    EXPECT_EQ(stats.allocation.all.current, static_cast<std::int64_t>(live.size()));
    EXPECT_GE(stats.reserved_bytes.all.current, allocated);
    EXPECT_GE(stats.reserved_bytes.all.peak, peak_allocated);
    EXPECT_EQ(stats.allocated_bytes.all.allocated - stats.allocated_bytes.all.freed, allocated);
  }
};

TEST(TestCudaMultiGpu, test_memory_stats) {
  ScenarioOptions options = with_context();
  options.sim.device_count = 2;
  Scenario s(options);
  std::mt19937 random(0);
  Prediction devices[2];
  for (int step = 0; step < 1500; ++step) {
    const DeviceId device = static_cast<DeviceId>(random() % 2);
    Prediction& expected = devices[device];
    if (expected.live.size() < 10 || random() % 2 == 0) {
      const Bytes bytes = 1 + random() % (random() % 4 == 0 ? 64_MiB : 512_KiB);
      const Address address = s.malloc(bytes, StreamRef{device, kS0});
      // Blocks that are not split may be larger than the request asks for.
      const Bytes block = s.allocator().find_block(address).value().bytes;
      expected.live.emplace_back(address, block);
      expected.allocated += static_cast<std::int64_t>(block);
      expected.peak_allocated = std::max(expected.peak_allocated, expected.allocated);
    } else {
      std::swap(expected.live[random() % expected.live.size()], expected.live.back());
      s.free(expected.live.back().first);
      expected.allocated -= static_cast<std::int64_t>(expected.live.back().second);
      expected.live.pop_back();
    }
    if (step % 200 == 0) {
      EXPECT_TRUE(s.allocator().reset_peak_stats(device).is_ok());
      expected.peak_allocated = expected.allocated;
    }
    for (const DeviceId checked : {0, 1})
      devices[checked].check(s.stats(checked));
  }
}

TEST(TestCuda, empty_cache_synchronizes_all_streams_exactly_once) {
  Scenario s;
  const StreamHandle side = s.make_stream();
  EXPECT_EQ(s.empty_cache(), StatusCode::kOk);
  EXPECT_EQ(s.stats().num_sync_all_streams, 1) << "even with nothing to do";
  const Address p = s.malloc(4096);
  s.record(p, side);
  s.busy(side);
  s.free(p);
  EXPECT_EQ(s.empty_cache(), StatusCode::kOk);
  EXPECT_EQ(s.stats().num_sync_all_streams, 2);
  EXPECT_EQ(s.reserved(), 0u) << "it waited for the side stream";
}

// One call is one, although it looks again after another thread's hold of the driver-free guard.
TEST(UpstreamEmptyCache, ItCountsOnceHoweverLongItWaitsForTheGuard) {
  Scenario s;
  s.free(s.malloc(4096));
  s.allocator().free_gate().lock();
  std::thread emptying([&] { EXPECT_TRUE(s.allocator().empty_cache(0).is_ok()); });
  while (s.stats().num_sync_all_streams == 0)
    std::this_thread::yield();  // its first look is one section under the device's mutex
  EXPECT_EQ(s.reserved(), 2_MiB) << "nothing is released under the guard";
  EXPECT_TRUE(s.allocator().free_gate().unlock());
  emptying.join();
  EXPECT_EQ(s.reserved(), 0u);
  EXPECT_EQ(s.stats().num_sync_all_streams, 1);
}

}  // namespace
}  // namespace quarry::test
