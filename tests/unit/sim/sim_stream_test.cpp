// SPDX-License-Identifier: Apache-2.0
// Streams, events and virtual time of the simulated device, seen from outside.
#include <gtest/gtest.h>

#include "sim/sim_driver.hpp"

namespace quarry {
namespace {

using sim::StreamKind;
using sim::WorkTime;

class SimStreamTest : public testing::Test {
 protected:
  EventHandle record(StreamRef stream) {
    const EventHandle event = sim_.create_event(stream.device).value;
    EXPECT_EQ(sim_.record_event(event, stream), DriverCode::kSuccess);
    return event;
  }

  SimDriver sim_;
  const StreamRef a_ = sim_.create_stream(0, StreamKind::kNonBlocking);
  const StreamRef b_ = sim_.create_stream(0, StreamKind::kNonBlocking);
  const StreamRef legacy_{0, StreamHandle::kLegacy};
};

TEST_F(SimStreamTest, AnEventNeverRecordedHasPassed) {
  EXPECT_EQ(sim_.query_event(sim_.create_event(0).value), DriverCode::kSuccess);
}

TEST_F(SimStreamTest, WorkOfOneStreamRunsInOrder) {
  sim_.submit_work(a_, WorkTime::lasting_us(10));
  const EventHandle first = record(a_);
  sim_.submit_work(a_, WorkTime::lasting_us(5));
  const EventHandle second = record(a_);
  sim_.advance_to_us(10);
  EXPECT_EQ(sim_.query_event(first), DriverCode::kSuccess);
  EXPECT_EQ(sim_.query_event(second), DriverCode::kNotReady);
  sim_.advance_by_us(5);
  EXPECT_EQ(sim_.query_event(second), DriverCode::kSuccess);
}

TEST_F(SimStreamTest, WorkUntilATimeEndsThenOrWhenWhatIsBeforeItEnds) {
  sim_.submit_work(a_, WorkTime::until_ns(500));
  const EventHandle first = record(a_);
  sim_.submit_work(a_, WorkTime::until_ns(300));
  const EventHandle second = record(a_);
  sim_.advance_to_ns(499);
  EXPECT_EQ(sim_.query_event(first), DriverCode::kNotReady);
  EXPECT_EQ(sim_.query_event(second), DriverCode::kNotReady);
  sim_.advance_to_ns(500);
  EXPECT_EQ(sim_.query_event(second), DriverCode::kSuccess);
}

TEST_F(SimStreamTest, ADeviceSideWaitDelaysLaterWorkOnly) {
  sim_.submit_work(a_, WorkTime::lasting_us(100));
  const EventHandle of_a = record(a_);
  sim_.submit_work(b_, WorkTime::lasting_us(10));
  const EventHandle before = record(b_);
  EXPECT_EQ(sim_.wait_event(b_, of_a), DriverCode::kSuccess);
  sim_.submit_work(b_, WorkTime::lasting_us(10));
  const EventHandle after = record(b_);
  sim_.advance_to_us(10);
  EXPECT_EQ(sim_.query_event(before), DriverCode::kSuccess);
  sim_.advance_to_us(109);
  EXPECT_EQ(sim_.query_event(after), DriverCode::kNotReady);
  sim_.advance_to_us(110);
  EXPECT_EQ(sim_.query_event(after), DriverCode::kSuccess);
}

TEST_F(SimStreamTest, AnEventIsTheOneRecordedLast) {
  const EventHandle event = record(a_);
  EXPECT_EQ(sim_.query_event(event), DriverCode::kSuccess);
  sim_.submit_work(a_, WorkTime::lasting_us(1));
  EXPECT_EQ(sim_.query_event(event), DriverCode::kSuccess);
  EXPECT_EQ(sim_.record_event(event, a_), DriverCode::kSuccess);
  EXPECT_EQ(sim_.query_event(event), DriverCode::kNotReady);
}

TEST_F(SimStreamTest, AHostWaitMovesVirtualTimeToTheEndAndNoFurther) {
  sim_.submit_work(a_, WorkTime::lasting_us(7));
  const EventHandle event = record(a_);
  sim_.submit_work(a_, WorkTime::lasting_us(100));
  EXPECT_EQ(sim_.synchronize_event(event), DriverCode::kSuccess);
  EXPECT_EQ(sim_.now_ns(), 7'000u);
}

TEST_F(SimStreamTest, EndlessWorkEndsAtComplete) {
  sim_.submit_work(a_, WorkTime::endless());
  const EventHandle event = record(a_);
  sim_.submit_work(a_, WorkTime::lasting_us(3));
  const EventHandle behind = record(a_);
  sim_.advance_to_us(1'000'000);
  EXPECT_EQ(sim_.query_event(event), DriverCode::kNotReady);
  EXPECT_FALSE(sim_.is_idle(a_));
  sim_.complete(a_);
  EXPECT_EQ(sim_.query_event(event), DriverCode::kSuccess);
  EXPECT_EQ(sim_.query_event(behind), DriverCode::kSuccess);
  EXPECT_EQ(sim_.now_ns(), 1'000'003'000u);
  EXPECT_TRUE(sim_.is_idle(a_));
}

TEST_F(SimStreamTest, WorkSubmittedAfterCompleteIsNotCompleted) {
  sim_.submit_work(a_, WorkTime::endless());
  sim_.complete(a_);
  sim_.submit_work(a_, WorkTime::endless());
  EXPECT_EQ(sim_.query_event(record(a_)), DriverCode::kNotReady);
}

TEST_F(SimStreamTest, EndlessWorkStartsAfterTimedWorkBeforeIt) {
  sim_.submit_work(a_, WorkTime::lasting_us(50));
  sim_.submit_work(a_, WorkTime::endless());
  sim_.complete(a_);
  EXPECT_EQ(sim_.now_ns(), 50'000u);
}

TEST_F(SimStreamTest, AStreamBehindEndlessWorkWaitsForIt) {
  sim_.submit_work(a_, WorkTime::endless());
  EXPECT_EQ(sim_.wait_event(b_, record(a_)), DriverCode::kSuccess);
  sim_.submit_work(b_, WorkTime::lasting_us(2));
  const EventHandle of_b = record(b_);
  sim_.advance_to_us(10);
  EXPECT_EQ(sim_.query_event(of_b), DriverCode::kNotReady);
  sim_.complete(a_);
  EXPECT_EQ(sim_.query_event(of_b), DriverCode::kNotReady);
  sim_.advance_by_us(2);
  EXPECT_EQ(sim_.query_event(of_b), DriverCode::kSuccess);
}

TEST_F(SimStreamTest, CompletingAStreamCompletesWhatItWaitsForButNotWhatCameLater) {
  sim_.submit_work(a_, WorkTime::endless());
  const EventHandle first = record(a_);
  EXPECT_EQ(sim_.wait_event(b_, first), DriverCode::kSuccess);
  sim_.submit_work(a_, WorkTime::endless());
  const EventHandle second = record(a_);
  sim_.complete(b_);
  EXPECT_EQ(sim_.query_event(first), DriverCode::kSuccess);
  EXPECT_EQ(sim_.query_event(second), DriverCode::kNotReady);
}

TEST_F(SimStreamTest, AHostWaitEndsTheEndlessWorkThatItWaitsFor) {
  sim_.submit_work(a_, WorkTime::endless());
  const EventHandle of_a = record(a_);
  sim_.submit_work(b_, WorkTime::endless());
  const EventHandle of_b = record(b_);
  EXPECT_EQ(sim_.synchronize_event(of_a), DriverCode::kSuccess);
  EXPECT_EQ(sim_.query_event(of_a), DriverCode::kSuccess);
  EXPECT_EQ(sim_.query_event(of_b), DriverCode::kNotReady);
  EXPECT_EQ(sim_.misuse_count(), 0u);
}

TEST(SimStreamOptionsTest, AHostWaitForEndlessWorkIsADeadlockIfWaitsDoNotEndIt) {
  SimDriver sim({.waits_end_endless_work = false});
  const StreamRef stream = sim.create_stream(0, StreamKind::kNonBlocking);
  const Address address = sim.allocate(0, 512).value;
  sim.submit_work(stream, WorkTime::endless());
  const EventHandle event = sim.create_event(0).value;
  EXPECT_EQ(sim.record_event(event, stream), DriverCode::kSuccess);
  EXPECT_NE(sim.synchronize_event(event), DriverCode::kSuccess);
  EXPECT_NE(sim.free(0, address), DriverCode::kSuccess);
  ASSERT_EQ(sim.misuse_count(), 2u);
  EXPECT_EQ(sim.get_misuses()[0].kind, sim::MisuseKind::kDeadlock);
  EXPECT_EQ(sim.get_holdings(0).plain_allocations, 1u);
}

TEST_F(SimStreamTest, PlainFreeWaitsForEveryStreamOfItsDeviceAndForNoOther) {
  SimDriver sim({.device_count = 2});
  const Address address = sim.allocate(0, 512).value;
  const StreamRef here = sim.create_stream(0, StreamKind::kNonBlocking);
  const StreamRef there = sim.create_stream(1, StreamKind::kNonBlocking);
  sim.submit_work(here, WorkTime::lasting_us(151));
  sim.submit_work(there, WorkTime::lasting_us(1'000));
  EXPECT_EQ(sim.free(0, address), DriverCode::kSuccess);
  EXPECT_EQ(sim.now_ns(), 151'000u);
}

TEST_F(SimStreamTest, AContextEventPassesExactlyWhenTheLastStreamEnds) {
  const StreamRef blocking = sim_.create_stream(0, StreamKind::kBlocking);
  const StreamRef other_thread = sim_.get_per_thread_stream(0, sim::ThreadId{4242});
  sim_.submit_work(a_, WorkTime::lasting_us(3));
  sim_.submit_work(blocking, WorkTime::lasting_us(4));
  sim_.submit_work(other_thread, WorkTime::lasting_us(9));
  const EventHandle event = sim_.create_event(0).value;
  EXPECT_EQ(sim_.record_context_event(event, 0), DriverCode::kSuccess);
  sim_.submit_work(b_, WorkTime::lasting_us(50));
  sim_.advance_to_ns(8'999);
  EXPECT_EQ(sim_.query_event(event), DriverCode::kNotReady);
  sim_.advance_to_ns(9'000);
  EXPECT_EQ(sim_.query_event(event), DriverCode::kSuccess);
}

TEST_F(SimStreamTest, TheLegacyStreamAndBlockingStreamsWaitForEachOther) {
  const StreamRef blocking = sim_.create_stream(0, StreamKind::kBlocking);
  const StreamRef blocking2 = sim_.create_stream(0, StreamKind::kBlocking);
  sim_.submit_work(blocking, WorkTime::lasting_us(10));
  sim_.submit_work(legacy_, WorkTime::lasting_us(5));
  sim_.submit_work(blocking2, WorkTime::lasting_us(1));
  sim_.submit_work(a_, WorkTime::lasting_us(1));
  sim_.advance_to_us(1);
  EXPECT_TRUE(sim_.is_idle(a_));
  sim_.advance_to_ns(14'999);
  EXPECT_FALSE(sim_.is_idle(legacy_));
  sim_.advance_to_ns(15'000);
  EXPECT_TRUE(sim_.is_idle(legacy_));
  EXPECT_FALSE(sim_.is_idle(blocking2));
  sim_.advance_to_ns(16'000);
  EXPECT_TRUE(sim_.is_idle(blocking2));
}

TEST_F(SimStreamTest, HandlesZeroAndOneNameOneStream) {
  const StreamRef explicit_legacy{0, StreamHandle::kLegacyExplicit};
  EXPECT_EQ(sim_.get_stream_id(legacy_).value, sim_.get_stream_id(explicit_legacy).value);
  EXPECT_NE(sim_.get_stream_id(legacy_).value,
            sim_.get_stream_id({0, StreamHandle::kPerThread}).value);
}

TEST(SimStreamOptionsTest, HandleZeroNamesTheThreadsStreamInCodeBuiltForThat) {
  SimDriver sim({.per_thread_default_streams = true});
  const StreamRef zero{0, StreamHandle::kLegacy};
  EXPECT_EQ(sim.get_stream_id(zero).value, sim.get_stream_id({0, StreamHandle::kPerThread}).value);
  EXPECT_NE(sim.get_stream_id(zero).value,
            sim.get_stream_id({0, StreamHandle::kLegacyExplicit}).value);
}

TEST_F(SimStreamTest, ADestroyedHandleIsAMisuseInEveryCall) {
  const EventHandle event = sim_.create_event(0).value;
  EXPECT_EQ(sim_.destroy_stream(a_), DriverCode::kSuccess);
  EXPECT_EQ(sim_.get_capture_status(a_).code, DriverCode::kInvalidHandle);
  EXPECT_EQ(sim_.get_stream_id(a_).code, DriverCode::kInvalidHandle);
  EXPECT_EQ(sim_.record_event(event, a_), DriverCode::kInvalidHandle);
  EXPECT_EQ(sim_.wait_event(a_, event), DriverCode::kInvalidHandle);
  ASSERT_EQ(sim_.misuse_count(), 4u);
  for (const sim::Misuse& misuse : sim_.get_misuses()) {
    EXPECT_EQ(misuse.kind, sim::MisuseKind::kDestroyedStream);
  }
  EXPECT_EQ(sim_.get_misuses()[2].entry, DriverEntry::kRecordEvent);
}

TEST(SimStreamOptionsTest, AReusedHandleNamesANewStreamWithANewId) {
  SimDriver sim({.reuse_stream_handles = true});
  const StreamRef low = sim.create_stream(0, StreamKind::kNonBlocking);
  const StreamRef high = sim.create_stream(0, StreamKind::kNonBlocking);
  const StreamId id = sim.get_stream_id(low).value;
  sim.submit_work(low, WorkTime::lasting_us(5));
  sim.destroy_stream(high);
  sim.destroy_stream(low);
  const StreamRef again = sim.create_stream(0, StreamKind::kNonBlocking);
  EXPECT_EQ(again, low);
  EXPECT_NE(sim.get_stream_id(again).value, id);
  EXPECT_TRUE(sim.is_idle(again));
  EXPECT_EQ(sim.misuse_count(), 0u);
}

TEST_F(SimStreamTest, WorkOfADestroyedStreamStillRunsToItsEnd) {
  const Address address = sim_.allocate(0, 512).value;
  sim_.submit_work(a_, WorkTime::lasting_us(5));
  sim_.destroy_stream(a_);
  EXPECT_EQ(sim_.free(0, address), DriverCode::kSuccess);
  EXPECT_EQ(sim_.now_ns(), 5'000u);
}

TEST_F(SimStreamTest, AnEventOfAnotherDeviceCannotBeRecorded) {
  SimDriver sim({.device_count = 2});
  const StreamRef stream = sim.create_stream(0, StreamKind::kNonBlocking);
  const EventHandle event = sim.create_event(1).value;
  EXPECT_EQ(sim.record_event(event, stream), DriverCode::kInvalidHandle);
  EXPECT_EQ(sim.record_context_event(event, 0), DriverCode::kInvalidHandle);
}

TEST_F(SimStreamTest, ADestroyedEventIsAMisuse) {
  const EventHandle event = record(a_);
  EXPECT_EQ(sim_.destroy_event(event), DriverCode::kSuccess);
  EXPECT_EQ(sim_.query_event(event), DriverCode::kInvalidHandle);
  EXPECT_EQ(sim_.destroy_event(event), DriverCode::kInvalidHandle);
  ASSERT_EQ(sim_.misuse_count(), 2u);
  EXPECT_EQ(sim_.get_misuses()[0].kind, sim::MisuseKind::kDestroyedEvent);
}

TEST_F(SimStreamTest, TenThousandStreamsComeAndGo) {
  SimDriver sim({.reuse_stream_handles = true});
  const StreamRef main = sim.create_stream(0, StreamKind::kNonBlocking);
  const EventHandle event = sim.create_event(0).value;
  for (int i = 0; i < 10'000; ++i) {
    const StreamRef stream = sim.create_stream(0, StreamKind::kNonBlocking);
    sim.submit_work(stream, WorkTime::lasting_us(1));
    ASSERT_EQ(sim.record_event(event, stream), DriverCode::kSuccess);
    ASSERT_EQ(sim.wait_event(main, event), DriverCode::kSuccess);
    sim.destroy_stream(stream);
  }
  ASSERT_EQ(sim.record_event(event, main), DriverCode::kSuccess);
  EXPECT_EQ(sim.synchronize_event(event), DriverCode::kSuccess);
}

}  // namespace
}  // namespace quarry
