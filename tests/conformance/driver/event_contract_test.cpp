// SPDX-License-Identifier: Apache-2.0
// Events, streams and their identity as every driver must provide them.
#include <gtest/gtest.h>

#include "tests/conformance/driver/driver_fixture.hpp"

namespace quarry {
namespace {

using Kind = DriverFixture::Kind;

class EventContractTest : public testing::Test {
 protected:
  const std::unique_ptr<DriverFixture> fixture_ = make_driver_fixture();
  Driver& driver_ = fixture_->driver();
  const StreamRef a_ = fixture_->create_stream(Kind::kNonBlocking);
  const StreamRef b_ = fixture_->create_stream(Kind::kNonBlocking);
  const EventHandle event_ = driver_.create_event(0).value;
};

TEST_F(EventContractTest, AnEventNeverRecordedHasPassed) {
  EXPECT_EQ(driver_.query_event(event_), DriverCode::kSuccess);
  EXPECT_EQ(driver_.synchronize_event(event_), DriverCode::kSuccess);
  EXPECT_EQ(driver_.wait_event(a_, event_), DriverCode::kSuccess);
}

TEST_F(EventContractTest, AnEventPassesWithTheWorkBeforeIt) {
  fixture_->hold(a_);
  ASSERT_EQ(driver_.record_event(event_, a_), DriverCode::kSuccess);
  EXPECT_EQ(driver_.query_event(event_), DriverCode::kNotReady);
  fixture_->release(a_);
  EXPECT_EQ(driver_.query_event(event_), DriverCode::kSuccess);
}

TEST_F(EventContractTest, AnEventDoesNotCoverOtherStreamsOrLaterWork) {
  fixture_->hold(b_);
  ASSERT_EQ(driver_.record_event(event_, a_), DriverCode::kSuccess);
  fixture_->hold(a_);
  EXPECT_EQ(driver_.synchronize_event(event_), DriverCode::kSuccess);
  fixture_->release(a_);
  fixture_->release(b_);
}

TEST_F(EventContractTest, ADeviceSideWaitHoldsLaterWorkBack) {
  const EventHandle behind = driver_.create_event(0).value;
  fixture_->hold(a_);
  ASSERT_EQ(driver_.record_event(event_, a_), DriverCode::kSuccess);
  ASSERT_EQ(driver_.wait_event(b_, event_), DriverCode::kSuccess);
  ASSERT_EQ(fixture_->submit_work(b_), DriverCode::kSuccess);
  ASSERT_EQ(driver_.record_event(behind, b_), DriverCode::kSuccess);
  EXPECT_EQ(driver_.query_event(behind), DriverCode::kNotReady);
  fixture_->release(a_);
  EXPECT_EQ(driver_.synchronize_event(behind), DriverCode::kSuccess);
}

TEST_F(EventContractTest, AContextEventCoversEveryStreamOfEveryThread) {
  if (!driver_.get_device_properties(0).value.has_context_events) {
    GTEST_SKIP() << "no context events";
  }
  const StreamRef blocking = fixture_->create_stream(Kind::kBlocking);
  const StreamRef per_thread{0, StreamHandle::kPerThread};
  for (const StreamRef held : {a_, blocking, per_thread}) {
    run_on_other_thread([&] { fixture_->hold(held); });
    ASSERT_EQ(driver_.record_context_event(event_, 0), DriverCode::kSuccess);
    EXPECT_EQ(driver_.query_event(event_), DriverCode::kNotReady);
    fixture_->release(held);
    EXPECT_EQ(driver_.query_event(event_), DriverCode::kSuccess);
  }
}

TEST_F(EventContractTest, TheLegacyStreamWaitsForBlockingStreamsOnly) {
  const StreamRef blocking = fixture_->create_stream(Kind::kBlocking);
  const StreamRef legacy{0, StreamHandle::kLegacy};
  fixture_->hold(a_);
  ASSERT_EQ(fixture_->submit_work(legacy), DriverCode::kSuccess);
  ASSERT_EQ(driver_.record_event(event_, legacy), DriverCode::kSuccess);
  EXPECT_EQ(driver_.synchronize_event(event_), DriverCode::kSuccess);
  fixture_->hold(blocking);
  ASSERT_EQ(fixture_->submit_work(legacy), DriverCode::kSuccess);
  ASSERT_EQ(driver_.record_event(event_, legacy), DriverCode::kSuccess);
  EXPECT_EQ(driver_.query_event(event_), DriverCode::kNotReady);
  fixture_->release(blocking);
  EXPECT_EQ(driver_.synchronize_event(event_), DriverCode::kSuccess);
  fixture_->release(a_);
}

TEST_F(EventContractTest, StreamIdsTellStreamsApart) {
  const StreamId id = driver_.get_stream_id(a_).value;
  EXPECT_EQ(driver_.get_stream_id(a_).value, id);
  EXPECT_NE(driver_.get_stream_id(b_).value, id);
  const StreamRef per_thread{0, StreamHandle::kPerThread};
  const StreamId here = driver_.get_stream_id(per_thread).value;
  StreamId there{};
  run_on_other_thread([&] { there = driver_.get_stream_id(per_thread).value; });
  EXPECT_NE(here, there);
  EXPECT_EQ(driver_.get_stream_id({0, StreamHandle::kLegacy}).value,
            driver_.get_stream_id({0, StreamHandle::kLegacyExplicit}).value);
}

TEST_F(EventContractTest, AnIdIsNeverUsedAgain) {
  const StreamId id = driver_.get_stream_id(b_).value;
  fixture_->destroy_stream(b_);
  for (int i = 0; i < 100; ++i) {
    const StreamRef stream = fixture_->create_stream(Kind::kNonBlocking);
    EXPECT_NE(driver_.get_stream_id(stream).value, id);
    fixture_->destroy_stream(stream);
  }
}

TEST_F(EventContractTest, TheCaptureModeIsExchangedAndTheThreadsOwn) {
  EXPECT_EQ(driver_.exchange_capture_mode(CaptureMode::kRelaxed).value, CaptureMode::kGlobal);
  run_on_other_thread([&] {
    EXPECT_EQ(driver_.exchange_capture_mode(CaptureMode::kGlobal).value, CaptureMode::kGlobal);
  });
  EXPECT_EQ(driver_.exchange_capture_mode(CaptureMode::kGlobal).value, CaptureMode::kRelaxed);
}

TEST_F(EventContractTest, TheStatusOfAStreamFollowsItsCapture) {
  EXPECT_EQ(driver_.get_capture_status(a_).value, CaptureStatus::kNone);
  ASSERT_EQ(fixture_->begin_capture(a_, CaptureMode::kGlobal), DriverCode::kSuccess);
  EXPECT_EQ(driver_.get_capture_status(a_).value, CaptureStatus::kActive);
  EXPECT_EQ(driver_.get_capture_status(b_).value, CaptureStatus::kNone);
  ASSERT_EQ(fixture_->end_capture(a_), DriverCode::kSuccess);
  EXPECT_EQ(driver_.get_capture_status(a_).value, CaptureStatus::kNone);
}

}  // namespace
}  // namespace quarry
