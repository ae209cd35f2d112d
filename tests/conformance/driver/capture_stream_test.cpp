// SPDX-License-Identifier: Apache-2.0
// Calls that touch the capturing stream itself, or the legacy stream while a blocking stream
// captures: in every mode, from any thread, in a bracket or not.
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "tests/conformance/driver/driver_fixture.hpp"

namespace quarry {
namespace {

using Kind = DriverFixture::Kind;
using Case = std::tuple<int, bool, bool>;  // mode, from the capturing thread, in a bracket

class CaptureStreamTest : public testing::TestWithParam<Case> {
 protected:
  void begin(Kind kind) {
    stream_ = fixture_->create_stream(kind);
    const auto mode = static_cast<CaptureMode>(std::get<0>(GetParam()));
    ASSERT_EQ(fixture_->begin_capture(stream_, mode), DriverCode::kSuccess);
  }
  // Makes the call as the case says.
  DriverCode make(const std::function<DriverCode()>& call) {
    DriverCode code = DriverCode::kUnknown;
    const auto in_bracket = [&] {
      std::optional<CaptureModeBracket> bracket;
      if (std::get<2>(GetParam())) bracket.emplace(driver_);
      code = call();
    };
    if (std::get<1>(GetParam())) {
      in_bracket();
    } else {
      run_on_other_thread(in_bracket);
    }
    return code;
  }
  void expect_lost() {
    EXPECT_EQ(fixture_->end_capture(stream_), DriverCode::kCaptureInvalidated);
  }
  void expect_survived() { EXPECT_EQ(fixture_->end_capture(stream_), DriverCode::kSuccess); }

