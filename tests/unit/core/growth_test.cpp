// SPDX-License-Identifier: Apache-2.0
// The driver calls of a growth, with each of them failing: what was made is taken back, and what
// the driver refuses to take back is known.
#include "core/growth.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "sim/sim_driver.hpp"

namespace quarry {
namespace {

constexpr Bytes kPage = 2_MiB;

class GrowthTest : public testing::Test {
 protected:
  GrowthTest() : base_(sim_.reserve_addresses(1_GiB, kPage).value) {}
  ~GrowthTest() override {
    for (const sim::Hazard& hazard : sim_.get_hazards())
      ADD_FAILURE() << hazard.text;
  }
  Address at(Bytes page) const { return base_ + page * kPage; }
  // A mapped extent somewhere in the range.
  Departure make_departure(Bytes page, bool has_passed) {
    Departure departure;
    departure.address = at(page);
    departure.extent = {sim_.create_extent(0, kPage, {}).value, kPage};
    departure.has_passed = has_passed;
    EXPECT_EQ(sim_.map(at(page), kPage, departure.extent.handle), DriverCode::kSuccess);
    return departure;
  }
  void add_new(Bytes page, Bytes size = kPage) {
    Arrival arrival;
    arrival.address = at(page);
    arrival.extent.size = size;
    growth_.arrivals.push_back(arrival);
  }
  void add_move(Bytes from_page, Bytes page) {
    growth_.departures.push_back(make_departure(from_page, true));
    Arrival arrival;
    arrival.address = at(page);
    arrival.extent = growth_.departures.back().extent;
    arrival.departure = growth_.departures.size() - 1;
    growth_.arrivals.push_back(arrival);
  }
  // Two new ones side by side, one that moves behind them, and a new one apart.
  void plan() {
    add_new(0);
    add_new(1, 2 * kPage);
    add_move(100, 3);
    add_new(10);
    held_before_ = sim_.get_holdings(0);
    sim_.reset_call_counts();
  }
  DriverCode map() { return map_arrivals(sim_, {0, {}, {0}}, growth_, unreleased_); }
  DriverCode unmap() { return unmap_departures(sim_, growth_.departures, unreleased_); }
  bool is_usable(Bytes page) {
    const std::uint64_t before = sim_.hazard_count();
    const StreamRef stream{0, StreamHandle::kLegacy};
    sim_.use(sim::MemoryRange{at(page), kPage}, stream);
    const bool is_usable = sim_.hazard_count() == before;
    sim_.clear_hazards();
    return is_usable;
  }
  void expect_as_before() {
    const auto held = sim_.get_holdings(0);
    EXPECT_EQ(held.physical_bytes, held_before_.physical_bytes);
    EXPECT_EQ(held.extents, held_before_.extents);
    EXPECT_EQ(held.mappings, held_before_.mappings);
    EXPECT_TRUE(unreleased_.empty());
    for (const Arrival& arrival : growth_.arrivals)
      EXPECT_FALSE(arrival.is_stuck);
    for (const Departure& departure : growth_.departures)
      EXPECT_FALSE(departure.is_unmapped);
  }

