// SPDX-License-Identifier: Apache-2.0
// Requests aligned above 512 bytes: what they get, what they leave, and that it grows together
// again.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "tests/support/scenario.hpp"

namespace quarry::test {
namespace {

TEST(AlignmentTest, EveryPowerOfTwoIsKept) {
  Scenario s;
  for (const Bytes bytes : {Bytes{1}, Bytes{3000}, 900_KiB, 1_MiB, 3_MiB, 12_MiB}) {
    std::vector<Address> blocks;
    for (Bytes alignment = 1; alignment <= 64_MiB; alignment *= 2) {
      const Address address = s.malloc(bytes, kS0, alignment);
      ASSERT_NE(address, 0u) << s.last_message();
      EXPECT_TRUE(is_aligned(address, alignment)) << bytes << " at " << alignment;
      EXPECT_GE(s.allocator().find_block(address).value().bytes, bytes);
      blocks.push_back(address);
    }
    s.allocator().validate();
    for (const Address address : blocks)
      EXPECT_EQ(s.free(address), StatusCode::kOk);
    EXPECT_EQ(s.stats().inactive_split.all.current, 0) << "everything merges back";
    EXPECT_EQ(s.allocated(), 0u);
  }
}

TEST(AlignmentTest, UpToFiveHundredTwelveItCostsNothing) {
  Scenario s;
  const Address first = s.malloc(1000);
  for (Bytes alignment = 1; alignment <= 512; alignment *= 2) {
    s.malloc(1000, kS0, alignment);
  }
  EXPECT_EQ(s.allocated(), 11 * 1024u);
  EXPECT_EQ(s.malloc(1000), first + 11 * 1024);
  EXPECT_EQ(s.reserved(), 2_MiB);
}

TEST(AlignmentTest, WhatIsCutOffAtTheHeadServesOtherRequests) {
  Scenario s;
  const Address first = s.malloc(512);  // so that the next place is 512 beyond an alignment
  const Address aligned = s.malloc(4096, kS0, 64_KiB);
  EXPECT_EQ(aligned, first + 64_KiB);
  EXPECT_EQ(s.malloc(60_KiB), first + 512) << "before the aligned block";
  EXPECT_EQ(s.reserved(), 2_MiB);
}

TEST(AlignmentTest, TheUserHoldsTheBlockAndNotTheRoomToAlign) {
  Scenario s;
  s.malloc(512);
  const Address aligned = s.malloc(4096, kS0, 64_KiB);
  EXPECT_EQ(s.allocator().find_block(aligned).value().bytes, 4096u);
  EXPECT_EQ(s.allocated(), 512u + 4096u);
  EXPECT_EQ(s.stats().requested_bytes.all.current, 512 + 4096);
}

TEST(AlignmentTest, ACachedBlockWithRoomIsUsedBeforeTheDriverIsAsked) {
  Scenario s;
  s.free(s.malloc(64_MiB));
  s.sim().reset_call_counts();
  EXPECT_NE(s.malloc(20_MiB, kS0, 32_MiB), 0u);
  EXPECT_EQ(s.calls(DriverEntry::kAllocate), 0u);
}

TEST(AlignmentTest, ABlockOfExactlyTheSizeButElsewhereIsNotUsed) {
  Scenario s;
  const Address first = s.malloc(512);
  const Address wrong = s.malloc(4096);
  ASSERT_FALSE(is_aligned(wrong, 4096));
  const Address guard = s.malloc(512);
  s.free(wrong);
  EXPECT_NE(s.malloc(4096, kS0, 4096), wrong);
  s.free(first);
  s.free(guard);
}

TEST(AlignmentTest, RandomAlignmentsNeverOverlapAndMergeBack) {
  Scenario s;
  std::mt19937 random(5);
  std::map<Address, Bytes> live;
  for (int step = 0; step < 3000; ++step) {
    if (live.size() < 60 && random() % 2 == 0) {
      const Bytes alignment = Bytes{1} << (random() % 24);
      const Bytes bytes = random() % 3 == 0 ? 1 + random() % 4_MiB : 1 + random() % 20_KiB;
      const Address address = s.malloc(bytes, kS0, alignment);
      ASSERT_TRUE(is_aligned(address, alignment));
      const auto next = live.lower_bound(address);
      ASSERT_TRUE(next == live.end() || address + bytes <= next->first);
      ASSERT_TRUE(next == live.begin() ||
                  std::prev(next)->first + std::prev(next)->second <= address);
      live.emplace(address, bytes);
    } else if (!live.empty()) {
      const auto victim = std::next(live.begin(), random() % live.size());
      s.free(victim->first);
      live.erase(victim);
    }
    if (step % 250 == 0) s.allocator().validate();
  }
  for (const auto& [address, bytes] : live)
    s.free(address);
  EXPECT_EQ(s.stats().inactive_split.all.current, 0);
  EXPECT_EQ(s.stats().active.all.current, 0);
}

}  // namespace
}  // namespace quarry::test
