// SPDX-License-Identifier: Apache-2.0
// Plain and virtual memory of the simulated device: sizes, budgets, addresses, restrictions.
#include <gtest/gtest.h>

#include <vector>

#include "sim/sim_driver.hpp"

namespace quarry {
namespace {

constexpr ExtentKind kPlainKind{};

TEST(SimPlainMemoryTest, AnH200IsTheDefault) {
  SimDriver sim;
  EXPECT_EQ(sim.get_device_properties(0).value.total_bytes, 150'109'880'320u);
  EXPECT_EQ(sim.get_memory_info(0).value.free_bytes, 150'109'880'320u);
  EXPECT_EQ(sim.get_device_properties(0).value.extent_granularity, 2_MiB);
}

TEST(SimPlainMemoryTest, SmallAllocationsShareAPage512BytesApart) {
  SimDriver sim;
  const Bytes before = sim.get_memory_info(0).value.free_bytes;
  Address last = sim.allocate(0, 512).value;
  for (int i = 1; i < 4096; ++i) {
    const Address next = sim.allocate(0, 512).value;
    ASSERT_EQ(next, last + 512);
    last = next;
  }
  EXPECT_EQ(before - sim.get_memory_info(0).value.free_bytes, 2_MiB);
  ASSERT_TRUE(sim.allocate(0, 512).is_ok());
  EXPECT_EQ(before - sim.get_memory_info(0).value.free_bytes, 4_MiB);
}

TEST(SimPlainMemoryTest, ASharedPageGoesBackWithItsLastAllocation) {
  SimDriver sim;
  const Address a = sim.allocate(0, 512).value;
  const Address b = sim.allocate(0, 4096).value;
  EXPECT_EQ(sim.free(0, a), DriverCode::kSuccess);
  EXPECT_EQ(sim.get_holdings(0).physical_bytes, 2_MiB);
  EXPECT_EQ(sim.free(0, b), DriverCode::kSuccess);
  EXPECT_EQ(sim.get_holdings(0).physical_bytes, 0u);
}

TEST(SimPlainMemoryTest, LargeAllocationsTakeWholePagesAtRisingAlignedAddresses) {
  SimDriver sim;
  const Address a = sim.allocate(0, 3_MiB).value;
  EXPECT_EQ(sim.get_holdings(0).physical_bytes, 4_MiB);
  EXPECT_EQ(sim.free(0, a), DriverCode::kSuccess);
  const Address b = sim.allocate(0, 2_MiB).value;
  EXPECT_GT(b, a);
  EXPECT_TRUE(is_aligned(a, 2_MiB));
  EXPECT_TRUE(is_aligned(b, 2_MiB));
}

TEST(SimPlainMemoryTest, AddressesComeBackLowestFirstIfWished) {
  SimDriver sim({.reuse_addresses = true});
  const Address a = sim.allocate(0, 4_MiB).value;
  const Address b = sim.allocate(0, 4_MiB).value;
  ASSERT_TRUE(sim.allocate(0, 4_MiB).is_ok());
  sim.free(0, b);
  sim.free(0, a);
  EXPECT_EQ(sim.allocate(0, 8_MiB).value, a);
  const Address small = sim.allocate(0, 512).value;
  ASSERT_TRUE(sim.allocate(0, 512).is_ok());
  sim.free(0, small);
  EXPECT_EQ(sim.allocate(0, 512).value, small);
}

TEST(SimPlainMemoryTest, ThePhysicalBudgetIsExact) {
  SimDriver sim({.physical_bytes = 64_MiB, .external_bytes = 16_MiB});
  EXPECT_EQ(sim.get_memory_info(0).value.free_bytes, 48_MiB);
  EXPECT_EQ(sim.get_memory_info(0).value.total_bytes, 64_MiB);
  EXPECT_TRUE(sim.allocate(0, 40_MiB).is_ok());
  EXPECT_TRUE(sim.create_extent(0, 8_MiB, kPlainKind).is_ok());
  EXPECT_EQ(sim.allocate(0, 512).code, DriverCode::kOutOfMemory);
  EXPECT_EQ(sim.create_extent(0, 2_MiB, kPlainKind).code, DriverCode::kOutOfMemory);
  sim.set_external_bytes(0, 14_MiB);
  EXPECT_TRUE(sim.allocate(0, 512).is_ok());
  sim.set_physical_bytes(0, 32_MiB);
  EXPECT_EQ(sim.get_memory_info(0).value.free_bytes, 0u);
}

TEST(SimPlainMemoryTest, WrongArgumentsGiveTheRealCodes) {
  SimDriver sim;
  EXPECT_EQ(sim.allocate(0, 0).code, DriverCode::kInvalidValue);
  EXPECT_EQ(sim.allocate(0, kUnlimited).code, DriverCode::kOutOfMemory);
  EXPECT_EQ(sim.allocate(7, 512).code, DriverCode::kInvalidDevice);
  const Address a = sim.allocate(0, 4_MiB).value;
  EXPECT_EQ(sim.free(0, a + 512), DriverCode::kInvalidValue);
  EXPECT_EQ(sim.free(0, a), DriverCode::kSuccess);
  EXPECT_EQ(sim.free(0, a), DriverCode::kInvalidValue);
}

TEST(SimPlainMemoryTest, DevicesHaveBudgetsAndAddressesOfTheirOwn) {
  SimDriver sim({.device_count = 2, .physical_bytes = 8_MiB});
  const Address a = sim.allocate(0, 8_MiB).value;
  const Address b = sim.allocate(1, 8_MiB).value;
  EXPECT_NE(a, b);
  EXPECT_EQ(sim.free(1, a), DriverCode::kInvalidValue);
  EXPECT_EQ(sim.free(0, a), DriverCode::kSuccess);
}

TEST(SimPlainMemoryTest, AllAddressesAreBelow47Bits) {
  SimDriver sim({.device_count = 16});
  EXPECT_LT(sim.allocate(15, 2_MiB).value, Address{1} << 47);
  const auto reserved = sim.reserve_addresses(64ull << 40, 0);
  ASSERT_TRUE(reserved.is_ok());
  EXPECT_LE(reserved.value + (64ull << 40), Address{1} << 47);
}

class SimVirtualMemoryTest : public testing::Test {
 protected:
  SimDriver sim_;
  const Address base_ = sim_.reserve_addresses(64_MiB, 0).value;
  const ExtentHandle extent_ = sim_.create_extent(0, 4_MiB, kPlainKind).value;
  const std::vector<DeviceId> here_{0};
};

TEST_F(SimVirtualMemoryTest, AddressesRunOutAsOnTheRealDevice) {
  SimDriver sim;
  EXPECT_TRUE(sim.reserve_addresses(64ull << 40, 0).is_ok());
  EXPECT_EQ(sim.reserve_addresses(64ull << 40, 0).code, DriverCode::kOutOfMemory);
  for (int i = 0; i < 61; ++i) {
    ASSERT_TRUE(sim.reserve_addresses(1ull << 40, 0).is_ok()) << i;
  }
  EXPECT_EQ(sim.reserve_addresses(1ull << 40, 0).code, DriverCode::kOutOfMemory);
  EXPECT_TRUE(sim.reserve_addresses(1_GiB, 0).is_ok());
}

TEST_F(SimVirtualMemoryTest, FreedReservationsAreUsedAgainWhenNothingElseIsLeft) {
  SimDriver sim({.address_space_bytes = 8_GiB});
  const Address a = sim.reserve_addresses(6_GiB, 0).value;
  EXPECT_EQ(sim.reserve_addresses(4_GiB, 0).code, DriverCode::kOutOfMemory);
  EXPECT_EQ(sim.free_addresses(a, 6_GiB), DriverCode::kSuccess);
  EXPECT_TRUE(sim.reserve_addresses(8_GiB, 0).is_ok());
}

TEST_F(SimVirtualMemoryTest, AReservationHasTheAlignmentAskedFor) {
  EXPECT_TRUE(is_aligned(sim_.reserve_addresses(2_MiB, 1_GiB).value, 1_GiB));
  EXPECT_EQ(sim_.reserve_addresses(2_MiB, 3_MiB).code, DriverCode::kInvalidValue);
  EXPECT_EQ(sim_.reserve_addresses(1_MiB, 0).code, DriverCode::kInvalidValue);
  EXPECT_EQ(sim_.reserve_addresses(0, 0).code, DriverCode::kInvalidValue);
}

TEST_F(SimVirtualMemoryTest, OnlyAWholeReservationWithoutMappingsIsFreed) {
  EXPECT_EQ(sim_.free_addresses(base_, 32_MiB), DriverCode::kInvalidValue);
  EXPECT_EQ(sim_.free_addresses(base_ + 2_MiB, 62_MiB), DriverCode::kInvalidValue);
  ASSERT_EQ(sim_.map(base_, 4_MiB, extent_), DriverCode::kSuccess);
  EXPECT_EQ(sim_.free_addresses(base_, 64_MiB), DriverCode::kInvalidValue);
  ASSERT_EQ(sim_.unmap(base_, 4_MiB), DriverCode::kSuccess);
  EXPECT_EQ(sim_.free_addresses(base_, 64_MiB), DriverCode::kSuccess);
}

TEST_F(SimVirtualMemoryTest, AnExtentMapsWholeOrNotAtAll) {
  EXPECT_EQ(sim_.map(base_, 2_MiB, extent_), DriverCode::kNotSupported);
  EXPECT_EQ(sim_.map(base_ + 1_MiB, 4_MiB, extent_), DriverCode::kInvalidValue);
  EXPECT_EQ(sim_.map(base_ + 62_MiB, 4_MiB, extent_), DriverCode::kInvalidValue);
  EXPECT_EQ(sim_.map(base_, 4_MiB, extent_), DriverCode::kSuccess);
  EXPECT_EQ(sim_.map(base_ + 2_MiB, 4_MiB, extent_), DriverCode::kInvalidValue);
}

TEST_F(SimVirtualMemoryTest, UnmapAndAccessNeedWholeMappingsAndTakeRowsOfThem) {
  const ExtentHandle second = sim_.create_extent(0, 2_MiB, kPlainKind).value;
  ASSERT_EQ(sim_.map(base_, 4_MiB, extent_), DriverCode::kSuccess);
  ASSERT_EQ(sim_.map(base_ + 4_MiB, 2_MiB, second), DriverCode::kSuccess);
  EXPECT_EQ(sim_.set_access(base_, 2_MiB, here_), DriverCode::kInvalidValue);
  EXPECT_EQ(sim_.set_access(base_ + 2_MiB, 4_MiB, here_), DriverCode::kInvalidValue);
  EXPECT_EQ(sim_.set_access(base_, 8_MiB, here_), DriverCode::kInvalidValue);
  EXPECT_EQ(sim_.set_access(base_, 6_MiB, here_), DriverCode::kSuccess);
  EXPECT_EQ(sim_.unmap(base_, 2_MiB), DriverCode::kInvalidValue);
  EXPECT_EQ(sim_.unmap(base_, 8_MiB), DriverCode::kInvalidValue);
  EXPECT_EQ(sim_.get_holdings(0).mappings, 2u);
  EXPECT_EQ(sim_.unmap(base_, 6_MiB), DriverCode::kSuccess);
  EXPECT_EQ(sim_.get_holdings(0).mappings, 0u);
}

TEST_F(SimVirtualMemoryTest, PhysicalMemoryGoesWithTheLastMapping) {
  ASSERT_EQ(sim_.map(base_, 4_MiB, extent_), DriverCode::kSuccess);
  ASSERT_EQ(sim_.map(base_ + 8_MiB, 4_MiB, extent_), DriverCode::kSuccess);
  EXPECT_EQ(sim_.release_extent(extent_), DriverCode::kSuccess);
  EXPECT_EQ(sim_.release_extent(extent_), DriverCode::kInvalidValue);
  EXPECT_EQ(sim_.map(base_ + 16_MiB, 4_MiB, extent_), DriverCode::kInvalidValue);
  EXPECT_EQ(sim_.unmap(base_, 4_MiB), DriverCode::kSuccess);
  EXPECT_EQ(sim_.get_holdings(0).physical_bytes, 4_MiB);
  EXPECT_EQ(sim_.unmap(base_ + 8_MiB, 4_MiB), DriverCode::kSuccess);
  EXPECT_EQ(sim_.get_holdings(0).physical_bytes, 0u);
  EXPECT_EQ(sim_.get_holdings(0).extents, 0u);
}

TEST_F(SimVirtualMemoryTest, UnmapDoesNotWait) {
  const StreamRef stream = sim_.create_stream(0, sim::StreamKind::kNonBlocking);
  ASSERT_EQ(sim_.map(base_, 4_MiB, extent_), DriverCode::kSuccess);
  sim_.submit_work(stream, sim::WorkTime::lasting_us(100));
  EXPECT_EQ(sim_.unmap(base_, 4_MiB), DriverCode::kSuccess);
  EXPECT_EQ(sim_.now_ns(), 0u);
}

TEST_F(SimVirtualMemoryTest, KindsThatTheDeviceLacksAreRefused) {
  using HandleType = ExtentKind::HandleType;
  EXPECT_EQ(sim_.create_extent(0, 2_MiB, {HandleType::kFabric, false}).code,
            DriverCode::kNotPermitted);
  EXPECT_TRUE(sim_.create_extent(0, 2_MiB, {HandleType::kFileDescriptor, true}).is_ok());
  SimDriver bare({.has_rdma = false, .has_fd_handles = false});
  EXPECT_EQ(bare.create_extent(0, 2_MiB, {HandleType::kNone, true}).code,
            DriverCode::kNotSupported);
  EXPECT_EQ(bare.create_extent(0, 2_MiB, {HandleType::kFileDescriptor, false}).code,
            DriverCode::kNotSupported);
  EXPECT_EQ(sim_.create_extent(0, 3_MiB, {}).code, DriverCode::kInvalidValue);
}

TEST_F(SimVirtualMemoryTest, ADeviceWithoutVirtualMemorySaysSo) {
  SimDriver sim({.extent_granularity = 0});
  EXPECT_EQ(sim.get_device_properties(0).value.extent_granularity, 0u);
  EXPECT_EQ(sim.reserve_addresses(2_MiB, 0).code, DriverCode::kNotSupported);
  EXPECT_EQ(sim.create_extent(0, 2_MiB, {}).code, DriverCode::kNotSupported);
}

TEST_F(SimVirtualMemoryTest, AResetFreesTheDeviceAndLeavesTheOther) {
  SimDriver sim({.device_count = 2});
  const StreamRef stream = sim.create_stream(0, sim::StreamKind::kBlocking);
  ASSERT_TRUE(sim.create_event(0).is_ok());
  ASSERT_TRUE(sim.allocate(0, 512).is_ok());
  ASSERT_TRUE(sim.allocate(1, 512).is_ok());
  const Address base = sim.reserve_addresses(8_MiB, 0).value;
  const ExtentHandle extent = sim.create_extent(0, 2_MiB, kPlainKind).value;
  ASSERT_EQ(sim.map(base, 2_MiB, extent), DriverCode::kSuccess);
  sim.reset_device(0);
  EXPECT_EQ(sim.get_holdings(0).physical_bytes, 0u);
  EXPECT_EQ(sim.get_holdings(0).events, 0u);
  EXPECT_EQ(sim.get_holdings(1).physical_bytes, 2_MiB);
  EXPECT_EQ(sim.record_event(sim.create_event(0).value, stream), DriverCode::kInvalidHandle);
  EXPECT_EQ(sim.misuse_count(), 1u);
  EXPECT_TRUE(sim.get_stream_id({0, StreamHandle::kLegacy}).is_ok());
}

}  // namespace
}  // namespace quarry
