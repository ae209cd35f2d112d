// SPDX-License-Identifier: Apache-2.0
// What a driver says of a capture and of the graph that it makes.
#include <gtest/gtest.h>

#include <set>

#include "tests/conformance/driver/driver_fixture.hpp"

namespace quarry {
namespace {

using Kind = DriverFixture::Kind;

class CaptureGraphTest : public testing::TestWithParam<Kind> {
 protected:
  void begin(StreamRef stream) {
    ASSERT_EQ(fixture_->begin_capture(stream, CaptureMode::kThreadLocal), DriverCode::kSuccess);
  }
  void end(StreamRef stream) { EXPECT_EQ(fixture_->end_capture(stream), DriverCode::kSuccess); }
  // Inside a capture: what `after` captures from now on depends on what `before` has captured.
  void order(StreamRef before, StreamRef after) {
    const EventHandle event = driver_.create_event(0).value;
    EXPECT_EQ(driver_.record_event(event, before), DriverCode::kSuccess);
    EXPECT_EQ(driver_.wait_event(after, event), DriverCode::kSuccess);
    EXPECT_EQ(driver_.destroy_event(event), DriverCode::kSuccess);
  }
  // The number of the active capture of the stream.
  CaptureId id(StreamRef stream) {
    const auto info = driver_.get_capture_info(stream);
    EXPECT_EQ(info.code, DriverCode::kSuccess) << describe(info.code);
    EXPECT_EQ(info.value.status, CaptureStatus::kActive);
    EXPECT_NE(info.value.id, CaptureId::kNone);
    return info.value.id;
  }

  const std::unique_ptr<DriverFixture> fixture_ = make_driver_fixture();
  Driver& driver_ = fixture_->driver();
  const StreamRef a_ = fixture_->create_stream(GetParam());
  const StreamRef b_ = fixture_->create_stream(GetParam());
};

TEST_P(CaptureGraphTest, AStreamThatDoesNotCaptureHasNoCaptureId) {
  begin(a_);
  const auto info = driver_.get_capture_info(b_);
  EXPECT_EQ(info.code, DriverCode::kSuccess) << describe(info.code);
  EXPECT_EQ(info.value.status, CaptureStatus::kNone);
  EXPECT_EQ(info.value.id, CaptureId::kNone);
  end(a_);
  EXPECT_EQ(driver_.get_capture_info(a_).value.status, CaptureStatus::kNone);
  EXPECT_EQ(driver_.get_capture_info(a_).value.id, CaptureId::kNone);
}

TEST_P(CaptureGraphTest, EveryThreadGetsTheSameIdOfACapture) {
  begin(a_);
  const CaptureId here = id(a_);
  EXPECT_EQ(fixture_->submit_work(a_), DriverCode::kSuccess);
  EXPECT_EQ(id(a_), here);
  CaptureId there{};
  run_on_other_thread([&] { there = id(a_); });
  EXPECT_EQ(there, here);
  end(a_);
}

TEST_P(CaptureGraphTest, AStreamThatIsForkedIntoACaptureHasItsId) {
  begin(a_);
  order(a_, b_);
  EXPECT_EQ(id(b_), id(a_));
  order(b_, a_);
  EXPECT_EQ(id(b_), id(a_));
  end(a_);
  EXPECT_EQ(driver_.get_capture_info(b_).value.status, CaptureStatus::kNone);
}

TEST_P(CaptureGraphTest, CapturesSideBySideHaveIdsOfTheirOwn) {
  begin(a_);
  begin(b_);
  EXPECT_NE(id(a_), id(b_));
  end(a_);
  end(b_);
}

TEST_P(CaptureGraphTest, NoLaterCaptureHasTheIdOfAnEarlierOne) {
  std::set<CaptureId> seen;
  for (int i = 0; i < 20; ++i) {
    const StreamRef stream = i % 2 == 0 ? a_ : b_;
    begin(stream);
    EXPECT_TRUE(seen.insert(id(stream)).second);
    end(stream);
  }
}

INSTANTIATE_TEST_SUITE_P(Streams, CaptureGraphTest,
                         testing::Values(Kind::kBlocking, Kind::kNonBlocking),
                         [](const auto& instance) {
                           return instance.param == Kind::kBlocking ? "blocking" : "non_blocking";
                         });

}  // namespace
}  // namespace quarry
