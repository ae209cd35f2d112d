// SPDX-License-Identifier: Apache-2.0
// What a driver says of a capture and of the graph that it makes.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

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

  using Nodes = std::set<GraphNode>;
  void SetUp() override {
    std::vector<GraphNode> nodes;
    begin(a_);
    const DriverCode code = driver_.get_capture_frontier(a_, nodes);
    end(a_);
    if (code == DriverCode::kNotSupported) GTEST_SKIP() << "too old a driver";
  }
  Nodes frontier(StreamRef stream) {
    std::vector<GraphNode> nodes;
    const DriverCode code = driver_.get_capture_frontier(stream, nodes);
    EXPECT_EQ(code, DriverCode::kSuccess) << describe(code);
    EXPECT_EQ(Nodes(nodes.begin(), nodes.end()).size(), nodes.size()) << "a node twice";
    return Nodes(nodes.begin(), nodes.end());
  }
  Nodes predecessors(GraphNode node) {
    std::vector<GraphNode> nodes;
    const DriverCode code = driver_.get_predecessors(node, nodes);
    EXPECT_EQ(code, DriverCode::kSuccess) << describe(code);
    return Nodes(nodes.begin(), nodes.end());
  }
  // All that the stream's next work comes after.
  Nodes past(StreamRef stream) {
    Nodes seen;
    Nodes left = frontier(stream);
    while (!left.empty()) {
      const GraphNode node = *left.begin();
      left.erase(left.begin());
      if (seen.insert(node).second) left.merge(predecessors(node));
    }
    return seen;
  }
  // Work on the stream. Returns its node.
  GraphNode work(StreamRef stream) {
    EXPECT_EQ(fixture_->submit_work(stream), DriverCode::kSuccess);
    const Nodes nodes = frontier(stream);
    EXPECT_EQ(nodes.size(), 1u);
    return nodes.empty() ? GraphNode{} : *nodes.begin();
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

TEST_P(CaptureGraphTest, ACaptureBeginsWithNoNode) {
  begin(a_);
  EXPECT_EQ(frontier(a_), Nodes{});
  end(a_);
}

TEST_P(CaptureGraphTest, EachWorkIsANodeBehindTheOneBefore) {
  begin(a_);
  const GraphNode first = work(a_);
  const GraphNode second = work(a_);
  const GraphNode third = work(a_);
  EXPECT_EQ(predecessors(first), Nodes{});
  EXPECT_EQ(predecessors(second), Nodes{first});
  EXPECT_EQ(predecessors(third), Nodes{second});
  EXPECT_EQ(past(a_), (Nodes{first, second, third}));
  end(a_);
}

TEST_P(CaptureGraphTest, RecordingAnEventMakesNoNode) {
  begin(a_);
  const GraphNode node = work(a_);
  const EventHandle event = driver_.create_event(0).value;
  EXPECT_EQ(driver_.record_event(event, a_), DriverCode::kSuccess);
  EXPECT_EQ(frontier(a_), Nodes{node});
  EXPECT_EQ(predecessors(work(a_)), Nodes{node});
  end(a_);
}

TEST_P(CaptureGraphTest, AForkComesAfterWhatTheEventWasRecordedBehind) {
  begin(a_);
  const GraphNode before = work(a_);
  const EventHandle event = driver_.create_event(0).value;
  ASSERT_EQ(driver_.record_event(event, a_), DriverCode::kSuccess);
  const GraphNode later = work(a_);
  ASSERT_EQ(driver_.wait_event(b_, event), DriverCode::kSuccess);
  EXPECT_EQ(frontier(b_), Nodes{before});
  const GraphNode forked = work(b_);
  EXPECT_EQ(past(b_), (Nodes{before, forked}));
  EXPECT_EQ(past(a_), (Nodes{before, later}));
  order(b_, a_);
  end(a_);
}

TEST_P(CaptureGraphTest, AJoinUnitesWhatBothStreamsComeAfter) {
  begin(a_);
  const GraphNode root = work(a_);
  order(a_, b_);
  const GraphNode left = work(a_);
  const GraphNode right = work(b_);
  EXPECT_EQ(predecessors(left), Nodes{root});
  EXPECT_EQ(predecessors(right), Nodes{root});
  order(b_, a_);
  EXPECT_EQ(frontier(a_), (Nodes{left, right}));
  EXPECT_EQ(frontier(b_), Nodes{right});
  const GraphNode joined = work(a_);
  EXPECT_EQ(predecessors(joined), (Nodes{left, right}));
  EXPECT_EQ(past(a_), (Nodes{root, left, right, joined}));
  end(a_);
}

TEST_P(CaptureGraphTest, ANodeBehindManyStreamsTellsThemAll) {
  begin(a_);
  const GraphNode root = work(a_);
  Nodes all{root};
  Nodes branches;
  for (int i = 0; i < 40; ++i) {
    const StreamRef branch = fixture_->create_stream(GetParam());
    order(a_, branch);
    branches.insert(work(branch));
    order(branch, a_);
  }
  all.merge(Nodes(branches));
  EXPECT_EQ(all.size(), 41u);
  EXPECT_EQ(past(a_), all);
  const GraphNode joined = work(a_);
  const Nodes before = predecessors(joined);
  EXPECT_TRUE(std::includes(before.begin(), before.end(), branches.begin(), branches.end()));
  all.insert(joined);
  EXPECT_EQ(past(a_), all);
  end(a_);
}

TEST_P(CaptureGraphTest, WhatIsAskedForIsAppendedAndChangesNothing) {
  begin(a_);
  const GraphNode first = work(a_);
  const GraphNode second = work(a_);
  std::vector<GraphNode> nodes{first};
  EXPECT_EQ(driver_.get_capture_frontier(a_, nodes), DriverCode::kSuccess);
  EXPECT_EQ(nodes, (std::vector<GraphNode>{first, second}));
  EXPECT_EQ(driver_.get_predecessors(second, nodes), DriverCode::kSuccess);
  EXPECT_EQ(nodes, (std::vector<GraphNode>{first, second, first}));
  EXPECT_EQ(past(a_), (Nodes{first, second}));
  EXPECT_EQ(driver_.get_capture_info(a_).value.status, CaptureStatus::kActive);
  end(a_);
}

TEST_P(CaptureGraphTest, ThereIsNoFrontierWithoutAWholeCapture) {
  std::vector<GraphNode> nodes;
  EXPECT_EQ(driver_.get_capture_frontier(a_, nodes), DriverCode::kInvalidValue);
  begin(a_);
  EXPECT_EQ(driver_.get_capture_frontier(b_, nodes), DriverCode::kInvalidValue);
  work(a_);
  EXPECT_FALSE(driver_.get_stream_id(a_).is_ok());
  EXPECT_EQ(driver_.get_capture_frontier(a_, nodes), DriverCode::kCaptureInvalidated);
  EXPECT_TRUE(nodes.empty());
  EXPECT_EQ(fixture_->end_capture(a_), DriverCode::kCaptureInvalidated);
  EXPECT_EQ(driver_.get_capture_frontier(a_, nodes), DriverCode::kInvalidValue);
}

INSTANTIATE_TEST_SUITE_P(Streams, CaptureGraphTest,
                         testing::Values(Kind::kBlocking, Kind::kNonBlocking),
                         [](const auto& instance) {
                           return instance.param == Kind::kBlocking ? "blocking" : "non_blocking";
                         });

}  // namespace
}  // namespace quarry
