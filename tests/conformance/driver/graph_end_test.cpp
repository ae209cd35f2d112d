// SPDX-License-Identifier: Apache-2.0
// When a driver says that a graph is gone: call_when_graph_is_gone.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>

#include "tests/conformance/driver/driver_fixture.hpp"

namespace quarry {
namespace {

using Kind = DriverFixture::Kind;
using Graph = DriverFixture::Graph;

// Static, because a callback that comes too late must find it.
std::atomic<int> ends_told{0};
void tell_end(void* number) {
  ends_told += *static_cast<const int*>(number);
}

class GraphEndTest : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    ends_told = 0;
    begin();
    const DriverCode code = ask_for_end(capturing_);
    if (code == DriverCode::kNotSupported) {
      static_cast<void>(fixture_->end_capture(capturing_));
      GTEST_SKIP() << "too old a driver";
    }
    ASSERT_EQ(code, DriverCode::kSuccess) << describe(code);
  }
  void begin() {
    ASSERT_EQ(fixture_->begin_capture(capturing_, CaptureMode::kThreadLocal),
              DriverCode::kSuccess);
    ASSERT_EQ(fixture_->submit_work(capturing_), DriverCode::kSuccess);
  }
  DriverCode ask_for_end(StreamRef stream, int number = 1) {
    static constexpr int kNumbers[] = {0, 1, 10, 100};
    return driver_.call_when_graph_is_gone(stream, tell_end, const_cast<int*>(&kNumbers[number]));
  }
  bool is_told(int sum) {
    return fixture_->await([sum] { return ends_told == sum; });
  }

  const std::unique_ptr<DriverFixture> fixture_ = make_driver_fixture();
  Driver& driver_ = fixture_->driver();
  const StreamRef capturing_ = fixture_->create_stream(GetParam());
  const StreamRef a_ = fixture_->create_stream(Kind::kNonBlocking);
  const StreamRef b_ = fixture_->create_stream(Kind::kNonBlocking);
};

TEST_P(GraphEndTest, IsToldWhenAGraphThatWasNeverLaunchedIsDestroyed) {
  const Graph graph = fixture_->make_graph(capturing_);
  EXPECT_EQ(ends_told, 0);
  fixture_->destroy(graph);
  EXPECT_TRUE(is_told(1));
}

TEST_P(GraphEndTest, IsNotToldBeforeALaunchInFlightHasEnded) {
  const Graph graph = fixture_->make_graph(capturing_);
  fixture_->hold(a_);
  fixture_->launch(graph, a_);
  fixture_->destroy(graph);
  EXPECT_EQ(ends_told, 0);
  fixture_->release(a_);
  EXPECT_TRUE(is_told(1));
}

TEST_P(GraphEndTest, IsNotToldBeforeTheLastOfSeveralLaunchesHasEnded) {
  const Graph graph = fixture_->make_graph(capturing_);
  fixture_->hold(a_);
  fixture_->hold(b_);
  fixture_->launch(graph, a_);
  fixture_->launch(graph, b_);
  fixture_->launch(graph, b_);
  fixture_->destroy(graph);
  fixture_->release(a_);
  EXPECT_EQ(ends_told, 0);
  fixture_->release(b_);
  EXPECT_TRUE(is_told(1));
}

TEST_P(GraphEndTest, IsNotToldWhileTheGraphCanBeLaunchedAgain) {
  const Graph graph = fixture_->make_graph(capturing_);
  fixture_->hold(a_);
  fixture_->launch(graph, a_);
  fixture_->release(a_);
  EXPECT_EQ(ends_told, 0);
  fixture_->hold(b_);
  fixture_->launch(graph, b_);
  fixture_->release(b_);
  EXPECT_EQ(ends_told, 0);
  fixture_->destroy(graph);
  EXPECT_TRUE(is_told(1));
}

TEST_P(GraphEndTest, IsToldWhenAGraphIsThrownAwayUnused) {
  EXPECT_EQ(ends_told, 0);
  EXPECT_EQ(fixture_->end_capture(capturing_), DriverCode::kSuccess);
  EXPECT_TRUE(is_told(1));
}

TEST_P(GraphEndTest, IsToldWhenALostCaptureEnds) {
  EXPECT_FALSE(driver_.get_stream_id(capturing_).is_ok());
  EXPECT_EQ(ask_for_end(capturing_, 2), DriverCode::kCaptureInvalidated);
  EXPECT_EQ(fixture_->end_capture(capturing_), DriverCode::kCaptureInvalidated);
  EXPECT_TRUE(is_told(1));
}

TEST_P(GraphEndTest, IsToldToEveryoneWhoAskedOnce) {
  EXPECT_EQ(ask_for_end(capturing_, 2), DriverCode::kSuccess);
  EXPECT_EQ(ask_for_end(capturing_, 3), DriverCode::kSuccess);
  fixture_->destroy(fixture_->make_graph(capturing_));
  EXPECT_TRUE(is_told(111));
}

TEST_P(GraphEndTest, CanBeAskedForOnAForkedStream) {
  const EventHandle event = driver_.create_event(0).value;
  ASSERT_EQ(driver_.record_event(event, capturing_), DriverCode::kSuccess);
  ASSERT_EQ(driver_.wait_event(a_, event), DriverCode::kSuccess);
  EXPECT_EQ(ask_for_end(a_, 2), DriverCode::kSuccess);
  ASSERT_EQ(driver_.record_event(event, a_), DriverCode::kSuccess);
  ASSERT_EQ(driver_.wait_event(capturing_, event), DriverCode::kSuccess);
  const Graph graph = fixture_->make_graph(capturing_);
  EXPECT_EQ(ends_told, 0);
  fixture_->destroy(graph);
  EXPECT_TRUE(is_told(11));
}

TEST_P(GraphEndTest, IsToldOfEachGraphByItself) {
  const Graph first = fixture_->make_graph(capturing_);
  begin();
  EXPECT_EQ(ask_for_end(capturing_, 2), DriverCode::kSuccess);
  const Graph second = fixture_->make_graph(capturing_);
  fixture_->destroy(second);
  EXPECT_TRUE(is_told(10));
  fixture_->destroy(first);
  EXPECT_TRUE(is_told(11));
}

TEST_P(GraphEndTest, CannotBeAskedForOutsideACapture) {
  EXPECT_EQ(ask_for_end(a_, 2), DriverCode::kInvalidValue);
  EXPECT_EQ(fixture_->end_capture(capturing_), DriverCode::kSuccess);
  EXPECT_EQ(ask_for_end(capturing_, 2), DriverCode::kInvalidValue);
  EXPECT_TRUE(is_told(1));
}

INSTANTIATE_TEST_SUITE_P(Streams, GraphEndTest,
                         testing::Values(Kind::kBlocking, Kind::kNonBlocking),
                         [](const auto& instance) {
                           return instance.param == Kind::kBlocking ? "blocking" : "non_blocking";
                         });

}  // namespace
}  // namespace quarry
