// SPDX-License-Identifier: Apache-2.0
// Plain and virtual memory as every driver must provide them: what is refused, with which code,
// and that a refusal changes nothing.
#include <gtest/gtest.h>

#include <array>
#include <span>
#include <vector>

#include "tests/conformance/driver/driver_fixture.hpp"

namespace quarry {
namespace {

constexpr std::array<DeviceId, 1> kHere{0};

class PlainMemoryContractTest : public testing::Test {
 protected:
  Bytes free_bytes() { return driver_.get_memory_info(0).value.free_bytes; }

  const std::unique_ptr<DriverFixture> fixture_ = make_driver_fixture();
  Driver& driver_ = fixture_->driver();
};

TEST_F(PlainMemoryContractTest, AddressesAreAlignedTo512AndDisjoint) {
  const Address a = driver_.allocate(0, 1).value;
  const Address b = driver_.allocate(0, 513).value;
  EXPECT_TRUE(is_aligned(a, 512));
  EXPECT_TRUE(is_aligned(b, 512));
  EXPECT_TRUE(a + 1 <= b || b + 513 <= a);
  EXPECT_EQ(driver_.free(0, a), DriverCode::kSuccess);
  EXPECT_EQ(driver_.free(0, b), DriverCode::kSuccess);
}

TEST_F(PlainMemoryContractTest, ALargeAllocationTakesItsBytesAndGivesThemBack) {
  const Bytes before = free_bytes();
  const Address address = driver_.allocate(0, 256_MiB).value;
  EXPECT_EQ(before - free_bytes(), 256_MiB);
  EXPECT_EQ(driver_.free(0, address), DriverCode::kSuccess);
  EXPECT_EQ(free_bytes(), before);
}

TEST_F(PlainMemoryContractTest, ZeroBytesAreAnInvalidValue) {
  EXPECT_EQ(driver_.allocate(0, 0).code, DriverCode::kInvalidValue);
}

TEST_F(PlainMemoryContractTest, MoreThanTheDeviceHasIsOutOfMemory) {
  const Bytes before = free_bytes();
  EXPECT_EQ(driver_.allocate(0, 64ull << 40).code, DriverCode::kOutOfMemory);
  EXPECT_EQ(driver_.allocate(0, before + 64_MiB).code, DriverCode::kOutOfMemory);
  EXPECT_EQ(free_bytes(), before);
}

TEST_F(PlainMemoryContractTest, InteriorAndFreedAddressesAreRefused) {
  const Address address = driver_.allocate(0, 4_MiB).value;
  EXPECT_EQ(driver_.free(0, address + 512), DriverCode::kInvalidValue);
  EXPECT_EQ(driver_.free(0, address + 2_MiB), DriverCode::kInvalidValue);
  EXPECT_EQ(driver_.free(0, address), DriverCode::kSuccess);
  EXPECT_EQ(driver_.free(0, address), DriverCode::kInvalidValue);
}

TEST_F(PlainMemoryContractTest, FreeWaitsForWorkOfEveryStream) {
  const StreamRef stream = fixture_->create_stream(DriverFixture::Kind::kNonBlocking);
  const EventHandle event = driver_.create_event(0).value;
  const Address address = driver_.allocate(0, 512).value;
  EXPECT_EQ(fixture_->submit_work(stream), DriverCode::kSuccess);
  EXPECT_EQ(driver_.record_event(event, stream), DriverCode::kSuccess);
  EXPECT_EQ(driver_.free(0, address), DriverCode::kSuccess);
  EXPECT_EQ(driver_.query_event(event), DriverCode::kSuccess);
}

TEST_F(PlainMemoryContractTest, AnUnknownDeviceIsRefused) {
  const int count = driver_.get_device_count().value;
  EXPECT_EQ(driver_.allocate(count, 512).code, DriverCode::kInvalidDevice);
  EXPECT_EQ(driver_.get_memory_info(-1).code, DriverCode::kInvalidDevice);
}

class VirtualMemoryContractTest : public testing::Test {
 protected:
  void SetUp() override {
    granule_ = driver_.get_device_properties(0).value.extent_granularity;
    if (granule_ == 0) GTEST_SKIP() << "no virtual memory on this device";
    const auto reserved = driver_.reserve_addresses(16 * granule_, 0);
    ASSERT_TRUE(reserved.is_ok());
    base_ = reserved.value;
  }
  void TearDown() override {
    for (const auto& [address, bytes] : mapped_) {
      EXPECT_EQ(driver_.unmap(address, bytes), DriverCode::kSuccess);
    }
    for (const ExtentHandle extent : extents_) {
      EXPECT_EQ(driver_.release_extent(extent), DriverCode::kSuccess);
    }
    if (base_ != 0) {
      EXPECT_EQ(driver_.free_addresses(base_, 16 * granule_), DriverCode::kSuccess);
    }
  }
  ExtentHandle create(Bytes bytes) {
    const auto extent = driver_.create_extent(0, bytes, {});
    EXPECT_TRUE(extent.is_ok());
    extents_.push_back(extent.value);
    return extent.value;
  }
  void map(Address address, Bytes bytes, ExtentHandle extent) {
    ASSERT_EQ(driver_.map(address, bytes, extent), DriverCode::kSuccess);
    mapped_.push_back({address, bytes});
  }

