// SPDX-License-Identifier: Apache-2.0
// The oracle's rules one by one: what orders two uses, what does not, and what else is a hazard.
// The mutants test shows that it catches an allocator's faults; this one, that it does so for the
// right reason and stays silent otherwise.
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "sim/sim_driver.hpp"

namespace quarry {
namespace {

using sim::HazardKind;
using sim::LifetimeId;
using sim::WorkTime;

class HazardOracleTest : public testing::Test {
 protected:
  LifetimeId hand_out(Address address, Bytes bytes, StreamRef stream) {
    const LifetimeId id = sim_.begin_lifetime(0, address, bytes, stream);
    sim_.use(id, stream);
    return id;
  }
  void hand_out_and_back(Address address, Bytes bytes, StreamRef stream) {
    sim_.end_lifetime(hand_out(address, bytes, stream));
  }
  EventHandle record(StreamRef stream) {
    const EventHandle event = sim_.create_event(stream.device).value;
    EXPECT_EQ(sim_.record_event(event, stream), DriverCode::kSuccess);
    return event;
  }
  void wait(StreamRef stream, EventHandle event) {
    EXPECT_EQ(sim_.wait_event(stream, event), DriverCode::kSuccess);
  }
  Address map(Address address, ExtentHandle extent) {
    EXPECT_EQ(sim_.map(address, 2_MiB, extent), DriverCode::kSuccess);
    const std::array<DeviceId, 1> devices{0};
    EXPECT_EQ(sim_.set_access(address, 2_MiB, devices), DriverCode::kSuccess);
    return address;
  }
  std::vector<HazardKind> kinds() const {
    std::vector<HazardKind> kinds;
    for (const sim::Hazard& hazard : sim_.get_hazards())
      kinds.push_back(hazard.kind);
    return kinds;
  }
  void expect_only(HazardKind kind) {
    EXPECT_EQ(kinds(), std::vector<HazardKind>{kind});
    sim_.clear_hazards();
  }
  void expect_clean() {
    for (const sim::Hazard& hazard : sim_.get_hazards())
      ADD_FAILURE() << hazard.text;
  }

