// SPDX-License-Identifier: Apache-2.0
// Which free block serves a request: best fit by size, then the older segment, then the address;
// the oversize rules; and no second attempt after a refusal.
#include <gtest/gtest.h>

#include "tests/support/scenario.hpp"

namespace quarry::test {
namespace {

TEST(UpstreamBestFit, TheSmallestBlockThatFitsIsTaken) {
  Scenario s;
  const Address large = s.malloc(40_MiB), small = s.malloc(14_MiB), middle = s.malloc(24_MiB);
  s.free(large);
  s.free(middle);
  s.free(small);
  EXPECT_EQ(s.malloc(12_MiB), small);
  EXPECT_EQ(s.malloc(13_MiB), middle);
  EXPECT_EQ(s.malloc(25_MiB), large);
}

TEST(UpstreamBestFit, AmongEqualsTheOldestSegmentIsTakenWhateverItsAddress) {
  ScenarioOptions options;
  options.sim.reuse_addresses = true;
  Scenario s(options);
  const Address low = s.malloc(16_MiB);
  const Address older = s.malloc(16_MiB);
  ASSERT_LT(low, older);
  s.free(low);
  s.empty_cache();
  ASSERT_EQ(s.malloc(16_MiB), low) << "the address again, in a younger segment";
  s.free(older);
  s.free(low);
  // With magazines both are parked by now (whole segments of a size that was asked for twice
  // before), and a magazine gives the last freed one first: the fit is exact either way.
  EXPECT_EQ(s.malloc(16_MiB), has_magazines() ? low : older);
  EXPECT_EQ(s.malloc(16_MiB), has_magazines() ? older : low);
}

TEST(UpstreamBestFit, WithinASegmentTheLowestAddressIsTaken) {
  Scenario s;
  Address blocks[4];
  for (Address& block : blocks)
    block = s.malloc(128_KiB);
  s.free(blocks[2]);
  s.free(blocks[0]);
  EXPECT_EQ(s.malloc(128_KiB), blocks[0]);
  EXPECT_EQ(s.malloc(128_KiB), blocks[2]);
}

TEST(UpstreamBestFit, SmallAndLargeRequestsNeverShareASegment) {
  Scenario s;
  s.free(s.malloc(40_MiB));
  s.malloc(1_MiB);
  EXPECT_EQ(s.reserved(), 42_MiB);
  s.free(s.malloc(512));
  s.malloc(1_MiB + 512);
  EXPECT_EQ(s.reserved(), 42_MiB);
  EXPECT_EQ(s.stats().segment.family[0].current, 1);
  EXPECT_EQ(s.stats().segment.family[1].current, 1);
}

TEST(UpstreamBestFit, OversizeBlocksAreKeptForOversizeRequests) {
  ScenarioOptions options;
  options.config.max_split_bytes = 40_MiB;
  Scenario s(options);
  const Address oversize = s.malloc(40_MiB);
  s.free(oversize);
  EXPECT_NE(s.malloc(39_MiB), oversize);
  EXPECT_EQ(s.reserved(), 80_MiB);
  EXPECT_EQ(s.malloc(40_MiB), oversize);
}

TEST(UpstreamBestFit, AnOversizeRequestTakesABlockLessThanTheSlackLarger) {
  for (const Bytes slack : {20_MiB, 32_MiB}) {
    ScenarioOptions options;
    options.config.max_split_bytes = 64_MiB;
    options.config.max_non_split_rounding_bytes = slack;
    Scenario s(options);
    const Address block = s.malloc(128_MiB);
    s.free(block);
    EXPECT_NE(s.malloc(128_MiB - slack), block) << "larger by the slack itself";
    EXPECT_EQ(s.malloc(128_MiB - slack + 512), block) << "and by 512 less";
  }
}

// The best fit is refused; a larger block that would do is not looked at.
TEST(UpstreamBestFit, ThereIsNoSecondAttemptAfterARefusal) {
  ScenarioOptions options;
  options.config.max_split_bytes = 40_MiB;
  Scenario s(options);
  const Address fitting = s.malloc(44_MiB);
  const Address larger = s.malloc(62_MiB);
  s.free(fitting);
  s.free(larger);
  s.sim().reset_call_counts();
  s.malloc(30_MiB);  // the best fit is oversize: refused
  EXPECT_EQ(s.calls(DriverEntry::kAllocate), 1u);
  EXPECT_EQ(s.calls(DriverEntry::kFree), 0u);
}

// Each size is asked for once, so that no block parks: parked neighbours do not merge.
TEST(UpstreamBestFit, NeighboursMergeOnBothSidesWhenTheyAreFree) {
  Scenario s;
  constexpr Bytes kSizes[] = {512_KiB - 1024, 512_KiB - 512, 512_KiB + 512, 512_KiB + 1024};
  Address blocks[4];
  for (std::size_t i = 0; i < 4; ++i)
    blocks[i] = s.malloc(kSizes[i]);
  s.free(blocks[0]);
  s.free(blocks[2]);
  EXPECT_EQ(s.stats().inactive_split.all.current, 2);
  s.free(blocks[1]);
  EXPECT_EQ(s.stats().inactive_split.all.current, 1);
  EXPECT_EQ(s.stats().largest_free_block, static_cast<std::int64_t>(1536_KiB - 1024));
  s.free(blocks[3]);
  EXPECT_EQ(s.stats().inactive_split.all.current, 0);
  EXPECT_EQ(s.malloc(1_MiB), blocks[0]);
}

TEST(UpstreamBestFit, APendingNeighbourDoesNotMerge) {
  Scenario s;
  const StreamHandle side = s.make_stream();
  const Address first = s.malloc(1_MiB), second = s.malloc(1_MiB);
  s.record(first, side);
  s.busy(side);
  s.free(first);
  s.free(second);
  EXPECT_EQ(s.stats().largest_free_block, static_cast<std::int64_t>(1_MiB));
  EXPECT_EQ(s.stats().inactive_split.all.current, 1);
  EXPECT_EQ(s.malloc(512_KiB), second);
  s.free(second);
  s.complete(side);
  s.malloc(3_MiB);
  EXPECT_EQ(s.stats().inactive_split.family[0].current, 0) << "whole again";
}

}  // namespace
}  // namespace quarry::test