  SimDriver sim_;
  Address base_;
  Growth growth_;
  UnreleasedExtents unreleased_;
  SimDriver::Holdings held_before_;
};

TEST_F(GrowthTest, EverythingThatArrivesIsMappedAndUsable) {
  plan();
  EXPECT_EQ(growth_.get_created_bytes(), 4 * kPage);
  EXPECT_EQ(map(), DriverCode::kSuccess);
  for (const Bytes page : {0u, 1u, 2u, 3u, 10u})
    EXPECT_TRUE(is_usable(page)) << page;
  EXPECT_FALSE(is_usable(4));
  const auto held = sim_.get_holdings(0);
  EXPECT_EQ(held.physical_bytes - held_before_.physical_bytes, 4 * kPage);
  EXPECT_EQ(held.mappings - held_before_.mappings, 4u);
  EXPECT_EQ(sim_.call_count(DriverEntry::kCreateExtent), 3u);
  EXPECT_EQ(sim_.call_count(DriverEntry::kSetAccess), 2u) << "one of neighbours";
  EXPECT_EQ(sim_.call_count(DriverEntry::kUnmap), 0u) << "old addresses may be in use";
}

TEST_F(GrowthTest, WhateverCallFailsNothingIsLeft) {
  plan();
  EXPECT_EQ(map(), DriverCode::kSuccess);
  const std::uint64_t calls = sim_.call_count();
  EXPECT_EQ(calls, 3u + 4u + 2u);
  for (std::uint64_t k = 1; k <= calls; ++k) {
    SCOPED_TRACE(k);
    for (Arrival& arrival : growth_.arrivals) {
      EXPECT_EQ(sim_.unmap(arrival.address, arrival.extent.size), DriverCode::kSuccess);
      if (arrival.departure.has_value()) continue;
      EXPECT_EQ(sim_.release_extent(arrival.extent.handle), DriverCode::kSuccess);
    }
    for (const DriverCode code : {DriverCode::kOutOfMemory, DriverCode::kUnknown}) {
      sim_.fail_any_call(k, code);
      EXPECT_EQ(map(), code);
      EXPECT_EQ(sim_.injected_fault_count(), 2 * k - (code == DriverCode::kUnknown ? 0 : 1));
      sim_.clear_faults();
      expect_as_before();
    }
    EXPECT_EQ(map(), DriverCode::kSuccess) << "the same plan, once more";
  }
}

TEST_F(GrowthTest, WhatCannotBeUnmappedAgainIsStuck) {
  plan();
  sim_.fail_call(DriverEntry::kSetAccess, 2, DriverCode::kUnknown);
  sim_.fail_call(DriverEntry::kUnmap, 3, DriverCode::kUnknown);  // that of the one that moves
  EXPECT_EQ(map(), DriverCode::kUnknown);
  const bool expected[] = {false, false, true, false};
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_EQ(growth_.arrivals[i].is_stuck, expected[i]) << i;
  EXPECT_TRUE(unreleased_.empty());
  const auto held = sim_.get_holdings(0);
  EXPECT_EQ(held.physical_bytes, held_before_.physical_bytes) << "it was there before";
  EXPECT_EQ(held.mappings, held_before_.mappings + 1);
}

// Its memory goes back with the mapping.
TEST_F(GrowthTest, ANewExtentThatIsStuckIsReleasedAllTheSame) {
  plan();
  sim_.fail_call(DriverEntry::kMap, 4, DriverCode::kUnknown);
  sim_.fail_call(DriverEntry::kUnmap, 1, DriverCode::kUnknown);
  EXPECT_EQ(map(), DriverCode::kUnknown);
  EXPECT_TRUE(growth_.arrivals[0].is_stuck);
  EXPECT_TRUE(unreleased_.empty());
  sim_.clear_faults();
  EXPECT_EQ(sim_.unmap(at(0), kPage), DriverCode::kSuccess);
  EXPECT_EQ(sim_.get_holdings(0).physical_bytes, held_before_.physical_bytes);
}

TEST_F(GrowthTest, AnExtentThatCannotBeReleasedIsRemembered) {
  plan();
  sim_.fail_call(DriverEntry::kSetAccess, 1, DriverCode::kUnknown);
  sim_.fail_call(DriverEntry::kReleaseExtent, 2, DriverCode::kUnknown);
  EXPECT_EQ(map(), DriverCode::kUnknown);
  ASSERT_EQ(unreleased_.size(), 1u);
  EXPECT_EQ(unreleased_[0], growth_.arrivals[1].extent.handle);
  sim_.clear_faults();
  EXPECT_EQ(sim_.release_extent(unreleased_[0]), DriverCode::kSuccess);
  EXPECT_EQ(sim_.get_holdings(0).physical_bytes, held_before_.physical_bytes);
}

TEST_F(GrowthTest, AnExtentThatCannotBeMappedAndNotReleasedIsRemembered) {
  plan();
  sim_.fail_call(DriverEntry::kMap, 1, DriverCode::kUnknown);
  sim_.fail_call(DriverEntry::kReleaseExtent, 1, DriverCode::kUnknown);
  EXPECT_EQ(map(), DriverCode::kUnknown);
  ASSERT_EQ(unreleased_.size(), 1u);
  EXPECT_EQ(unreleased_[0], growth_.arrivals[0].extent.handle);
  EXPECT_EQ(sim_.get_holdings(0).mappings, held_before_.mappings);
}

// --- departures ---

TEST_F(GrowthTest, OnlyDeparturesThatHavePassedAreUnmapped) {
  growth_.departures = {make_departure(0, true), make_departure(1, false)};
  EXPECT_EQ(unmap(), DriverCode::kSuccess);
  EXPECT_TRUE(growth_.departures[0].is_unmapped);
  EXPECT_FALSE(growth_.departures[1].is_unmapped);
  EXPECT_EQ(sim_.get_holdings(0).mappings, 1u);
  EXPECT_EQ(sim_.get_holdings(0).extents, 2u) << "none was to be released";
  EXPECT_EQ(unmap(), DriverCode::kSuccess);
  EXPECT_EQ(sim_.call_count(DriverEntry::kUnmap), 1u) << "once";
}

TEST_F(GrowthTest, ADepartureThatIsReleasedGoesBackToTheDriver) {
  growth_.departures = {make_departure(0, true), make_departure(1, true)};
  growth_.departures[0].is_released = true;
  EXPECT_EQ(unmap(), DriverCode::kSuccess);
  EXPECT_EQ(sim_.get_holdings(0).physical_bytes, kPage);
}

TEST_F(GrowthTest, ARefusedUnmapLeavesTheDepartureAndTheOthersGo) {
  growth_.departures = {make_departure(0, true), make_departure(1, true), make_departure(2, true)};
  for (Departure& departure : growth_.departures)
    departure.is_released = true;
  sim_.fail_call(DriverEntry::kUnmap, 2, DriverCode::kIllegalAddress);
  EXPECT_EQ(unmap(), DriverCode::kIllegalAddress);
  EXPECT_TRUE(growth_.departures[0].is_unmapped);
  EXPECT_FALSE(growth_.departures[1].is_unmapped);
  EXPECT_TRUE(growth_.departures[2].is_unmapped);
  EXPECT_EQ(sim_.get_holdings(0).physical_bytes, kPage) << "it keeps its memory";
  sim_.clear_faults();
  EXPECT_EQ(unmap(), DriverCode::kSuccess);
  EXPECT_EQ(sim_.get_holdings(0).physical_bytes, 0u);
}

TEST_F(GrowthTest, ARefusedReleaseIsRemembered) {
  growth_.departures = {make_departure(0, true)};
  growth_.departures[0].is_released = true;
  sim_.fail_call(DriverEntry::kReleaseExtent, 1, DriverCode::kUnknown);
  EXPECT_EQ(unmap(), DriverCode::kSuccess) << "the addresses are free";
  EXPECT_TRUE(growth_.departures[0].is_unmapped);
  ASSERT_EQ(unreleased_.size(), 1u);
  EXPECT_EQ(unreleased_[0], growth_.departures[0].extent.handle);
}

// --- the wait for the device ---

class DeviceDrainTest : public testing::Test {
 protected:
  DeviceDrainTest() : drain_(sim_, 0) {}
  void busy() {
    const StreamRef stream = sim_.create_stream(0, sim::StreamKind::kNonBlocking);
    EXPECT_EQ(sim_.submit_work(stream, sim::WorkTime::endless()), DriverCode::kSuccess);
    busy_.push_back(stream);
  }
  bool is_idle() const {
    for (const StreamRef stream : busy_) {
      if (!sim_.is_idle(stream)) return false;
    }
    return true;
  }
  Bytes held() const { return sim_.get_holdings(0).physical_bytes; }