  SimDriver sim_{{.device_count = 2}};
  const StreamRef a_ = sim_.create_stream(0, sim::StreamKind::kNonBlocking);
  const StreamRef b_ = sim_.create_stream(0, sim::StreamKind::kNonBlocking);
  const StreamRef c_ = sim_.create_stream(0, sim::StreamKind::kNonBlocking);
  const Address memory_ = sim_.allocate(0, 4_MiB).value;
};

TEST_F(HazardOracleTest, OneStreamReusesItsMemoryAtOnce) {
  hand_out_and_back(memory_, 1_MiB, a_);
  hand_out_and_back(memory_ + 512, 2_MiB, a_);
  hand_out_and_back(memory_, 4_MiB, a_);
  expect_clean();
}

TEST_F(HazardOracleTest, NeighboursDoNotDisturbEachOther) {
  hand_out(memory_, 1_MiB, a_);
  hand_out(memory_ + 1_MiB, 512, b_);
  hand_out(memory_ + 1_MiB + 512, 512, c_);
  expect_clean();
}

TEST_F(HazardOracleTest, LiveMemoryHandedOutAgainIsAHazardEvenOnOneStream) {
  hand_out(memory_, 1_MiB, a_);
  hand_out(memory_ + 1_MiB - 512, 1_MiB, a_);
  expect_only(HazardKind::kHandedOutTwice);
}

// What the host has seen of a neighbour is forgotten; what it has not is kept.
TEST_F(HazardOracleTest, ANeighbourThatMayStillRunIsNotForgotten) {
  hand_out_and_back(memory_, 1_MiB, a_);
  hand_out_and_back(memory_ + 2_MiB, 1_MiB, b_);
  EXPECT_EQ(sim_.synchronize_event(record(b_)), DriverCode::kSuccess);
  hand_out_and_back(memory_ + 1_MiB, 1_MiB, c_);
  hand_out_and_back(memory_ + 2_MiB, 1_MiB, c_);
  expect_clean();
  hand_out_and_back(memory_, 1_MiB, c_);
  expect_only(HazardKind::kUnordered);
}

TEST_F(HazardOracleTest, VirtualTimeAloneIsNoOrder) {
  hand_out_and_back(memory_, 1_MiB, a_);
  sim_.advance_by_us(1'000'000);
  hand_out(memory_, 1_MiB, b_);
  expect_only(HazardKind::kUnordered);
}

TEST_F(HazardOracleTest, AQueryThatFailedIsNoOrder) {
  sim_.submit_work(a_, WorkTime::lasting_us(10));
  hand_out_and_back(memory_, 1_MiB, a_);
  EXPECT_EQ(sim_.query_event(record(a_)), DriverCode::kNotReady);
  sim_.advance_by_us(10);
  hand_out(memory_, 1_MiB, b_);
  expect_only(HazardKind::kUnordered);
}

TEST_F(HazardOracleTest, AnEventRecordedBeforeTheUseIsNoOrder) {
  const LifetimeId id = hand_out(memory_, 1_MiB, a_);
  const EventHandle event = record(a_);
  sim_.use(id, a_);
  sim_.end_lifetime(id);
  EXPECT_EQ(sim_.query_event(event), DriverCode::kSuccess);
  hand_out(memory_, 1_MiB, b_);
  expect_only(HazardKind::kUnordered);
}

TEST_F(HazardOracleTest, OrderIsTransitiveThroughOtherStreams) {
  hand_out_and_back(memory_, 1_MiB, a_);
  wait(b_, record(a_));
  wait(c_, record(b_));
  hand_out(memory_, 1_MiB, c_);
  expect_clean();
}

TEST_F(HazardOracleTest, WhatTheHostSawOfOneStreamCoversWhatThatStreamHadWaitedFor) {
  hand_out_and_back(memory_, 1_MiB, a_);
  wait(b_, record(a_));
  EXPECT_EQ(sim_.query_event(record(b_)), DriverCode::kSuccess);
  hand_out(memory_, 1_MiB, c_);
  expect_clean();
}

TEST_F(HazardOracleTest, AnEventFromBeforeTheWaitDoesNotCoverIt) {
  hand_out_and_back(memory_, 1_MiB, a_);
  const EventHandle early = record(b_);
  wait(b_, record(a_));
  wait(c_, early);
  hand_out(memory_, 1_MiB, c_);
  expect_only(HazardKind::kUnordered);
}

TEST_F(HazardOracleTest, EveryRecordedStreamCounts) {
  const LifetimeId id = hand_out(memory_, 1_MiB, a_);
  sim_.use(id, b_);
  sim_.use(id, c_);
  sim_.end_lifetime(id);
  wait(a_, record(b_));
  hand_out(memory_, 1_MiB, a_);
  expect_only(HazardKind::kUnordered);
}

TEST_F(HazardOracleTest, AnUnusedLifetimeInBetweenHidesNothing) {
  hand_out_and_back(memory_, 1_MiB, a_);
  sim_.end_lifetime(sim_.begin_lifetime(0, memory_, 1_MiB, a_));
  hand_out(memory_, 1_MiB, b_);
  expect_only(HazardKind::kUnordered);
}

TEST_F(HazardOracleTest, AnUnusedLifetimeOfIdleMemoryNeedsNoOrder) {
  hand_out_and_back(memory_, 1_MiB, a_);
  EXPECT_EQ(sim_.user_synchronizes(a_), DriverCode::kSuccess);
  sim_.use({memory_ + 2_MiB, 512}, b_);
  sim_.end_lifetime(sim_.begin_lifetime(0, memory_, 1_MiB, b_));
  hand_out(memory_, 1_MiB, c_);
  expect_clean();
}

TEST_F(HazardOracleTest, OrderMadeByTheUserCounts) {
  hand_out_and_back(memory_, 1_MiB, a_);
  EXPECT_EQ(sim_.user_orders(a_, b_), DriverCode::kSuccess);
  hand_out(memory_, 1_MiB, b_);
  expect_clean();
  EXPECT_EQ(sim_.call_count(DriverEntry::kWaitEvent), 0u);
}

TEST_F(HazardOracleTest, TheLegacyStreamIsOrderedWithBlockingStreamsOnly) {
  const StreamRef legacy{0, StreamHandle::kLegacy};
  const StreamRef blocking = sim_.create_stream(0, sim::StreamKind::kBlocking);
  hand_out_and_back(memory_, 512, blocking);
  hand_out_and_back(memory_ + 1_MiB, 512, a_);
  sim_.submit_work(legacy, WorkTime::lasting_us(1));
  hand_out(memory_, 512, legacy);
  expect_clean();
  hand_out(memory_ + 1_MiB, 512, legacy);
  expect_only(HazardKind::kUnordered);
}

TEST_F(HazardOracleTest, APartOfAnEarlierBlockIsEnough) {
  hand_out_and_back(memory_, 4_MiB, a_);
  hand_out_and_back(memory_ + 2_MiB, 1_MiB, a_);
  hand_out(memory_ + 3_MiB, 512, b_);
  expect_only(HazardKind::kUnordered);
  EXPECT_EQ(sim_.user_synchronizes(a_), DriverCode::kSuccess);
  hand_out(memory_ + 512, 512, b_);
  expect_clean();
}

TEST_F(HazardOracleTest, MemoryWithoutAnythingBehindItIsAHazard) {
  sim_.begin_lifetime(0, memory_ + 4_MiB - 512, 1024, a_);
  expect_only(HazardKind::kNotBacked);
  EXPECT_EQ(sim_.free(0, sim_.allocate(0, 8_MiB).value), DriverCode::kSuccess);
  sim_.begin_lifetime(0, 12345, 512, a_);
  expect_only(HazardKind::kNotBacked);
}

TEST_F(HazardOracleTest, MappedMemoryWithoutAccessIsAHazard) {
  const Address base = sim_.reserve_addresses(8_MiB, 0).value;
  const ExtentHandle extent = sim_.create_extent(0, 2_MiB, {}).value;
  ASSERT_EQ(sim_.map(base, 2_MiB, extent), DriverCode::kSuccess);
  sim_.begin_lifetime(0, base, 2_MiB, a_);
  expect_only(HazardKind::kNotBacked);
}

TEST_F(HazardOracleTest, AMappingWithAHoleIsAHazard) {
  const Address base = sim_.reserve_addresses(8_MiB, 0).value;
  map(base, sim_.create_extent(0, 2_MiB, {}).value);
  map(base + 4_MiB, sim_.create_extent(0, 2_MiB, {}).value);
  hand_out(base, 2_MiB, a_);
  hand_out(base + 4_MiB, 2_MiB, a_);
  expect_clean();
  sim_.begin_lifetime(0, base + 2_MiB, 2_MiB, a_);
  expect_only(HazardKind::kNotBacked);
}

TEST_F(HazardOracleTest, MemoryOfAnotherDeviceIsAHazard) {
  const Address there = sim_.allocate(1, 2_MiB).value;
  sim_.begin_lifetime(0, there, 512, a_);
  expect_only(HazardKind::kNotBacked);
}

TEST_F(HazardOracleTest, APeerReachesPlainMemoryOnceItMay) {
  const StreamRef there = sim_.create_stream(1, sim::StreamKind::kNonBlocking);
  const LifetimeId id = hand_out(memory_, 512, a_);
  sim_.use(id, there);
  expect_only(HazardKind::kAccessUnmapped);
  EXPECT_EQ(sim_.enable_peer_access(1, 0), DriverCode::kSuccess);
  sim_.use(id, there);
  expect_clean();
}

TEST_F(HazardOracleTest, PlainFreeOrdersItsOwnDeviceOnly) {
  EXPECT_EQ(sim_.enable_peer_access(1, 0), DriverCode::kSuccess);
  const StreamRef there = sim_.create_stream(1, sim::StreamKind::kNonBlocking);
  const LifetimeId id = hand_out(memory_, 512, a_);
  sim_.use(id, there);
  sim_.end_lifetime(id);
  EXPECT_EQ(sim_.free(0, memory_), DriverCode::kSuccess);
  expect_only(HazardKind::kUnmappedUnderUse);
}

TEST_F(HazardOracleTest, PlainFreeWaitsSoThatEverythingOfItsDeviceIsSeen) {
  const Address other = sim_.allocate(0, 2_MiB).value;
  hand_out_and_back(memory_, 1_MiB, a_);
  EXPECT_EQ(sim_.free(0, other), DriverCode::kSuccess);
  hand_out(memory_, 1_MiB, b_);
  expect_clean();
}

TEST_F(HazardOracleTest, FreeingMemoryInSomebodysHandsIsAHazard) {
  const LifetimeId id = hand_out(memory_, 1_MiB, a_);
  EXPECT_EQ(sim_.free(0, memory_), DriverCode::kSuccess);
  expect_only(HazardKind::kFreedWhileLive);
  sim_.use(id, a_);
  expect_only(HazardKind::kAccessUnmapped);
}

TEST_F(HazardOracleTest, AUseThroughAnUnmappedAddressIsAHazard) {
  const Address base = sim_.reserve_addresses(8_MiB, 0).value;
  const ExtentHandle extent = sim_.create_extent(0, 2_MiB, {}).value;
  const LifetimeId id = hand_out(map(base, extent), 2_MiB, a_);
  EXPECT_EQ(sim_.user_synchronizes(a_), DriverCode::kSuccess);
  EXPECT_EQ(sim_.unmap(base, 2_MiB), DriverCode::kSuccess);
  expect_clean();
  sim_.use(id, a_);
  expect_only(HazardKind::kAccessUnmapped);
  sim_.use({base, 512}, a_);
  expect_only(HazardKind::kAccessUnmapped);
}

TEST_F(HazardOracleTest, PausedMemoryMayReturnOnOtherExtents) {
  const Address base = sim_.reserve_addresses(8_MiB, 0).value;
  const ExtentHandle extent = sim_.create_extent(0, 2_MiB, {}).value;
  const LifetimeId id = hand_out(map(base, extent), 2_MiB, a_);
  EXPECT_EQ(sim_.user_synchronizes(a_), DriverCode::kSuccess);
  EXPECT_EQ(sim_.unmap(base, 2_MiB), DriverCode::kSuccess);
  hand_out(map(base + 4_MiB, extent), 2_MiB, b_);
  map(base, sim_.create_extent(0, 2_MiB, {}).value);
  sim_.use(id, a_);
  expect_clean();
  hand_out(base, 512, a_);
  expect_only(HazardKind::kHandedOutTwice);
}

TEST_F(HazardOracleTest, UnmappingOneAliasDoesNotConcernUsesThroughTheOther) {
  const Address base = sim_.reserve_addresses(8_MiB, 0).value;
  const ExtentHandle extent = sim_.create_extent(0, 2_MiB, {}).value;
  hand_out_and_back(map(base, extent), 2_MiB, a_);
  EXPECT_EQ(sim_.user_synchronizes(a_), DriverCode::kSuccess);
  hand_out(map(base + 4_MiB, extent), 2_MiB, b_);
  EXPECT_EQ(sim_.unmap(base, 2_MiB), DriverCode::kSuccess);
  expect_clean();
  EXPECT_EQ(sim_.unmap(base + 4_MiB, 2_MiB), DriverCode::kSuccess);
  expect_only(HazardKind::kUnmappedUnderUse);
}

TEST_F(HazardOracleTest, OneExtentLiveAtTwoAddressesIsHandedOutTwice) {
  const Address base = sim_.reserve_addresses(8_MiB, 0).value;
  const ExtentHandle extent = sim_.create_extent(0, 2_MiB, {}).value;
  hand_out(map(base, extent) + 512, 512, a_);
  hand_out(map(base + 4_MiB, extent) + 1024, 512, a_);
  expect_clean();
  hand_out(base + 4_MiB + 512, 512, a_);
  expect_only(HazardKind::kHandedOutTwice);
}

TEST_F(HazardOracleTest, ARawUseOfMemoryThatNobodyWasGivenCounts) {
  const Address base = sim_.reserve_addresses(8_MiB, 0).value;
  map(base, sim_.create_extent(0, 2_MiB, {}).value);
  sim_.use({base + 4096, 512}, b_);
  hand_out(base, 4096, a_);
  expect_clean();
  hand_out(base + 4096, 512, a_);
  expect_only(HazardKind::kUnordered);
}

TEST_F(HazardOracleTest, APeerReachesMappedMemoryOnlyWhileItHasAccess) {
  const std::array<DeviceId, 1> peer{1};
  const StreamRef there = sim_.create_stream(1, sim::StreamKind::kNonBlocking);
  const Address base = map(sim_.reserve_addresses(2_MiB, 0).value,
                           sim_.create_extent(0, 2_MiB, {}).value);
  const LifetimeId id = sim_.begin_lifetime(0, base, 512, a_);
  EXPECT_EQ(sim_.set_access(base, 2_MiB, peer), DriverCode::kSuccess);
  sim_.use(id, there);
  sim_.use(id, a_);
  expect_clean();
  EXPECT_EQ(sim_.revoke_access(base, 2_MiB, 1), DriverCode::kSuccess);
  sim_.use(id, a_);
  expect_clean();
  sim_.use(id, there);
  expect_only(HazardKind::kAccessUnmapped);
}

TEST_F(HazardOracleTest, RegisteredMemoryStaysWhatItIs) {
  const Address base = map(sim_.reserve_addresses(4_MiB, 0).value,
                           sim_.create_extent(0, 2_MiB, {}).value);
  EXPECT_EQ(sim_.register_memory({base, 4_MiB}), sim::RegistrationId::kNone) << "a hole";
  const auto mapped = sim_.register_memory({base + 4096, 512});
  const auto plain = sim_.register_memory({memory_, 512});
  EXPECT_NE(mapped, sim::RegistrationId::kNone);
  EXPECT_EQ(sim_.unmap(base, 2_MiB), DriverCode::kSuccess);
  expect_only(HazardKind::kRegisteredMemory);
  EXPECT_EQ(sim_.free(0, memory_), DriverCode::kSuccess);
  expect_only(HazardKind::kRegisteredMemory);
  sim_.deregister_memory(mapped);
  sim_.deregister_memory(plain);
  map(base, sim_.create_extent(0, 2_MiB, {}).value);
  EXPECT_EQ(sim_.unmap(base, 2_MiB), DriverCode::kSuccess);
  expect_clean();
}

TEST_F(HazardOracleTest, WorkOnALifetimeThatHasEndedIsTheUsersFault) {
  const LifetimeId id = hand_out(memory_, 512, a_);
  sim_.end_lifetime(id);
  sim_.use(id, a_);
  expect_only(HazardKind::kUseAfterEnd);
}

TEST_F(HazardOracleTest, SwitchedOffItReportsNothing) {
  SimDriver sim({.oracle = false});
  const StreamRef stream = sim.create_stream(0, sim::StreamKind::kNonBlocking);
  const LifetimeId id = sim.begin_lifetime(0, 512, 512, stream);
  EXPECT_EQ(id, LifetimeId::kNone);
  sim.use(id, stream);
  sim.end_lifetime(id);
  EXPECT_EQ(sim.hazard_count(), 0u);
}

TEST_F(HazardOracleTest, ReportsAreBoundedButCounted) {
  for (int i = 0; i < 1500; ++i)
    hand_out(memory_, 512, a_);
  EXPECT_EQ(sim_.hazard_count(), 1499u);
  EXPECT_EQ(sim_.get_hazards().size(), 1000u);
}

}  // namespace
}  // namespace quarry
