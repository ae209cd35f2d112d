// SPDX-License-Identifier: Apache-2.0
// To whom free memory belongs: a stream, another stream after free_on_stream, or nobody once its
// stream is retired and drained.
#include <gtest/gtest.h>

#include <thread>

#include "tests/support/scenario.hpp"

namespace quarry::test {
namespace {

std::size_t count_segments(Scenario& s) {
  return static_cast<std::size_t>(s.stats().segment.all.current);
}

TEST(OwnershipTest, FreedMemoryServesItsOwnStreamAtOnceAndNoOther) {
  Scenario s;
  const StreamHandle s1 = s.make_stream(), s2 = s.make_stream();
  const Address p = s.malloc(4096, s1);
  s.busy(s1);
  s.free(p);
  EXPECT_NE(s.malloc(4096, s2), p);
  EXPECT_EQ(s.malloc(4096, s1), p) << "the order of the stream makes it safe";
  EXPECT_EQ(count_segments(s), 2u);
}

TEST(OwnershipTest, LegacyHandlesZeroAndOneShareTheirMemory) {
  Scenario s;
  const Address p = s.malloc(4096, StreamHandle::kLegacy);
  s.free(p);
  EXPECT_EQ(s.malloc(4096, StreamHandle::kLegacyExplicit), p);
}

TEST(OwnershipTest, PerThreadStreamsOfTwoThreadsShareNone) {
  Scenario s;
  const Address mine = s.malloc(4096, StreamHandle::kPerThread);
  s.free(mine);
  Address theirs = 0;
  std::thread([&] {
    theirs = s.malloc(4096, StreamHandle::kPerThread);
    s.free(theirs);
    s.allocator().retire_thread_streams();
  }).join();
  EXPECT_NE(theirs, mine);
  EXPECT_EQ(s.malloc(4096, StreamHandle::kPerThread), mine);
}

// --- free_on_stream ----------------------------------------------------------------------------

TEST(FreeOnStreamTest, TheBlockServesTheNewStreamAndNotTheOld) {
  Scenario s;
  const StreamHandle s1 = s.make_stream(), s2 = s.make_stream();
  const Address p = s.malloc(4096, s1);
  s.sim().reset_call_counts();
  EXPECT_EQ(s.free_on_stream(p, s2), StatusCode::kOk);
  EXPECT_EQ(s.calls(DriverEntry::kRecordEvent), 0u) << "the caller has ordered the streams";
  EXPECT_NE(s.malloc(4096, s1), p);
  EXPECT_EQ(s.malloc(4096, s2), p);
}

TEST(FreeOnStreamTest, TheBlockDoesNotMergeWithNeighboursOfTheOldStream) {
  Scenario s;
  const StreamHandle s1 = s.make_stream(), s2 = s.make_stream();
  const Address p = s.malloc(512_KiB, s1);
  const Address q = s.malloc(512_KiB, s1);
  s.free_on_stream(p, s2);
  s.free(q);
  s.allocator().validate();
  EXPECT_EQ(s.stats().inactive_split.all.current, 2) << "p, and q with the rest";
  EXPECT_EQ(s.malloc(512_KiB, s2), p);
  EXPECT_EQ(s.malloc(512_KiB, s1), q);
}

TEST(FreeOnStreamTest, TheBlockMergesWithNeighboursOfTheNewStream) {
  Scenario s;
  const StreamHandle s1 = s.make_stream(), s2 = s.make_stream();
  const Address p = s.malloc(1_MiB, s1);
  const Address q = s.malloc(1_MiB, s1);
  ASSERT_EQ(q, p + 1_MiB);
  s.free_on_stream(p, s2);
  s.free_on_stream(q, s2);
  EXPECT_EQ(s.stats().inactive_split.all.current, 0) << "one free block, the whole segment";
  EXPECT_EQ(s.allocator().get_stream_caches(0).value().front().stream,
            static_cast<std::uint64_t>(s2));
  EXPECT_EQ(s.stats().largest_free_block, static_cast<std::int64_t>(2_MiB));
}

TEST(FreeOnStreamTest, AUseOnTheNewOwnerNeedsNoFence) {
  Scenario s;
  const StreamHandle s1 = s.make_stream(), s2 = s.make_stream();
  const Address p = s.malloc(4096, s1);
  s.record(p, s2);
  s.busy(s2);
  EXPECT_EQ(s.free_on_stream(p, s2), StatusCode::kOk);
  EXPECT_EQ(s.calls(DriverEntry::kRecordEvent), 0u);
  EXPECT_EQ(s.malloc(4096, s2), p);
}

TEST(FreeOnStreamTest, AUseOnAThirdStreamIsStillWaitedFor) {
  Scenario s;
  const StreamHandle s1 = s.make_stream(), s2 = s.make_stream(), s3 = s.make_stream();
  const Address p = s.malloc(4096, s1);
  s.record(p, s3);
  s.busy(s3);
  EXPECT_EQ(s.free_on_stream(p, s2), StatusCode::kOk);
  EXPECT_NE(s.malloc(4096, s2), p);
  s.complete(s3);
  EXPECT_EQ(s.malloc(4096, s2), p);
}

// --- retirement --------------------------------------------------------------------------------

TEST(RetiredStreamTest, ItsMemoryServesAnyStreamOnceItsWorkIsDone) {
  Scenario s;
  const StreamHandle s1 = s.make_stream();
  const Address p = s.malloc(16_MiB, s1);
  s.free(p);
  s.busy(s1);
  EXPECT_TRUE(s.allocator().retire_stream({0, s1}).is_ok());
  EXPECT_NE(s.malloc(16_MiB), p) << "its work still runs";
  EXPECT_EQ(s.stats().idle_bytes, 0);
  s.complete(s1);
  s.sim().reset_call_counts();
  EXPECT_EQ(s.malloc(12_MiB), p);
  EXPECT_EQ(s.calls(DriverEntry::kAllocate), 0u);
  EXPECT_EQ(s.stats().idle_bytes, static_cast<std::int64_t>(4_MiB)) << "the rest stays anyone's";
}

TEST(RetiredStreamTest, WithoutRetirementItsMemoryStaysStranded) {
  Scenario s;
  const StreamHandle s1 = s.make_stream();
  const Address p = s.malloc(8_MiB, s1);
  s.free(p);
  EXPECT_NE(s.malloc(8_MiB), p);
  const auto caches = s.allocator().get_stream_caches(0).value();
  ASSERT_FALSE(caches.empty());
  EXPECT_EQ(caches.front().stream, static_cast<std::uint64_t>(s1));
  EXPECT_EQ(caches.front().cached_bytes, 20_MiB);
}

TEST(RetiredStreamTest, OwnMemoryIsTakenBeforeIdleMemory) {
  Scenario s;
  const StreamHandle s1 = s.make_stream();
  const Address idle = s.malloc(8_MiB, s1);
  const Address own = s.malloc(16_MiB);
  s.free(idle);
  s.free(own);
  EXPECT_TRUE(s.allocator().retire_stream({0, s1}).is_ok());
  EXPECT_EQ(s.malloc(8_MiB), own) << "although the idle block fits as well";
  EXPECT_EQ(s.malloc(12_MiB), idle);
}

TEST(RetiredStreamTest, IdleNeighboursOfTwoStreamsMerge) {
  Scenario s;
  const StreamHandle s1 = s.make_stream(), s2 = s.make_stream();
  const Address p = s.malloc(1_MiB, s1);
  const Address q = s.malloc(1_MiB, s1);
  s.free(p);
  s.free_on_stream(q, s2);
  EXPECT_EQ(s.stats().inactive_split.all.current, 2);
  EXPECT_TRUE(s.allocator().retire_stream({0, s1}).is_ok());
  EXPECT_TRUE(s.allocator().retire_stream({0, s2}).is_ok());
  EXPECT_EQ(s.malloc(1_MiB), p);
  EXPECT_EQ(s.malloc(1_MiB), q) << "the rest of the merged block";
  EXPECT_EQ(count_segments(s), 1u);
}

TEST(RetiredStreamTest, ABlockThatOutlivesItsStreamBecomesIdleWhenFreed) {
  Scenario s;
  const StreamHandle s1 = s.make_stream(), s2 = s.make_stream();
  const Address p = s.allocator().allocate({0, s1}, 4096).value();
  EXPECT_TRUE(s.allocator().retire_stream({0, s1}).is_ok());
  EXPECT_EQ(s.sim().destroy_stream({0, s1}), DriverCode::kSuccess);
  s.malloc(512);  // sees the retirement's fence
  EXPECT_TRUE(s.allocator().free(p).is_ok());
  EXPECT_EQ(s.malloc(4096, s2), p);
}

TEST(RetiredStreamTest, AHandleThatComesBackIsAnotherStream) {
  ScenarioOptions options;
  options.sim.reuse_stream_handles = true;
  Scenario s(options);
  const StreamHandle first = s.make_stream();
  const Address p = s.malloc(4096, first);
  s.free(p);
  static_cast<void>(s.sim().submit_work({0, first}, sim::WorkTime::lasting_us(100)));
  EXPECT_TRUE(s.allocator().retire_stream({0, first}).is_ok());
  EXPECT_EQ(s.sim().destroy_stream({0, first}), DriverCode::kSuccess);
  const StreamHandle second = s.make_stream();
  ASSERT_EQ(second, first);
  EXPECT_NE(s.malloc(4096, second), p) << "the first stream's work still runs";
  s.sim().advance_by_us(200);
  EXPECT_NE(s.malloc(1_MiB, second), p) << "own memory first";
  EXPECT_EQ(s.malloc(1_MiB, second), p) << "and now what is idle";
}

TEST(RetiredStreamTest, AnUnknownStreamIsRetiredWithoutADriverCall) {
  Scenario s;
  const StreamHandle s1 = s.make_stream();
  s.sim().reset_call_counts();
  EXPECT_TRUE(s.allocator().retire_stream({0, s1}).is_ok());
  EXPECT_EQ(s.sim().call_count(), 0u);
}

TEST(RetiredStreamTest, ThousandsOfShortStreamsLeaveNoRecordsBehind) {
  Scenario s;
  const Address first = s.malloc(4096, s.make_stream());
  s.free(first);
  for (int i = 0; i < 2000; ++i) {
    const StreamHandle stream = s.make_stream();
    const Address p = s.malloc(4096, stream);
    s.free(p);
    ASSERT_TRUE(s.allocator().retire_stream({0, stream}).is_ok());
    ASSERT_EQ(s.sim().destroy_stream({0, stream}), DriverCode::kSuccess);
  }
  EXPECT_LE(count_segments(s), 3u);
  EXPECT_LE(s.sim().get_holdings(0).events, 3u);
}

TEST(RetiredStreamTest, ACapturingStreamIsBusyAndCanBeRetiredLater) {
  Scenario s;
  const StreamHandle s1 = s.make_stream();
  s.free(s.malloc(4096, s1));
  ASSERT_EQ(s.sim().begin_capture({0, s1}, CaptureMode::kGlobal), DriverCode::kSuccess);
  EXPECT_EQ(s.allocator().retire_stream({0, s1}).code(), StatusCode::kBusy);
  EXPECT_TRUE(s.sim().end_capture({0, s1}).is_ok());
  EXPECT_TRUE(s.allocator().retire_stream({0, s1}).is_ok());
}

TEST(RetiredStreamTest, ThreadExitRetiresThePerThreadStreamsOfEveryDevice) {
  ScenarioOptions options;
  options.sim.device_count = 2;
  Scenario s(options);
  Address freed[2] = {};
  std::thread([&] {
    for (const DeviceId device : {0, 1}) {
      freed[device] = s.malloc(4096, StreamRef{device, StreamHandle::kPerThread});
      s.free(freed[device]);
    }
    s.allocator().retire_thread_streams();
  }).join();
  for (const DeviceId device : {0, 1})
    EXPECT_EQ(s.malloc(4096, StreamRef{device, kS0}), freed[device]);
}

}  // namespace
}  // namespace quarry::test
