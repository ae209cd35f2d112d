// SPDX-License-Identifier: Apache-2.0
// What a miss does and in which order: callbacks, garbage, the driver, oversize blocks,
// everything. Orders are seen by the driver calls made until each point.
#include <gtest/gtest.h>

#include "tests/support/scenario.hpp"

namespace quarry::test {
namespace {

class UpstreamMallocOrder : public testing::Test {
 protected:
  explicit UpstreamMallocOrder(const ScenarioOptions& options = ScenarioOptions::with_cap(1_GiB))
      : s_(options) {}
  std::uint64_t allocates() const { return s_.calls(DriverEntry::kAllocate); }
  std::uint64_t frees() const { return s_.calls(DriverEntry::kFree); }
  Scenario s_;
};

class UpstreamSplitLimit : public UpstreamMallocOrder {
 protected:
  static ScenarioOptions with_split_limit() {
    ScenarioOptions options = ScenarioOptions::with_cap(1_GiB);
    options.config.max_split_bytes = 100_MiB;
    return options;
  }
  UpstreamSplitLimit() : UpstreamMallocOrder(with_split_limit()) {}
};

TEST_F(UpstreamMallocOrder, AHitAndItsFreeMakeNoDriverCall) {
  s_.free(s_.malloc(4096));
  s_.free(s_.malloc(3_MiB));
  s_.sim().reset_call_counts();
  for (int i = 0; i < 100; ++i) {
    s_.free(s_.malloc(4096));
    s_.free(s_.malloc(3_MiB));
  }
  EXPECT_EQ(s_.sim().call_count(), 0u);
}

TEST_F(UpstreamMallocOrder, CallbacksAreAskedBeforeTheDriverAndTheCacheIsSearchedAgain) {
  const Address held = s_.malloc(600_MiB);
  s_.sim().reset_call_counts();
  int asked = 0;
  s_.allocator().callbacks().add_free_memory_callback([&](DeviceId device, Bytes bytes) {
    ++asked;
    EXPECT_EQ(device, 0);
    EXPECT_EQ(bytes, 500_MiB);
    EXPECT_EQ(allocates(), 0u) << "the driver was asked first";
    return s_.free(held) == StatusCode::kOk;
  });
  EXPECT_EQ(s_.malloc(500_MiB), held);
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(allocates(), 0u);
  EXPECT_EQ(s_.stats().num_alloc_retries, 0);
}

TEST_F(UpstreamMallocOrder, ACallbackThatDidNothingCausesNoSearch) {
  const Address held = s_.malloc(300_MiB);
  s_.allocator().callbacks().add_free_memory_callback([&](DeviceId, Bytes) {
    s_.free(held);
    return false;  // although it did
  });
  EXPECT_NE(s_.malloc(200_MiB), held);
  EXPECT_EQ(allocates(), 2u);
}

TEST_F(UpstreamMallocOrder, CallbacksAreNotAskedOnAHit) {
  s_.free(s_.malloc(4096));
  int asked = 0;
  s_.allocator().callbacks().add_free_memory_callback(
      [&](DeviceId, Bytes) { return ++asked > 0; });
  s_.malloc(4096);
  EXPECT_EQ(asked, 0);
}

TEST_F(UpstreamMallocOrder, GarbageIsCollectedBeforeTheDriverIsAsked) {
  EXPECT_TRUE(s_.allocator().set_memory_fraction(0, 0.9).is_ok());
  s_.configure([](Config& config) { config.garbage_collection_threshold = 0.5; });
  s_.free(s_.malloc(600_MiB));
  EXPECT_NE(s_.malloc(700_MiB), 0u);
  EXPECT_EQ(frees(), 1u);
  EXPECT_EQ(allocates(), 2u) << "and so the driver had room at once";
  EXPECT_EQ(s_.stats().num_alloc_retries, 0);
  EXPECT_EQ(s_.stats().num_sync_all_streams, 0);
}

TEST_F(UpstreamMallocOrder, ARefusalOfTheDriverFlushesEverythingOnceAndAsksAgain) {
  const StreamHandle side = s_.make_stream();
  s_.free(s_.malloc(200_MiB));
  s_.free(s_.malloc(300_MiB, side));
  s_.free(s_.malloc(4096));
  const Address part = s_.malloc(2_MiB);  // of the 200 MiB, which stay for it
  s_.sim().reset_call_counts();
  EXPECT_NE(s_.malloc(700_MiB), 0u);
  EXPECT_EQ(allocates(), 2u) << "refused, then granted";
  EXPECT_EQ(frees(), 2u) << "300 MiB of the other stream, and the small segment";
  EXPECT_EQ(s_.stats().num_alloc_retries, 1);
  EXPECT_EQ(s_.stats().num_sync_all_streams, 1);
  EXPECT_EQ(s_.stats().num_ooms, 0);
  s_.free(part);
}

TEST_F(UpstreamMallocOrder, OutOfMemoryIsToldAfterTwoRefusals) {
  s_.malloc(600_MiB);
  s_.sim().reset_call_counts();
  EXPECT_EQ(s_.malloc(500_MiB), 0u);
  EXPECT_EQ(s_.last_code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(allocates(), 2u);
  EXPECT_EQ(s_.stats().num_alloc_retries, 1);
  EXPECT_EQ(s_.stats().num_ooms, 1);
  EXPECT_EQ(s_.allocated(), 600_MiB) << "and nothing else has changed";
}

TEST_F(UpstreamMallocOrder, AnotherErrorOfTheDriverIsNoShortage) {
  s_.free(s_.malloc(200_MiB));
  s_.sim().fail_call(DriverEntry::kAllocate, 1, DriverCode::kIllegalAddress);
  EXPECT_EQ(s_.malloc(500_MiB), 0u);
  EXPECT_EQ(s_.last_code(), StatusCode::kDriverError);
  EXPECT_NE(s_.last_message().find("CUDA_ERROR_ILLEGAL_ADDRESS (700)"), std::string::npos);
  EXPECT_EQ(frees(), 0u) << "the cache was not flushed";
  EXPECT_EQ(s_.stats().num_alloc_retries, 0);
  EXPECT_EQ(s_.stats().num_ooms, 0);
  EXPECT_NE(s_.malloc(500_MiB), 0u);
}

TEST_F(UpstreamMallocOrder, TheFlushWaitsForPendingBlocks) {
  const StreamHandle side = s_.make_stream();
  const Address pending = s_.malloc(800_MiB);
  s_.record(pending, side);
  s_.busy(side);
  s_.free(pending);
  EXPECT_NE(s_.malloc(900_MiB), 0u);
  EXPECT_TRUE(s_.is_idle(side)) << "it was waited for";
  EXPECT_EQ(s_.reserved(), 900_MiB);
  EXPECT_EQ(s_.stats().num_sync_all_streams, 1);
}

// Where upstream goes wrong (it does not search again after the wait), we do not follow.
TEST_F(UpstreamMallocOrder, WhatTheWaitFreedIsFoundEvenIfItsSegmentCannotBeReleased) {
  const StreamHandle side = s_.make_stream();
  s_.free(s_.malloc(800_MiB));
  const Address kept = s_.malloc(100_MiB);
  const Address pending = s_.malloc(600_MiB);
  ASSERT_EQ(pending, kept + 100_MiB);
  s_.record(pending, side);
  s_.busy(side);
  s_.free(pending);
  EXPECT_EQ(s_.malloc(600_MiB), pending);
  EXPECT_EQ(s_.stats().num_ooms, 0);
}

TEST_F(UpstreamSplitLimit, TheSmallestOversizeBlockThatMakesRoomIsReleasedAlone) {
  const Address large = s_.malloc(500_MiB), fitting = s_.malloc(300_MiB);
  s_.malloc(200_MiB);
  s_.free(large);
  s_.free(fitting);
  s_.sim().reset_call_counts();
  EXPECT_NE(s_.malloc(260_MiB), 0u) << s_.last_message();
  EXPECT_EQ(allocates(), 2u);
  EXPECT_EQ(frees(), 1u);
  EXPECT_EQ(s_.reserved(), 500_MiB + 200_MiB + 260_MiB);
  EXPECT_EQ(s_.stats().num_alloc_retries, 0) << "no flush was needed";
  EXPECT_EQ(s_.malloc(500_MiB), large);
}

TEST_F(UpstreamSplitLimit, WithoutOneThatSufficesTheyGoFromTheLargestDown) {
  const Address small = s_.malloc(150_MiB), large = s_.malloc(400_MiB),
                middle = s_.malloc(250_MiB);
  s_.malloc(200_MiB);
  for (const Address p : {small, large, middle})
    s_.free(p);
  s_.sim().reset_call_counts();
  EXPECT_NE(s_.malloc(620_MiB), 0u);
  EXPECT_EQ(frees(), 2u);
  EXPECT_EQ(s_.stats().num_alloc_retries, 0);
  EXPECT_EQ(s_.malloc(150_MiB), small) << "it stayed cached";
}

TEST_F(UpstreamSplitLimit, OversizeBlocksOfOtherStreamsAreLeftToTheFlush) {
  const StreamHandle side = s_.make_stream();
  s_.free(s_.malloc(600_MiB, side));
  EXPECT_NE(s_.malloc(700_MiB), 0u);
  EXPECT_EQ(s_.stats().num_alloc_retries, 1);
  EXPECT_EQ(s_.reserved(), 700_MiB);
}

TEST_F(UpstreamMallocOrder, WithoutASplitLimitNothingIsReleasedBeforeTheFlush) {
  s_.free(s_.malloc(500_MiB));
  s_.free(s_.malloc(510_MiB));
  EXPECT_NE(s_.malloc(520_MiB), 0u);
  EXPECT_EQ(s_.stats().num_alloc_retries, 1);
  EXPECT_EQ(frees(), 2u) << "the flush spares nothing";
}

}  // namespace
}  // namespace quarry::test