  const std::unique_ptr<DriverFixture> fixture_ = make_driver_fixture();
  Driver& driver_ = fixture_->driver();
  const StreamRef legacy_{0, StreamHandle::kLegacy};
  const StreamRef other_ = fixture_->create_stream(Kind::kNonBlocking);
  const EventHandle event_ = driver_.create_event(0).value;
  StreamRef stream_;  // the capturing one
};

TEST_P(CaptureStreamTest, WaitingForAnOutsideEventIs905AndLosesTheCapture) {
  ASSERT_EQ(driver_.record_event(event_, other_), DriverCode::kSuccess);
  begin(Kind::kNonBlocking);
  EXPECT_EQ(make([&] { return driver_.wait_event(stream_, event_); }),
            DriverCode::kCaptureIsolation);
  expect_lost();
}

TEST_P(CaptureStreamTest, RecordingAnEventSucceedsAndHarmsNothing) {
  begin(Kind::kNonBlocking);
  EXPECT_EQ(make([&] { return driver_.record_event(event_, stream_); }), DriverCode::kSuccess);
  expect_survived();
}

TEST_P(CaptureStreamTest, QueryingAnEventRecordedInTheCaptureIs907AndLosesIt) {
  begin(Kind::kNonBlocking);
  ASSERT_EQ(driver_.record_event(event_, stream_), DriverCode::kSuccess);
  EXPECT_EQ(make([&] { return driver_.query_event(event_); }), DriverCode::kCapturedEvent);
  expect_lost();
}

TEST_P(CaptureStreamTest, ALostCaptureShowsInTheStatusUntilItEnds) {
  begin(Kind::kNonBlocking);
  EXPECT_FALSE(driver_.get_stream_id(stream_).is_ok());
  EXPECT_EQ(make([&] { return driver_.get_capture_status(stream_).code; }), DriverCode::kSuccess);
  EXPECT_EQ(driver_.get_capture_status(stream_).value, CaptureStatus::kInvalidated);
  EXPECT_EQ(make([&] { return driver_.get_capture_info(stream_).code; }), DriverCode::kSuccess);
  EXPECT_EQ(driver_.get_capture_info(stream_).value.status, CaptureStatus::kInvalidated);
  EXPECT_EQ(driver_.get_capture_info(stream_).value.id, CaptureId::kNone);
  EXPECT_EQ(make([&] { return driver_.record_event(event_, stream_); }),
            DriverCode::kCaptureInvalidated);
  expect_lost();
  EXPECT_EQ(driver_.get_capture_status(stream_).value, CaptureStatus::kNone);
  EXPECT_EQ(driver_.record_event(event_, stream_), DriverCode::kSuccess);
  EXPECT_EQ(driver_.synchronize_event(event_), DriverCode::kSuccess);
}

TEST_P(CaptureStreamTest, ABlockingCapturePoisonsRecordsOnTheLegacyStream) {
  begin(Kind::kBlocking);
  EXPECT_EQ(make([&] { return driver_.record_event(event_, legacy_); }),
            DriverCode::kCaptureImplicit);
  expect_lost();
}

TEST_P(CaptureStreamTest, ABlockingCapturePoisonsWaitsOfTheLegacyStream) {
  ASSERT_EQ(driver_.record_event(event_, other_), DriverCode::kSuccess);
  begin(Kind::kBlocking);
  EXPECT_EQ(make([&] { return driver_.wait_event(legacy_, event_); }),
            DriverCode::kCaptureImplicit);
  expect_lost();
}

TEST_P(CaptureStreamTest, AskingTheLegacyStreamForItsStatusIs906AndHarmless) {
  begin(Kind::kBlocking);
  EXPECT_EQ(make([&] { return driver_.get_capture_status(legacy_).code; }),
            DriverCode::kCaptureImplicit);
  EXPECT_EQ(make([&] { return driver_.get_capture_info(legacy_).code; }),
            DriverCode::kCaptureImplicit);
  EXPECT_EQ(make([&] {
              return driver_.call_when_graph_is_gone(
                  legacy_, [](void*) {}, nullptr);
            }),
            DriverCode::kCaptureImplicit);
  std::vector<GraphNode> nodes;
  EXPECT_EQ(make([&] { return driver_.get_capture_frontier(legacy_, nodes); }),
            DriverCode::kCaptureImplicit);
  EXPECT_TRUE(nodes.empty());
  expect_survived();
}

TEST_P(CaptureStreamTest, ANonBlockingCaptureLeavesTheLegacyStreamAlone) {
  begin(Kind::kNonBlocking);
  EXPECT_EQ(make([&] { return driver_.get_capture_status(legacy_).code; }), DriverCode::kSuccess);
  EXPECT_EQ(make([&] { return driver_.get_capture_info(legacy_).code; }), DriverCode::kSuccess);
  EXPECT_EQ(make([&] { return driver_.record_event(event_, legacy_); }), DriverCode::kSuccess);
  EXPECT_EQ(make([&] { return driver_.wait_event(legacy_, event_); }), DriverCode::kSuccess);
  expect_survived();
}

TEST_P(CaptureStreamTest, ABlockingCaptureLeavesNonBlockingStreamsAlone) {
  begin(Kind::kBlocking);
  EXPECT_EQ(make([&] { return driver_.record_event(event_, other_); }), DriverCode::kSuccess);
  EXPECT_EQ(make([&] { return driver_.wait_event(other_, event_); }), DriverCode::kSuccess);
  expect_survived();
}

std::string name_case(const testing::TestParamInfo<Case>& instance) {
  static constexpr const char* kModes[] = {"global", "thread_local", "relaxed"};
  std::string name = kModes[std::get<0>(instance.param)];
  name += std::get<1>(instance.param) ? "_same_thread" : "_other_thread";
  return name + (std::get<2>(instance.param) ? "_in_a_bracket" : "_plain");
}

INSTANTIATE_TEST_SUITE_P(EveryWay, CaptureStreamTest,
                         testing::Combine(testing::Range(0, 3), testing::Bool(), testing::Bool()),
                         name_case);

}  // namespace
}  // namespace quarry
