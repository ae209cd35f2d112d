// SPDX-License-Identifier: Apache-2.0
// The memory fraction: what it counts, when it refuses, and that it then asks nothing of the
// driver.
#include <gtest/gtest.h>

#include "tests/support/scenario.hpp"

namespace quarry::test {
namespace {

class UpstreamFraction : public testing::Test {
 protected:
  void set_fraction(double fraction) {
    EXPECT_TRUE(s_.allocator().set_memory_fraction(0, fraction).is_ok());
  }
  Scenario s_{1_GiB};
};

TEST_F(UpstreamFraction, ItIsExactAndInclusive) {
  set_fraction(0.5);
  EXPECT_EQ(s_.malloc(514_MiB), 0u);
  EXPECT_NE(s_.malloc(512_MiB), 0u);
  EXPECT_EQ(s_.malloc(512), 0u);
}

TEST_F(UpstreamFraction, ARefusalMakesNoDriverAllocation) {
  set_fraction(0.5);
  s_.malloc(500_MiB);
  s_.sim().reset_call_counts();
  EXPECT_EQ(s_.malloc(100_MiB), 0u);
  EXPECT_EQ(s_.last_code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(s_.calls(DriverEntry::kAllocate), 0u);
  EXPECT_EQ(s_.stats().num_ooms, 1);
}

TEST_F(UpstreamFraction, OnlyWhatThisAllocatorReservesCounts) {
  s_.sim().set_external_bytes(0, 400_MiB);
  set_fraction(0.5);
  EXPECT_NE(s_.malloc(512_MiB), 0u) << "others' memory is not in the fraction";
}

TEST_F(UpstreamFraction, CachedMemoryIsFlushedToMakeRoom) {
  set_fraction(0.5);
  s_.free(s_.malloc(400_MiB));
  EXPECT_NE(s_.malloc(450_MiB), 0u);
  EXPECT_EQ(s_.stats().num_alloc_retries, 1);
  EXPECT_EQ(s_.reserved(), 450_MiB);
}

TEST_F(UpstreamFraction, LoweringItTakesNothingBackAndTheCacheStillServes) {
  const Address p = s_.malloc(600_MiB);
  set_fraction(0.25);
  EXPECT_EQ(s_.reserved(), 600_MiB);
  s_.free(p);
  EXPECT_EQ(s_.malloc(600_MiB), p);
  EXPECT_EQ(s_.malloc(512), 0u);
}

TEST_F(UpstreamFraction, ZeroLetsNothingGrowAndOneIsNoLimit) {
  set_fraction(0.0);
  EXPECT_EQ(s_.malloc(512), 0u);
  set_fraction(1.0);
  EXPECT_NE(s_.malloc(1_GiB), 0u);
}

TEST_F(UpstreamFraction, ItIsAnOptionToo) {
  s_.configure([](Config& config) { config.per_process_memory_fraction = 0.5; });
  EXPECT_EQ(s_.allocator().get_memory_fraction(0).value(), 0.5);
  EXPECT_EQ(s_.malloc(600_MiB), 0u);
}

// throw_on_cudamalloc_oom: refused at once, with the cache kept and no driver call at all.
TEST_F(UpstreamFraction, WithThrowOnCudamallocOomARefusalFlushesNothing) {
  s_.configure([](Config& config) { config.throw_on_cudamalloc_oom = true; });
  set_fraction(0.5);
  s_.free(s_.malloc(400_MiB));
  s_.sim().reset_call_counts();
  EXPECT_EQ(s_.malloc(450_MiB), 0u);
  EXPECT_EQ(s_.last_code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(s_.calls(DriverEntry::kAllocate), 0u);
  EXPECT_EQ(s_.calls(DriverEntry::kFree), 0u);
  EXPECT_EQ(s_.reserved(), 400_MiB);
  EXPECT_EQ(s_.stats().num_oom_rejections, 1);
  EXPECT_EQ(s_.stats().num_alloc_retries, 0);
  EXPECT_EQ(s_.stats().num_ooms, 1);
}

TEST_F(UpstreamFraction, WithThrowOnCudamallocOomTheDriversOwnRefusalStillFlushes) {
  s_.configure([](Config& config) { config.throw_on_cudamalloc_oom = true; });
  s_.free(s_.malloc(600_MiB));
  EXPECT_NE(s_.malloc(700_MiB), 0u);
  EXPECT_EQ(s_.stats().num_oom_rejections, 0);
  EXPECT_EQ(s_.stats().num_alloc_retries, 1);
}

}  // namespace
}  // namespace quarry::test
