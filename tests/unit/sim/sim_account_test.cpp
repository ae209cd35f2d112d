// SPDX-License-Identifier: Apache-2.0
// Faults, counts, modelled cost and misuse of the simulated device.
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "sim/cost_model.hpp"
#include "sim/sim_driver.hpp"

namespace quarry {
namespace {

TEST(SimFaultTest, TheKthCallOfAnEntryFailsOnceAndChangesNothing) {
  SimDriver sim;
  sim.fail_call(DriverEntry::kAllocate, 2, DriverCode::kOutOfMemory);
  EXPECT_TRUE(sim.allocate(0, 2_MiB).is_ok());
  ASSERT_TRUE(sim.get_memory_info(0).is_ok());
  EXPECT_EQ(sim.allocate(0, 2_MiB).code, DriverCode::kOutOfMemory);
  EXPECT_EQ(sim.get_holdings(0).physical_bytes, 2_MiB);
  EXPECT_TRUE(sim.allocate(0, 2_MiB).is_ok());
  EXPECT_EQ(sim.injected_fault_count(), 1u);
}

TEST(SimFaultTest, TheKthCallOfAnyEntryCountsFromNow) {
  SimDriver sim;
  ASSERT_TRUE(sim.get_device_count().is_ok());
  sim.fail_any_call(3, DriverCode::kUnknown);
  EXPECT_TRUE(sim.get_device_count().is_ok());
  EXPECT_TRUE(sim.get_memory_info(0).is_ok());
  EXPECT_EQ(sim.create_event(0).code, DriverCode::kUnknown);
  EXPECT_EQ(sim.get_holdings(0).events, 0u);
  EXPECT_TRUE(sim.create_event(0).is_ok());
}

TEST(SimFaultTest, FaultsCountOnTheirOwn) {
  SimDriver sim;
  sim.fail_call(DriverEntry::kGetDeviceCount, 1, DriverCode::kUnknown);
  sim.fail_call(DriverEntry::kGetDeviceCount, 2, DriverCode::kNoDevice);
  EXPECT_EQ(sim.get_device_count().code, DriverCode::kUnknown);
  EXPECT_EQ(sim.get_device_count().code, DriverCode::kNoDevice);
  EXPECT_TRUE(sim.get_device_count().is_ok());
}

TEST(SimFaultTest, APredicateOnTheSizeFailsEveryCallThatSatisfiesIt) {
  SimDriver sim;
  sim.fail_calls_if(
      DriverEntry::kReserveAddresses, [](Bytes bytes) { return bytes > 8_GiB; },
      DriverCode::kOutOfMemory);
  EXPECT_EQ(sim.reserve_addresses(16_GiB, 0).code, DriverCode::kOutOfMemory);
  EXPECT_TRUE(sim.reserve_addresses(8_GiB, 0).is_ok());
  EXPECT_EQ(sim.reserve_addresses(9_GiB, 0).code, DriverCode::kOutOfMemory);
  sim.clear_faults();
  EXPECT_TRUE(sim.reserve_addresses(16_GiB, 0).is_ok());
}

// The stream that captures, on which nothing else of the list is called.
StreamRef begin_capture(SimDriver& sim) {
  const StreamRef stream = sim.create_stream(0, sim::StreamKind::kNonBlocking);
  EXPECT_EQ(sim.begin_capture(stream, CaptureMode::kRelaxed), DriverCode::kSuccess);
  return stream;
}

// Every entry once, with valid arguments. Returns the code of the call.
std::vector<std::function<DriverCode(SimDriver&)>> make_one_call_of_each_entry() {
  static const std::vector<DeviceId> devices{0};
  const StreamRef stream{0, StreamHandle::kPerThread};
  const auto extent = [](SimDriver& sim) { return sim.create_extent(0, 2_MiB, {}).value; };
  return {
      [](SimDriver& sim) { return sim.get_device_count().code; },
      [](SimDriver& sim) { return sim.get_device_properties(0).code; },
      [](SimDriver& sim) { return sim.get_memory_info(0).code; },
      [](SimDriver& sim) { return sim.enable_peer_access(0, 1); },
      [](SimDriver& sim) { return sim.allocate(0, 512).code; },
      [](SimDriver& sim) { return sim.free(0, sim.allocate(0, 512).value); },
      [](SimDriver& sim) { return sim.reserve_addresses(2_MiB, 0).code; },
      [](SimDriver& sim) {
        return sim.free_addresses(sim.reserve_addresses(2_MiB, 0).value, 2_MiB);
      },
      [](SimDriver& sim) { return sim.create_extent(0, 2_MiB, {}).code; },
      [extent](SimDriver& sim) { return sim.release_extent(extent(sim)); },
      [extent](SimDriver& sim) {
        return sim.map(sim.reserve_addresses(2_MiB, 0).value, 2_MiB, extent(sim));
      },
      [extent](SimDriver& sim) {
        const Address address = sim.reserve_addresses(2_MiB, 0).value;
        static_cast<void>(sim.map(address, 2_MiB, extent(sim)));
        return sim.unmap(address, 2_MiB);
      },
      [extent](SimDriver& sim) {
        const Address address = sim.reserve_addresses(2_MiB, 0).value;
        static_cast<void>(sim.map(address, 2_MiB, extent(sim)));
        return sim.set_access(address, 2_MiB, devices);
      },
      [extent](SimDriver& sim) {
        const Address address = sim.reserve_addresses(2_MiB, 0).value;
        static_cast<void>(sim.map(address, 2_MiB, extent(sim)));
        return sim.revoke_access(address, 2_MiB, 0);
      },
      [](SimDriver& sim) { return sim.create_event(0).code; },
      [](SimDriver& sim) { return sim.destroy_event(sim.create_event(0).value); },
      [stream](SimDriver& sim) { return sim.record_event(sim.create_event(0).value, stream); },
      [](SimDriver& sim) { return sim.record_context_event(sim.create_event(0).value, 0); },
      [](SimDriver& sim) { return sim.query_event(sim.create_event(0).value); },
      [](SimDriver& sim) { return sim.synchronize_event(sim.create_event(0).value); },
      [stream](SimDriver& sim) { return sim.wait_event(stream, sim.create_event(0).value); },
      [stream](SimDriver& sim) { return sim.get_capture_status(stream).code; },
      [stream](SimDriver& sim) { return sim.get_capture_info(stream).code; },
      [](SimDriver& sim) {
        return sim.call_when_graph_is_gone(
            begin_capture(sim), [](void*) {}, nullptr);
      },
      [](SimDriver& sim) {
        std::vector<GraphNode> nodes;
        return sim.get_capture_frontier(begin_capture(sim), nodes);
      },
      [](SimDriver& sim) {
        const StreamRef capturing = begin_capture(sim);
        sim.submit_work(capturing, {});
        std::vector<GraphNode> nodes;
        static_cast<void>(sim.get_capture_frontier(capturing, nodes));
        return sim.get_predecessors(nodes.empty() ? GraphNode{} : nodes[0], nodes);
      },
      [stream](SimDriver& sim) { return sim.get_stream_id(stream).code; },
      [](SimDriver& sim) { return sim.exchange_capture_mode(CaptureMode::kGlobal).code; },
  };
}

class EveryEntryTest : public testing::TestWithParam<int> {};

TEST_P(EveryEntryTest, IsCountedCostedFailedOnDemandAndRefusedInACallback) {
  const auto entry = static_cast<DriverEntry>(GetParam());
  const auto call = make_one_call_of_each_entry()[static_cast<std::size_t>(GetParam())];
  SimDriver sim({.device_count = 2});
  EXPECT_EQ(call(sim), DriverCode::kSuccess);
  EXPECT_EQ(sim.call_count(entry), 1u);
  EXPECT_GT(sim.driver_time_ns(entry), 0u);

  sim.fail_call(entry, 1, DriverCode::kContextDestroyed);
  EXPECT_EQ(call(sim), DriverCode::kContextDestroyed);
  EXPECT_EQ(call(sim), DriverCode::kSuccess);
  EXPECT_EQ(sim.call_count(entry), 3u);

  sim.set_callback_thread(true);
  sim.reset_call_counts();
  EXPECT_EQ(call(sim), DriverCode::kNotPermitted);
  ASSERT_GE(sim.misuse_count(), 1u);
  EXPECT_EQ(sim.get_misuses().back().kind, sim::MisuseKind::kCallbackThread);
  EXPECT_EQ(sim.get_misuses().back().entry, entry);
  sim.set_callback_thread(false);
  EXPECT_EQ(call(sim), DriverCode::kSuccess);
}

INSTANTIATE_TEST_SUITE_P(All, EveryEntryTest, testing::Range(0, kDriverEntryCount),
                         [](const auto& instance) {
                           return std::string(get_name(static_cast<DriverEntry>(instance.param)));
                         });

TEST(SimCostTest, TheMeasuredFiguresComeBack) {
  using sim::calculate_cost_ns;
  EXPECT_EQ(calculate_cost_ns(DriverEntry::kAllocate, {.bytes = 2_MiB}), 77'000u);
  EXPECT_EQ(calculate_cost_ns(DriverEntry::kAllocate, {.bytes = 256_MiB}), 105'000u);
  EXPECT_EQ(calculate_cost_ns(DriverEntry::kAllocate, {.bytes = 512, .fits_open_page = true}),
            3'700u);
  EXPECT_EQ(calculate_cost_ns(DriverEntry::kAllocate, {.bytes = 1_GiB, .has_failed = true}),
            307'000u);
  EXPECT_EQ(calculate_cost_ns(DriverEntry::kReleaseExtent, {.bytes = 1_GiB}), 638'000u);
  EXPECT_EQ(calculate_cost_ns(DriverEntry::kUnmap, {.bytes = 64_MiB, .count = 32}), 32 * 22'000u);
  EXPECT_EQ(calculate_cost_ns(DriverEntry::kRecordContextEvent, {.count = 64}), 813u);
  EXPECT_EQ(calculate_cost_ns(DriverEntry::kRecordContextEvent, {.count = 0}), 187u);
}

TEST(SimCostTest, BetweenMeasuredSizesCostRisesMonotonically) {
  for (const DriverEntry entry : {DriverEntry::kAllocate, DriverEntry::kFree}) {
    std::uint64_t last = 0;
    for (Bytes bytes = 1_MiB; bytes <= 64_GiB; bytes += bytes / 2) {
      const std::uint64_t ns = sim::calculate_cost_ns(entry, {.bytes = bytes});
      EXPECT_GE(ns, last) << bytes;
      last = ns;
    }
  }
}

TEST(SimCostTest, CallsTakeVirtualTimeOnlyIfAsked) {
  SimDriver still;
  ASSERT_TRUE(still.allocate(0, 2_MiB).is_ok());
  EXPECT_EQ(still.now_ns(), 0u);
  EXPECT_EQ(still.driver_time_ns(), 77'000u);
  SimDriver moving({.calls_take_time = true});
  ASSERT_TRUE(moving.allocate(0, 2_MiB).is_ok());
  EXPECT_EQ(moving.now_ns(), 77'000u);
}

TEST(SimCostTest, AContextRecordCostsByBusyStreams) {
  SimDriver sim;
  for (int i = 0; i < 64; ++i) {
    sim.submit_work(sim.create_stream(0, sim::StreamKind::kNonBlocking), sim::WorkTime::endless());
  }
  EXPECT_EQ(sim.record_context_event(sim.create_event(0).value, 0), DriverCode::kSuccess);
  EXPECT_EQ(sim.driver_time_ns(DriverEntry::kRecordContextEvent), 813u);
}

TEST(SimCurrentDeviceTest, NoCallChangesTheCallersDevice) {
  SimDriver sim({.device_count = 2});
  sim.set_current_device(1);
  for (const auto& call : make_one_call_of_each_entry()) {
    EXPECT_EQ(call(sim), DriverCode::kSuccess);
    EXPECT_EQ(sim.get_current_device(), 1);
  }
}

}  // namespace
}  // namespace quarry
