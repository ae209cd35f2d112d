// SPDX-License-Identifier: Apache-2.0
// AddressSpace: no address twice, alignment, both orders of reuse, and that nothing is lost.
#include "sim/address_space.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace quarry::sim {
namespace {

TEST(AddressSpaceTest, RisesUntilUsedUpThenTakesWhatCameBack) {
  AddressSpace space(1000, 300, false);
  const Address a = space.take(100, 1).value();
  const Address b = space.take(100, 1).value();
  space.give_back(a, 100);
  EXPECT_EQ(space.take(100, 1), 1200u);
  EXPECT_EQ(space.take(100, 1), a);
  EXPECT_FALSE(space.take(1, 1).has_value());
  space.give_back(b, 100);
  EXPECT_EQ(space.take(100, 1), b);
}

TEST(AddressSpaceTest, TakesTheLowestFirstIfWished) {
  AddressSpace space(1000, 300, true);
  EXPECT_EQ(space.take(100, 1), 1000u);
  EXPECT_EQ(space.take(50, 1), 1100u);
  space.give_back(1000, 100);
  EXPECT_EQ(space.take(40, 1), 1000u);
  EXPECT_EQ(space.take(70, 1), 1150u);
}

TEST(AddressSpaceTest, NeighboursThatCameBackMergeWithEachOtherAndTheRest) {
  AddressSpace space(0x1000, 0x300, false);
  for (int i = 0; i < 3; ++i)
    ASSERT_TRUE(space.take(0x80, 1).has_value());
  space.give_back(0x1080, 0x80);
  space.give_back(0x1000, 0x80);
  space.give_back(0x1100, 0x80);
  EXPECT_EQ(space.take(0x300, 1), 0x1000u);
}

TEST(AddressSpaceTest, TheGapThatAlignmentLeavesIsNotLost) {
  AddressSpace space(0x1100, 0x1f00, true);
  EXPECT_EQ(space.take(0x1000, 0x1000), 0x2000u);
  EXPECT_EQ(space.take(0xf00, 1), 0x1100u);
  EXPECT_FALSE(space.take(1, 1).has_value());
}

TEST(AddressSpaceTest, ASizeNearTheTopOfTheTypeIsRefused) {
  AddressSpace space(0x1000, 0x1000, false);
  EXPECT_FALSE(space.take(~Bytes{0}, 512).has_value());
  EXPECT_FALSE(space.take(0x1000, Bytes{1} << 63).has_value());
}

class AddressSpaceRandomTest : public testing::TestWithParam<bool> {};

TEST_P(AddressSpaceRandomTest, TakenRangesAreDisjointAndEverythingComesBack) {
  constexpr Address kBegin = 1 << 20;
  constexpr Bytes kBytes = 1 << 16;
  AddressSpace space(kBegin, kBytes, GetParam());
  std::mt19937_64 random(7);
  std::map<Address, Bytes> taken;
  for (int step = 0; step < 20'000; ++step) {
    if (random() % 2 == 0 && !taken.empty()) {
      const auto range = std::next(taken.begin(), static_cast<long>(random() % taken.size()));
      space.give_back(range->first, range->second);
      taken.erase(range);
      continue;
    }
    const Bytes bytes = 1 + random() % 4096;
    const Bytes alignment = Bytes{1} << (random() % 10);
    const auto address = space.take(bytes, alignment);
    if (!address) continue;
    ASSERT_TRUE(is_aligned(*address, alignment));
    ASSERT_GE(*address, kBegin);
    ASSERT_LE(*address + bytes, kBegin + kBytes);
    const auto after = taken.lower_bound(*address);
    if (after != taken.end()) {
      ASSERT_LE(*address + bytes, after->first);
    }
    if (after != taken.begin()) {
      ASSERT_LE(std::prev(after)->first + std::prev(after)->second, *address);
    }
    taken[*address] = bytes;
  }
  for (const auto& [address, bytes] : taken)
    space.give_back(address, bytes);
  EXPECT_EQ(space.take(kBytes, 1), kBegin);
}

INSTANTIATE_TEST_SUITE_P(BothOrders, AddressSpaceRandomTest, testing::Bool());

}  // namespace
}  // namespace quarry::sim