  SimDriver sim_;
  DeviceDrain drain_;
  std::vector<StreamRef> busy_;
};

TEST_F(DeviceDrainTest, AllStreamsOfTheDeviceAreWaitedFor) {
  busy();
  busy();
  drain_.make_ready();
  EXPECT_FALSE(is_idle());
  EXPECT_EQ(drain_.wait(), DriverCode::kSuccess);
  EXPECT_TRUE(is_idle());
  EXPECT_EQ(held(), 0u);
}

TEST_F(DeviceDrainTest, WhatIsHeldReadyIsMadeOnceAndGoesBack) {
  drain_.make_ready();
  drain_.make_ready();
  EXPECT_EQ(sim_.get_holdings(0).plain_allocations, 1u);
  drain_.release();
  EXPECT_EQ(held(), 0u);
  drain_.release();
  EXPECT_EQ(sim_.call_count(DriverEntry::kFree), 1u);
}

TEST_F(DeviceDrainTest, HeldReadyItWaitsOnAFullDevice) {
  drain_.make_ready();
  busy();
  sim_.fail_calls_if(
      DriverEntry::kAllocate, [](Bytes) { return true; }, DriverCode::kOutOfMemory);
  EXPECT_EQ(drain_.wait(), DriverCode::kSuccess);
  EXPECT_TRUE(is_idle());
  busy();
  EXPECT_EQ(drain_.wait(), DriverCode::kOutOfMemory) << "not held ready again, and not to be had";
  EXPECT_FALSE(is_idle());
  sim_.clear_faults();
  EXPECT_EQ(drain_.wait(), DriverCode::kSuccess);
  EXPECT_TRUE(is_idle());
}

TEST_F(DeviceDrainTest, ARefusedFreeIsToldAndTriedAgain) {
  drain_.make_ready();
  busy();
  sim_.fail_call(DriverEntry::kFree, 1, DriverCode::kIllegalAddress);
  EXPECT_EQ(drain_.wait(), DriverCode::kIllegalAddress);
  EXPECT_FALSE(is_idle());
  EXPECT_EQ(drain_.wait(), DriverCode::kSuccess);
  EXPECT_TRUE(is_idle());
  EXPECT_EQ(sim_.call_count(DriverEntry::kAllocate), 1u);
}

}  // namespace
}  // namespace quarry