  const std::unique_ptr<DriverFixture> fixture_ = make_driver_fixture();
  Driver& driver_ = fixture_->driver();
  Bytes granule_ = 0;
  Address base_ = 0;
  std::vector<ExtentHandle> extents_;
  std::vector<std::pair<Address, Bytes>> mapped_;
};

TEST_F(VirtualMemoryContractTest, AReservationTakesNoMemoryAndAnExtentDoes) {
  const Bytes before = driver_.get_memory_info(0).value.free_bytes;
  const Address address = driver_.reserve_addresses(1_GiB, 0).value;
  EXPECT_EQ(driver_.get_memory_info(0).value.free_bytes, before);
  create(32 * granule_);
  EXPECT_EQ(before - driver_.get_memory_info(0).value.free_bytes, 32 * granule_);
  EXPECT_EQ(driver_.free_addresses(address, 1_GiB), DriverCode::kSuccess);
}

TEST_F(VirtualMemoryContractTest, AnExtentMapsWholeOrNotAtAll) {
  const ExtentHandle extent = create(2 * granule_);
  EXPECT_EQ(driver_.map(base_, granule_, extent), DriverCode::kNotSupported);
  map(base_, 2 * granule_, extent);
}

TEST_F(VirtualMemoryContractTest, UnmapAndSetAccessOfAPartAreInvalid) {
  map(base_, 4 * granule_, create(4 * granule_));
  EXPECT_EQ(driver_.set_access(base_, granule_, kHere), DriverCode::kInvalidValue);
  EXPECT_EQ(driver_.set_access(base_ + granule_, 3 * granule_, kHere), DriverCode::kInvalidValue);
  EXPECT_EQ(driver_.unmap(base_, granule_), DriverCode::kInvalidValue);
  EXPECT_EQ(driver_.revoke_access(base_, granule_, 0), DriverCode::kInvalidValue);
  EXPECT_EQ(driver_.set_access(base_, 4 * granule_, kHere), DriverCode::kSuccess);
}

TEST_F(VirtualMemoryContractTest, AccessThatIsTakenAwayMayBeGivenAgain) {
  map(base_, 4 * granule_, create(4 * granule_));
  EXPECT_EQ(driver_.set_access(base_, 4 * granule_, kHere), DriverCode::kSuccess);
  EXPECT_EQ(driver_.revoke_access(base_, 4 * granule_, 0), DriverCode::kSuccess);
  EXPECT_EQ(driver_.set_access(base_, 4 * granule_, kHere), DriverCode::kSuccess);
}

TEST_F(VirtualMemoryContractTest, OneCallTakesARowOfMappings) {
  for (Bytes i = 0; i < 4; ++i) {
    ASSERT_EQ(driver_.map(base_ + i * granule_, granule_, create(granule_)), DriverCode::kSuccess);
  }
  EXPECT_EQ(driver_.set_access(base_, 4 * granule_, kHere), DriverCode::kSuccess);
  EXPECT_EQ(driver_.unmap(base_, 4 * granule_), DriverCode::kSuccess);
}

TEST_F(VirtualMemoryContractTest, OneExtentMapsAtTwoAddresses) {
  const ExtentHandle extent = create(granule_);
  map(base_, granule_, extent);
  map(base_ + 8 * granule_, granule_, extent);
  EXPECT_EQ(driver_.set_access(base_, granule_, kHere), DriverCode::kSuccess);
  EXPECT_EQ(driver_.set_access(base_ + 8 * granule_, granule_, kHere), DriverCode::kSuccess);
}

TEST_F(VirtualMemoryContractTest, AnAddressIsMappedOnce) {
  map(base_, granule_, create(granule_));
  EXPECT_NE(driver_.map(base_, granule_, create(granule_)), DriverCode::kSuccess);
}

TEST_F(VirtualMemoryContractTest, MemoryReturnsWithTheLastMapping) {
  const Bytes before = driver_.get_memory_info(0).value.free_bytes;
  const ExtentHandle extent = driver_.create_extent(0, 32 * granule_, {}).value;
  const Address address = driver_.reserve_addresses(32 * granule_, 0).value;
  ASSERT_EQ(driver_.map(address, 32 * granule_, extent), DriverCode::kSuccess);
  EXPECT_EQ(driver_.release_extent(extent), DriverCode::kSuccess);
  EXPECT_EQ(before - driver_.get_memory_info(0).value.free_bytes, 32 * granule_);
  EXPECT_EQ(driver_.unmap(address, 32 * granule_), DriverCode::kSuccess);
  EXPECT_EQ(driver_.get_memory_info(0).value.free_bytes, before);
  EXPECT_EQ(driver_.free_addresses(address, 32 * granule_), DriverCode::kSuccess);
}

TEST_F(VirtualMemoryContractTest, UnmapDoesNotWaitForWork) {
  const StreamRef stream = fixture_->create_stream(DriverFixture::Kind::kNonBlocking);
  const EventHandle event = driver_.create_event(0).value;
  ASSERT_EQ(driver_.map(base_, granule_, create(granule_)), DriverCode::kSuccess);
  fixture_->hold(stream);
  ASSERT_EQ(driver_.record_event(event, stream), DriverCode::kSuccess);
  EXPECT_EQ(driver_.unmap(base_, granule_), DriverCode::kSuccess);
  EXPECT_EQ(driver_.query_event(event), DriverCode::kNotReady);
  fixture_->release(stream);
}

TEST_F(VirtualMemoryContractTest, OneHugeReservationSucceedsAndASecondDoesNot) {
  const auto first = driver_.reserve_addresses(64ull << 40, 0);
  ASSERT_TRUE(first.is_ok());
  EXPECT_FALSE(driver_.reserve_addresses(64ull << 40, 0).is_ok());
  EXPECT_EQ(driver_.free_addresses(first.value, 64ull << 40), DriverCode::kSuccess);
}

TEST_F(VirtualMemoryContractTest, SizesOffTheGranularityAreInvalid) {
  EXPECT_EQ(driver_.create_extent(0, granule_ / 2, {}).code, DriverCode::kInvalidValue);
  EXPECT_EQ(driver_.create_extent(0, 0, {}).code, DriverCode::kInvalidValue);
  EXPECT_EQ(driver_.reserve_addresses(0, 0).code, DriverCode::kInvalidValue);
}

}  // namespace
}  // namespace quarry
