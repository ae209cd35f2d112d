// SPDX-License-Identifier: Apache-2.0
// What the allocator believes of captures when the driver does not say, and what pools lend when
// it must be waited for.
#include <thread>

#include "tests/support/capture_scenario.hpp"

namespace quarry::test {
namespace {

constexpr PoolId kP{0, 1};

class UnknownCaptureTest : public testing::Test {
 protected:
  UnknownCaptureTest() { s_.retain_pool(kP); }
  // The driver does not say any more whether a stream captures.
  void fail_questions() {
    for (const auto entry : {DriverEntry::kGetCaptureStatus, DriverEntry::kGetCaptureInfo})
      s_.sim().fail_calls_if(
          entry, [](Bytes) { return true; }, DriverCode::kUnknown);
  }
  CaptureScenario s_;
  const StreamHandle side_ = s_.make_stream();
};

// Of whatever pool the memory were, the graph would go on using it.
TEST_F(UnknownCaptureTest, ARequestIsRefused) {
  s_.begin_capture(side_, kP);
  const Address first = s_.malloc(1_MiB, side_);
  fail_questions();
  EXPECT_EQ(s_.malloc(1_MiB, side_), 0u);
  EXPECT_EQ(s_.last_code(), StatusCode::kDriverError);
  EXPECT_EQ(s_.allocator().allocate_in_pool({0, side_}, 1_MiB, 512, kP).code(),
            StatusCode::kDriverError);
  s_.sim().clear_faults();
  EXPECT_NE(s_.malloc(1_MiB, side_), 0u);
  s_.free(first);
  EXPECT_NE(s_.end_capture(side_, kP), sim::GraphId::kNone);
}

// The legacy stream never captures, and the driver's refusal to say so does not matter.
TEST_F(UnknownCaptureTest, TheLegacyStreamIsServedWhileABlockingOneCaptures) {
  const StreamHandle blocking = s_.sim().create_stream(0, sim::StreamKind::kBlocking).handle;
  s_.begin_capture(blocking, kP);
  const auto block = s_.allocator().allocate({0, kS0}, 1_MiB);
  EXPECT_TRUE(block.is_ok());
  EXPECT_TRUE(s_.allocator().free(block.value()).is_ok());
  EXPECT_NE(s_.end_capture(blocking, kP), sim::GraphId::kNone);
}

// A block that two streams of a capture use waits for its end.
TEST_F(UnknownCaptureTest, ACaptureHasNotEnded) {
  const StreamHandle other = s_.make_stream();
  s_.begin_capture(side_, kP);
  const Address shared = s_.malloc(8_MiB, side_);
  s_.fork(side_, other);
  s_.record(shared, other);
  s_.free(shared);
  const std::int64_t pending = s_.stats().pending_bytes;
  EXPECT_EQ(pending, 8'388'608);
  fail_questions();
  s_.pool(kP);  // brings in what has become free
  s_.sim().clear_faults();
  EXPECT_EQ(s_.stats().pending_bytes, pending);
  EXPECT_NE(s_.malloc(8_MiB, side_), shared);
  s_.fork(other, side_);
  EXPECT_NE(s_.end_capture(side_, kP), sim::GraphId::kNone);
}

// The driver crashes if it is asked which capture a stream is in while another thread ends that.
class CaptureOfAnotherThread : public testing::Test {
 protected:
  // In another thread: what does not work in the capture, and what frees a block of its.
  void work_beside(Address of_capture) {
    std::thread([&] {
      const StreamHandle own = s_.make_stream();
      s_.free(s_.malloc(1_MiB, own));
      s_.free(of_capture);
      s_.free(s_.malloc(8_MiB, own));
      s_.empty_cache();
      s_.pool(kP);
      s_.stats();
    }).join();
  }
  CaptureScenario s_;
  const StreamHandle side_ = s_.make_stream();
};

TEST_F(CaptureOfAnotherThread, IsNotAskedWhichItIs) {
  const StreamHandle other = s_.make_stream();
  s_.retain_pool(kP);
  s_.begin_capture(side_, kP);
  const Address own = s_.malloc(1_MiB, side_);
  const Address shared = s_.malloc(1_MiB, side_);
  s_.fork(side_, other);
  s_.record(shared, other);
  s_.free(shared);
  s_.sim().reset_call_counts();
  work_beside(own);
  EXPECT_EQ(s_.calls(DriverEntry::kGetCaptureInfo), 0u);
  EXPECT_NE(s_.malloc(1_MiB, side_), own);  // it may have been used outside: that is not done
  s_.fork(other, side_);
  EXPECT_NE(s_.end_capture(side_, kP), sim::GraphId::kNone);
}

// One that has had memory for the capture works in it.
TEST_F(CaptureOfAnotherThread, IsThatOfAThreadThatAsksForMemoryInIt) {
  s_.retain_pool(kP);
  s_.begin_capture(side_, kP, CaptureMode::kRelaxed);
  const Address first = s_.malloc(1_MiB, side_);
  std::thread([&] {
    s_.malloc(1_MiB, side_);
    s_.free(first);
  }).join();
  EXPECT_EQ(s_.malloc(1_MiB, side_), first);
  EXPECT_NE(s_.end_capture(side_, kP), sim::GraphId::kNone);
}

// What one stream's captures gave back is for those of all when they have ended.
class SeveralStreamsTest : public testing::Test {
 protected:
  SeveralStreamsTest() : s_(40_MiB) { s_.retain_pool(kP); }
  sim::GraphId capture_one(StreamHandle stream) {
    s_.begin_capture(stream, kP);
    const Address block = s_.malloc(32_MiB, stream);
    EXPECT_NE(block, 0u);
    if (block != 0) s_.free(block);
    return s_.end_capture(stream, kP);
  }
  CaptureScenario s_;
  const StreamHandle first_ = s_.make_stream();
  const StreamHandle second_ = s_.make_stream();
};

TEST_F(SeveralStreamsTest, OneAfterTheOtherShareAPool) {
  EXPECT_NE(capture_one(first_), sim::GraphId::kNone);
  EXPECT_NE(capture_one(second_), sim::GraphId::kNone);
  EXPECT_NE(capture_one(first_), sim::GraphId::kNone);
}

TEST_F(SeveralStreamsTest, AnOutputThatIsFreedOutsideIsForBoth) {
  s_.begin_capture(first_, kP);
  const Address output = s_.malloc(32_MiB, first_);
  EXPECT_NE(s_.end_capture(first_, kP), sim::GraphId::kNone);
  s_.free(output);
  s_.begin_capture(first_, kP);  // one stream alone: it is that one's now
  EXPECT_NE(s_.malloc(512, first_), 0u);
  EXPECT_NE(s_.end_capture(first_, kP), sim::GraphId::kNone);
  EXPECT_NE(capture_one(second_), sim::GraphId::kNone);
}

// Two streams of one capture run at once.
TEST_F(SeveralStreamsTest, WhatAStreamOfTheSameCaptureFreedIsNotForTheOther) {
  s_.begin_capture(first_, kP);
  s_.free(s_.malloc(32_MiB, first_));
  s_.fork(first_, second_);
  EXPECT_EQ(s_.malloc(32_MiB, second_), 0u);
  EXPECT_EQ(s_.last_code(), StatusCode::kOutOfMemory);
  s_.fork(second_, first_);
  EXPECT_NE(s_.end_capture(first_, kP), sim::GraphId::kNone);
}

TEST_F(SeveralStreamsTest, WhatACaptureUnderWayFreedIsNotForAnother) {
  s_.begin_capture(first_, kP, CaptureMode::kRelaxed);
  const Address block = s_.malloc(32_MiB, first_);
  EXPECT_TRUE(s_.allocator().end_pool(0, kP).is_ok());
  s_.free(block);
  s_.begin_capture(second_, kP, CaptureMode::kRelaxed);
  EXPECT_EQ(s_.malloc(32_MiB, second_), 0u);
  EXPECT_NE(s_.end_capture_of_driver(first_), sim::GraphId::kNone);
  EXPECT_NE(s_.malloc(32_MiB, second_), 0u);
  EXPECT_NE(s_.end_capture(second_, kP), sim::GraphId::kNone);
}

TEST_F(SeveralStreamsTest, WhatALostCaptureFreedIsForAnotherWhenItHasEnded) {
  s_.begin_capture(first_, kP, CaptureMode::kRelaxed);
  s_.free(s_.malloc(32_MiB, first_));
  EXPECT_TRUE(s_.allocator().end_pool(0, kP).is_ok());
  s_.lose_capture(first_);
  s_.begin_capture(second_, kP, CaptureMode::kRelaxed);
  EXPECT_EQ(s_.malloc(32_MiB, second_), 0u);
  EXPECT_EQ(s_.end_capture_of_driver(first_), sim::GraphId::kNone);
  EXPECT_NE(s_.malloc(32_MiB, second_), 0u);
  EXPECT_NE(s_.end_capture(second_, kP), sim::GraphId::kNone);
}

// What a pool lends may have to be waited for, as the default pool's own memory.
TEST(LendingTest, ABlockThatIsStillInUseIsWaitedForBeforeMemoryIsOut) {
  CaptureScenario s(40_MiB);
  const StreamHandle side = s.make_stream();
  PoolOptions options;
  options.use_on_oom = true;
  s.retain_pool(kP, options);
  ASSERT_TRUE(s.allocator().begin_pool({Route::Kind::kThread, 0, kP, {}, {}}).is_ok());
  EXPECT_NE(s.malloc(2_MiB, kS0), 0u);  // keeps the segment of 20 MiB
  const Address used = s.malloc(16_MiB, kS0);
  EXPECT_TRUE(s.allocator().end_pool(0, kP).is_ok());
  EXPECT_NE(s.malloc(20_MiB, kS0), 0u);
  s.record(used, side);
  s.busy(side);
  s.free(used);
  EXPECT_EQ(s.malloc(16_MiB, kS0), used);
}

}  // namespace
}  // namespace quarry::test
