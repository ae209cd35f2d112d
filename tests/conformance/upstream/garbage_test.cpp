// SPDX-License-Identifier: Apache-2.0
// garbage_collection_threshold: which cached segments go, by age, when the reserved memory is
// above a part of what the fraction allows; and that nothing is waited for.
#include <gtest/gtest.h>

#include "tests/support/scenario.hpp"

namespace quarry::test {
namespace {

// 1 GiB, half of it allowed, garbage above half of that: 256 MiB.
class UpstreamGarbage : public testing::Test {
 protected:
  UpstreamGarbage() : s_(1_GiB) {
    EXPECT_TRUE(s_.allocator().set_memory_fraction(0, 0.5).is_ok());
    s_.configure([](Config& config) { config.garbage_collection_threshold = 0.5; });
    pin_ = s_.malloc(2_MiB);  // its 20 MiB segment is in use for the whole test
  }
  // Ages every free large block by one search each time.
  void age(int searches) {
    for (int i = 0; i < searches; ++i)
      s_.free(s_.malloc(2_MiB));
  }
  std::uint64_t frees() const { return s_.calls(DriverEntry::kFree); }

  Scenario s_;
  Address pin_ = 0;
};

TEST_F(UpstreamGarbage, BlocksOfAtLeastAverageAgeAreReleased) {
  const Address old = s_.malloc(80_MiB), middle = s_.malloc(80_MiB), young = s_.malloc(80_MiB);
  s_.free(old);
  age(10);
  s_.free(middle);
  age(10);
  s_.free(young);
  s_.malloc(100_MiB);  // 260 MiB are reserved: 4 MiB too many, but one round takes both
  EXPECT_EQ(frees(), 2u);
  EXPECT_EQ(s_.malloc(80_MiB), young);
  EXPECT_EQ(s_.reserved(), 20_MiB + 80_MiB + 100_MiB);
  EXPECT_EQ(s_.stats().num_sync_all_streams, 0);
  EXPECT_EQ(s_.calls(DriverEntry::kSynchronizeEvent), 0u);
}

TEST_F(UpstreamGarbage, WithoutUpstreamsQuirksItStopsAtTheTarget) {
  s_.configure([](Config& config) { config.upstream_quirks = false; });
  const Address old = s_.malloc(80_MiB), middle = s_.malloc(80_MiB), young = s_.malloc(80_MiB);
  s_.free(old);
  age(10);
  s_.free(middle);
  age(10);
  s_.free(young);
  s_.malloc(100_MiB);
  EXPECT_EQ(frees(), 1u) << "the oldest is enough";
  EXPECT_EQ(s_.malloc(80_MiB), middle);
}

TEST_F(UpstreamGarbage, RoundsGoOnUntilTheTargetIsReached) {
  Address blocks[4];
  for (Address& block : blocks)
    block = s_.malloc(110_MiB);
  for (const Address block : blocks) {
    s_.free(block);
    age(8);
  }
  s_.malloc(30_MiB - 512);  // a hit: a search, but no miss
  EXPECT_EQ(frees(), 0u);
  s_.malloc(120_MiB);  // 460 MiB reserved: more than 204 must go, the average round gives 220
  EXPECT_GE(frees(), 2u);
  EXPECT_LE(s_.reserved(), 256_MiB + 120_MiB);
}

TEST_F(UpstreamGarbage, BelowTheThresholdNothingGoes) {
  s_.free(s_.malloc(200_MiB));
  age(10);
  s_.malloc(210_MiB);
  EXPECT_EQ(frees(), 0u);
}

TEST_F(UpstreamGarbage, BlocksInUsePendingSplitOrSmallAreNoGarbage) {
  const StreamHandle side = s_.make_stream();
  const Address pending = s_.malloc(90_MiB);
  s_.record(pending, side);
  s_.busy(side);
  const Address small = s_.malloc(1_MiB);
  const Address whole = s_.malloc(60_MiB);
  s_.free(whole);
  const Address part = s_.malloc(20_MiB);  // of `whole`
  ASSERT_EQ(part, whole);
  s_.malloc(100_MiB);
  s_.free(pending);
  s_.free(small);
  age(10);
  ASSERT_GT(s_.reserved(), 256_MiB);
  s_.malloc(110_MiB);
  EXPECT_EQ(frees(), 0u);
  EXPECT_EQ(s_.stats().num_alloc_retries, 0);
  EXPECT_FALSE(s_.is_idle(side));
}

TEST_F(UpstreamGarbage, UpstreamNeedsAFractionAndWeDoNot) {
  for (const bool upstream_quirks : {true, false}) {
    Scenario s(1_GiB);
    s.configure([upstream_quirks](Config& config) {
      config.garbage_collection_threshold = 0.5;
      config.upstream_quirks = upstream_quirks;
    });
    s.free(s.malloc(600_MiB));
    s.malloc(200_MiB - 512);  // a part of it
    s.free(s.malloc(300_MiB, s.make_stream()));
    s.malloc(100_MiB, s.make_stream());
    EXPECT_EQ(s.calls(DriverEntry::kFree), upstream_quirks ? 0u : 1u);
  }
}

}  // namespace
}  // namespace quarry::test
