// SPDX-License-Identifier: Apache-2.0
// The simulated device and its threads: default streams of each, capture modes of each, and many
// at once (run under the thread sanitizer by the tsan preset).
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "sim/sim_driver.hpp"

namespace quarry {
namespace {

using sim::WorkTime;

constexpr StreamRef kMine{0, StreamHandle::kPerThread};

TEST(SimThreadsTest, HandleTwoIsAnotherStreamInEachThread) {
  SimDriver sim;
  const StreamId here = sim.get_stream_id(kMine).value;
  EXPECT_EQ(sim.get_stream_id(kMine).value, here);
  StreamId there{};
  StreamRef named;
  std::thread([&] {
    there = sim.get_stream_id(kMine).value;
    named = sim.get_per_thread_stream(0, sim::get_this_thread());
  }).join();
  EXPECT_NE(here, there);
  EXPECT_EQ(sim.get_stream_id(named).value, there);
}

TEST(SimThreadsTest, OneHandleInTwoThreadsIsNoOrder) {
  SimDriver sim;
  const Address address = sim.allocate(0, 2_MiB).value;
  std::thread([&] {
    const auto id = sim.begin_lifetime(0, address, 512, kMine);
    sim.use(id, kMine);
    sim.end_lifetime(id);
  }).join();
  sim.begin_lifetime(0, address, 512, kMine);
  ASSERT_EQ(sim.hazard_count(), 1u);
  EXPECT_EQ(sim.get_hazards()[0].kind, sim::HazardKind::kUnordered);
}

TEST(SimThreadsTest, WorkOfAnotherThreadsStreamCanBeCompletedFromHere) {
  SimDriver sim;
  StreamRef named;
  EventHandle event{};
  std::thread([&] {
    sim.submit_work(kMine, WorkTime::endless());
    event = sim.create_event(0).value;
    EXPECT_EQ(sim.record_event(event, kMine), DriverCode::kSuccess);
    named = sim.get_per_thread_stream(0, sim::get_this_thread());
  }).join();
  EXPECT_EQ(sim.query_event(event), DriverCode::kNotReady);
  sim.complete(named);
  EXPECT_EQ(sim.query_event(event), DriverCode::kSuccess);
}

TEST(SimThreadsTest, TheCaptureModeIsTheThreadsOwn) {
  SimDriver sim;
  EXPECT_EQ(sim.exchange_capture_mode(CaptureMode::kRelaxed).value, CaptureMode::kGlobal);
  std::thread([&] {
    EXPECT_EQ(sim.exchange_capture_mode(CaptureMode::kThreadLocal).value, CaptureMode::kGlobal);
  }).join();
  EXPECT_EQ(sim.exchange_capture_mode(CaptureMode::kGlobal).value, CaptureMode::kRelaxed);
}

TEST(SimThreadsTest, TheCurrentDeviceIsTheThreadsOwn) {
  SimDriver sim({.device_count = 2});
  sim.set_current_device(1);
  std::thread([&] { EXPECT_EQ(sim.get_current_device(), 0); }).join();
  EXPECT_EQ(sim.get_current_device(), 1);
}

TEST(SimThreadsTest, ManyThreadsAtOnceBalance) {
  SimDriver sim({.device_count = 2});
  constexpr int kThreads = 8;
  constexpr int kRounds = 500;
  std::atomic<int> failures{0};
  const auto work = [&](DeviceId device) {
    const StreamRef mine{device, StreamHandle::kPerThread};
    const EventHandle event = sim.create_event(device).value;
    for (int round = 0; round < kRounds; ++round) {
      const CaptureModeBracket bracket(sim);
      const auto address = sim.allocate(device, 512 + 4096 * static_cast<Bytes>(round % 9));
      const auto id = sim.begin_lifetime(device, address.value, 512, mine);
      sim.submit_work(mine, WorkTime::lasting_us(3), {&id, 1});
      if (sim.record_event(event, mine) != DriverCode::kSuccess) ++failures;
      sim.end_lifetime(id);
      if (round % 3 == 0 && sim.synchronize_event(event) != DriverCode::kSuccess) ++failures;
      if (sim.free(device, address.value) != DriverCode::kSuccess) ++failures;
    }
    if (sim.destroy_event(event) != DriverCode::kSuccess) ++failures;
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back(work, t % 2);
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(failures.load(), 0);
  EXPECT_EQ(sim.hazard_count(), 0u);
  EXPECT_EQ(sim.misuse_count(), 0u);
  for (const DeviceId device : {0, 1}) {
    EXPECT_EQ(sim.get_holdings(device).physical_bytes, 0u);
    EXPECT_EQ(sim.get_holdings(device).events, 0u);
  }
  EXPECT_EQ(sim.call_count(DriverEntry::kFree), std::uint64_t{kThreads} * kRounds);
}

}  // namespace
}  // namespace quarry
