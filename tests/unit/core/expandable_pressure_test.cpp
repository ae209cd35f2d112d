// SPDX-License-Identifier: Apache-2.0
// Expandable segments under odd conditions: requests that cannot be served, addresses aligned
// widely, devices that are full, pools that end while memory is on its way to them.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/forwarding_driver.hpp"
#include "tests/support/scenario.hpp"

namespace quarry::test {
namespace {

constexpr PoolId kP{0, 1};

Config make_expandable() {
  Config config = make_config();
  config.expandable_segments = true;
  return config;
}

ScenarioOptions make_options(Bytes cap = 1_GiB) {
  ScenarioOptions options = ScenarioOptions::with_cap(cap);
  options.config = make_expandable();
  return options;
}

// Lets a test act before each call of one entry.
class WatchedDriver final : public ForwardingDriver {
 public:
  WatchedDriver(Driver& next, DriverEntry entry, std::function<void()> act)
      : ForwardingDriver(next), entry_(entry), act_(std::move(act)) {}

 protected:
  DriverCode before(DriverEntry entry) noexcept override {
    if (entry == entry_) act_();
    return DriverCode::kSuccess;
  }

 private:
  DriverEntry entry_;
  std::function<void()> act_;
};

// Where the allocator ended, nothing is left of it, whichever pool used its memory.
TEST(ExpandablePressureTest, AnAllocatorWhoseRangesAreAllGoneLeavesNothing) {
  SimDriver sim;
  auto allocator = Allocator::create(sim, make_expandable()).value();
  ASSERT_TRUE(allocator->retain_pool(0, kP).is_ok());
  const auto block = allocator->allocate_in_pool({0, kS0}, 4_MiB, 512, kP);
  ASSERT_TRUE(block.is_ok());
  ASSERT_TRUE(allocator->free(block.value()).is_ok());
  ASSERT_TRUE(allocator->release_pool(0, kP).is_ok());
  ASSERT_TRUE(allocator->empty_cache(0).is_ok());
  EXPECT_TRUE(allocator->get_pool_reports(0).value().empty());
  EXPECT_EQ(sim.get_holdings(0).reservations, 0u);
  allocator.reset();
  EXPECT_EQ(sim.get_holdings(0).physical_bytes, 0u);
  EXPECT_EQ(sim.get_holdings(0).plain_allocations, 0u);
}

// The budget is of what was allocated, not of what somebody would have liked.
TEST(ExpandablePressureTest, ARequestThatFailsRaisesNoBudget) {
  Scenario s(make_options());
  const StreamHandle stream = s.make_stream();
  const Address first = s.malloc(64_MiB, stream);
  EXPECT_EQ(s.malloc(1_GiB, stream), 0u);
  const Address second = s.malloc(4_MiB, stream);  // keeps the next request from what `first` has
  ASSERT_EQ(s.free(first), StatusCode::kOk);
  ASSERT_NE(s.malloc(66_MiB, stream), 0u);
  EXPECT_LE(s.reserved(), 74_MiB);
  EXPECT_GT(s.stats().extents_moved, 0);
  ASSERT_EQ(s.free(second), StatusCode::kOk);
}

// Addresses are not had back: those of requests that no device can serve would use them up.
TEST(ExpandablePressureTest, RequestsBeyondTheDeviceReserveNoAddresses) {
  Scenario s(make_options());
  ASSERT_NE(s.malloc(4_MiB), 0u);
  const auto before = s.sim().get_holdings(0).reservations;
  for (Bytes bytes = 2_GiB; bytes < kUnlimited / 16; bytes *= 2)
    EXPECT_EQ(s.malloc(bytes), 0u);
  EXPECT_EQ(s.sim().get_holdings(0).reservations, before);
}

TEST(ExpandablePressureTest, AlignedWidelyMemoryIsReservedOnlyWhereItIsUsed) {
  Scenario s(make_options());
  ASSERT_NE(s.malloc(512), 0u);
  ASSERT_NE(s.malloc(3_MiB), 0u);
  const Bytes before = s.reserved();
  const Address aligned = s.malloc(4_MiB, kS0, 1_GiB);
  ASSERT_NE(aligned, 0u) << s.last_message();
  EXPECT_EQ(aligned % 1_GiB, 0u);
  EXPECT_LE(s.reserved(), before + 4_MiB);
  const Address beside = s.malloc(4_MiB, kS0, 64_MiB);
  EXPECT_EQ(beside % 64_MiB, 0u);
  EXPECT_LE(s.reserved(), before + 8_MiB);
}

// What is idle goes back before extents of other sizes are made in its place.
TEST(ExpandablePressureTest, TheLimitIsNotPassedWhileExtentsAreReplaced) {
  SimDriver sim;
  Bytes most = 0;
  WatchedDriver driver(sim, DriverEntry::kMap,
                       [&] { most = std::max(most, sim.get_holdings(0).physical_bytes); });
  Config config = make_config();
  auto allocator = Allocator::create(driver, config).value();
  // So much is reserved that an extent is 4 MiB.
  const Address plain = allocator->allocate({0, kS0}, 1_GiB, 512).value();
  allocator->configure(make_expandable());
  const StreamRef stream = sim.create_stream(0, sim::StreamKind::kNonBlocking);
  std::vector<Address> blocks;
  for (int i = 0; i < 8; ++i)
    blocks.push_back(allocator->allocate(stream, 4_MiB, 512).value());
  const auto reserved =
      static_cast<Bytes>(allocator->get_stats(0).value().reserved_bytes.all.current);
  ASSERT_TRUE(allocator->set_limit(0, reserved).is_ok());
  for (const std::size_t i : {1u, 3u, 5u, 7u})
    ASSERT_TRUE(allocator->free(blocks[i]).is_ok());
  // A small extent fits into none of the large ones' places.
  const auto small = allocator->allocate(stream, 512, 512);
  ASSERT_TRUE(small.is_ok()) << small.status().message();
  EXPECT_LE(most, reserved + 2_MiB);  // and the little that waits for the device
  for (const std::size_t i : {0u, 2u, 4u, 6u})
    ASSERT_TRUE(allocator->free(blocks[i]).is_ok());
  ASSERT_TRUE(allocator->free(plain).is_ok());
  ASSERT_TRUE(allocator->free(small.value()).is_ok());
}

// A pool may be released while a request is under way; its addresses are needed until that ends.
TEST(ExpandablePressureTest, AddressesInTheDriversHandsOutliveTheirPool) {
  sim::SimOptions options;
  options.physical_bytes = 2_GiB;
  options.address_space_bytes = 64_MiB;  // so that the request takes a range as a whole
  SimDriver sim(options);
  Allocator* inside = nullptr;
  WatchedDriver driver(sim, DriverEntry::kCreateExtent, [&] {
    if (Allocator* const own = std::exchange(inside, nullptr)) {
      std::thread([own] { EXPECT_TRUE(own->release_pool(0, kP).is_ok()); }).join();
    }
  });
  auto allocator = Allocator::create(driver, make_config()).value();
  // So much is reserved that an extent is 4 MiB.
  const Address plain = allocator->allocate({0, kS0}, 1_GiB, 512).value();
  allocator->configure(make_expandable());
  ASSERT_TRUE(allocator->retain_pool(0, kP).is_ok());
  inside = allocator.get();
  const auto block = allocator->allocate_in_pool({0, kS0}, 61_MiB, 512, kP);
  EXPECT_EQ(inside, nullptr);
  ASSERT_TRUE(block.is_ok()) << block.status().message();
  EXPECT_EQ(allocator->get_stats(0).value().reserved_bytes.all.current,
            static_cast<std::int64_t>(1_GiB + 64_MiB));
  allocator->validate();
  EXPECT_TRUE(allocator->free(block.value()).is_ok());
  EXPECT_TRUE(allocator->empty_cache(0).is_ok());
  EXPECT_TRUE(allocator->get_pool_reports(0).value().empty());
  EXPECT_TRUE(allocator->free(plain).is_ok());
}

}  // namespace
}  // namespace quarry::test
