// SPDX-License-Identifier: Apache-2.0
// Several devices behind one allocator, and the end of an allocator whatever its state.
#include <gtest/gtest.h>

#include "core/thread_state.hpp"
#include "tests/support/scenario.hpp"

namespace quarry::test {
namespace {

ScenarioOptions with_devices(int count) {
  ScenarioOptions options;
  options.sim.device_count = count;
  options.sim.physical_bytes = 256_MiB;
  return options;
}

TEST(DevicesTest, FreeFindsTheDeviceOfAnAddress) {
  Scenario s(with_devices(3));
  Address blocks[3] = {};
  for (const DeviceId device : {0, 1, 2})
    blocks[device] = s.malloc(4096, StreamRef{device, kS0});
  for (const DeviceId device : {2, 0, 1}) {
    EXPECT_EQ(s.allocator().find_block(blocks[device]).value().stream.device, device);
    EXPECT_EQ(s.stats(device).allocation.all.current, 1);
    EXPECT_EQ(s.free(blocks[device]), StatusCode::kOk);
    EXPECT_EQ(s.stats(device).allocation.all.current, 0);
  }
}

TEST(DevicesTest, OneHandleOnTwoDevicesIsTwoStreams) {
  Scenario s(with_devices(2));
  const Address on_zero = s.malloc(4096, StreamRef{0, kS0});
  s.free(on_zero);
  EXPECT_NE(s.malloc(4096, StreamRef{1, kS0}), on_zero);
  EXPECT_EQ(s.malloc(4096, StreamRef{0, kS0}), on_zero);
}

TEST(DevicesTest, TheCacheOfOneIsEmptiedAlone) {
  Scenario s(with_devices(2));
  for (const DeviceId device : {0, 1})
    s.free(s.malloc(4096, StreamRef{device, kS0}));
  EXPECT_EQ(s.empty_cache(0), StatusCode::kOk);
  EXPECT_EQ(s.stats(0).reserved_bytes.all.current, 0);
  EXPECT_EQ(s.stats(1).reserved_bytes.all.current, static_cast<std::int64_t>(2_MiB));
  EXPECT_EQ(s.stats(1).num_sync_all_streams, 0);
}

TEST(DevicesTest, LimitsAndOutOfMemoryAreOfOneDevice) {
  Scenario s(with_devices(2));
  EXPECT_TRUE(s.allocator().set_limit(1, 20_MiB).is_ok());
  EXPECT_EQ(s.malloc(64_MiB, StreamRef{1, kS0}), 0u);
  EXPECT_NE(s.last_message().find("GPU 1 has a total capacity of 256.00 MiB"), std::string::npos);
  EXPECT_NE(s.malloc(64_MiB, StreamRef{0, kS0}), 0u);
  EXPECT_EQ(s.stats(0).num_ooms, 0);
  EXPECT_EQ(s.stats(1).num_ooms, 1);
  EXPECT_EQ(s.allocator().get_limit(0).value(), kUnlimited);
  EXPECT_EQ(s.allocator().get_limit(1).value(), 20_MiB);
}

TEST(DevicesTest, AShortageOnOneReleasesNothingOfAnother) {
  Scenario s(with_devices(2));
  s.free(s.malloc(200_MiB, StreamRef{0, kS0}));
  s.free(s.malloc(200_MiB, StreamRef{1, kS0}));
  EXPECT_NE(s.malloc(220_MiB, StreamRef{1, kS0}), 0u);
  EXPECT_EQ(s.stats(0).reserved_bytes.all.current, static_cast<std::int64_t>(200_MiB));
  EXPECT_EQ(s.stats(1).reserved_bytes.all.current, static_cast<std::int64_t>(220_MiB));
}

TEST(DevicesTest, SettingsReachEveryDevice) {
  Scenario s(with_devices(2));
  s.configure([](Config& config) {
    config.large_segment_bytes = 32_MiB;
    config.per_process_memory_fraction = 0.5;
  });
  for (const DeviceId device : {0, 1}) {
    s.malloc(2_MiB, StreamRef{device, kS0});
    EXPECT_EQ(s.stats(device).reserved_bytes.all.current, static_cast<std::int64_t>(32_MiB));
    EXPECT_EQ(s.allocator().get_memory_fraction(device).value(), 0.5);
  }
}

// --- the end -----------------------------------------------------------------------------------

void expect_nothing_held(SimDriver& sim, DeviceId device = 0) {
  const SimDriver::Holdings held = sim.get_holdings(device);
  EXPECT_EQ(held.physical_bytes, 0u);
  EXPECT_EQ(held.plain_allocations, 0u);
  EXPECT_EQ(held.events, 0u);
}

TEST(TearDownTest, EveryDevicesMemoryAndEventsGoBackWhateverTheirState) {
  sim::SimOptions options;
  options.device_count = 2;
  SimDriver sim(options);
  auto allocator = Allocator::create(sim, Config{}).value();
  for (const DeviceId device : {0, 1}) {
    const StreamRef side = sim.create_stream(device, sim::StreamKind::kNonBlocking);
    const StreamRef main{device, kS0};
    ASSERT_TRUE(allocator->allocate(main, 3_MiB).is_ok());  // live
    const Address pending = allocator->allocate(main, 4096).value();
    ASSERT_TRUE(allocator->record_stream(pending, side.handle).is_ok());
    ASSERT_EQ(sim.submit_work(side, sim::WorkTime::endless()), DriverCode::kSuccess);
    ASSERT_TRUE(allocator->free(pending).is_ok());
    const Address shared = allocator->allocate(main, 4096).value();  // live, with a foreign use
    ASSERT_TRUE(allocator->record_stream(shared, side.handle).is_ok());
    ASSERT_TRUE(allocator->free(allocator->allocate(side, 30_MiB).value()).is_ok());  // cached
    EXPECT_GT(sim.get_holdings(device).events, 0u);
  }
  allocator.reset();
  for (const DeviceId device : {0, 1})
    expect_nothing_held(sim, device);
  EXPECT_EQ(sim.misuse_count(), 0u);
}

TEST(TearDownTest, FreesQueuedByACallbackAreNoObstacle) {
  SimDriver sim;
  auto allocator = Allocator::create(sim, Config{}).value();
  const StreamRef side = sim.create_stream(0, sim::StreamKind::kNonBlocking);
  const Address p = allocator->allocate({0, kS0}, 4096).value();
  ASSERT_TRUE(allocator->record_stream(p, side.handle).is_ok());
  {
    DriverCallbackScope scope;
    ASSERT_TRUE(allocator->free(p).is_ok());
  }
  allocator->validate();
  allocator.reset();
  expect_nothing_held(sim);
}

TEST(TearDownTest, RetiredStreamsAreNotTouched) {
  SimDriver sim;
  auto allocator = Allocator::create(sim, Config{}).value();
  const StreamRef side = sim.create_stream(0, sim::StreamKind::kNonBlocking);
  const Address p = allocator->allocate(side, 4096).value();
  ASSERT_EQ(sim.submit_work(side, sim::WorkTime::lasting_us(50)), DriverCode::kSuccess);
  ASSERT_TRUE(allocator->free(p).is_ok());
  ASSERT_TRUE(allocator->retire_stream(side).is_ok());
  ASSERT_EQ(sim.destroy_stream(side), DriverCode::kSuccess);
  allocator.reset();
  expect_nothing_held(sim);
  EXPECT_EQ(sim.misuse_count(), 0u);
}

TEST(TearDownTest, ACaptureOfTheProgramSurvivesTheEnd) {
  SimDriver sim;
  auto allocator = Allocator::create(sim, Config{}).value();
  ASSERT_TRUE(allocator->allocate({0, kS0}, 4096).is_ok());
  const StreamRef stream = sim.create_stream(0, sim::StreamKind::kNonBlocking);
  ASSERT_EQ(sim.begin_capture(stream, CaptureMode::kGlobal), DriverCode::kSuccess);
  allocator.reset();
  EXPECT_TRUE(sim.end_capture(stream).is_ok());
  expect_nothing_held(sim);
}

}  // namespace
}  // namespace quarry::test
