// SPDX-License-Identifier: Apache-2.0
// Captures and graphs of the simulated device beyond what every driver shares (that is
// tests/conformance/driver): forks and joins, what a launch uses, and order inside a capture.
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "sim/sim_driver.hpp"

namespace quarry {
namespace {

using sim::GraphId;
using sim::HazardKind;
using sim::LifetimeId;
using sim::WorkTime;

class SimCaptureTest : public testing::Test {
 protected:
  void begin() { ASSERT_EQ(sim_.begin_capture(a_, CaptureMode::kRelaxed), DriverCode::kSuccess); }
  GraphId end() {
    const auto graph = sim_.end_capture(a_);
    EXPECT_EQ(graph.code, DriverCode::kSuccess);
    return graph.value;
  }
  LifetimeId hand_out(Address address, StreamRef stream) {
    const LifetimeId id = sim_.begin_lifetime(0, address, 1_MiB, stream);
    sim_.use(id, stream);
    return id;
  }
  void order(StreamRef before, StreamRef after) {
    const EventHandle event = sim_.create_event(0).value;
    EXPECT_EQ(sim_.record_event(event, before), DriverCode::kSuccess);
    EXPECT_EQ(sim_.wait_event(after, event), DriverCode::kSuccess);
  }
  CaptureStatus status(StreamRef stream) { return sim_.get_capture_status(stream).value; }
  void expect_clean() {
    for (const sim::Hazard& hazard : sim_.get_hazards())
      ADD_FAILURE() << hazard.text;
  }
  void expect_only(HazardKind kind) {
    ASSERT_EQ(sim_.hazard_count(), 1u);
    EXPECT_EQ(sim_.get_hazards()[0].kind, kind) << sim_.get_hazards()[0].text;
    sim_.clear_hazards();
  }

  SimDriver sim_;
  const StreamRef a_ = sim_.create_stream(0, sim::StreamKind::kNonBlocking);
  const StreamRef b_ = sim_.create_stream(0, sim::StreamKind::kNonBlocking);
  const Address memory_ = sim_.allocate(0, 4_MiB).value;
};

TEST_F(SimCaptureTest, WorkOfACaptureRunsAtTheLaunchOnly) {
  begin();
  sim_.submit_work(a_, WorkTime::lasting_us(100));
  EXPECT_TRUE(sim_.is_idle(a_));
  const GraphId graph = end();
  EXPECT_EQ(sim_.launch_graph(graph, b_, WorkTime::lasting_us(100)), DriverCode::kSuccess);
  EXPECT_FALSE(sim_.is_idle(b_));
  EXPECT_EQ(sim_.destroy_graph(graph), DriverCode::kSuccess);
  EXPECT_EQ(sim_.launch_graph(graph, b_), DriverCode::kInvalidHandle);
}

TEST_F(SimCaptureTest, AWaitForksAStreamIntoTheCaptureAndEndReleasesIt) {
  begin();
  order(a_, b_);
  EXPECT_EQ(status(b_), CaptureStatus::kActive);
  sim_.submit_work(b_, {});
  order(b_, a_);
  end();
  EXPECT_EQ(status(a_), CaptureStatus::kNone);
  EXPECT_EQ(status(b_), CaptureStatus::kNone);
}

TEST_F(SimCaptureTest, AForkedStreamMustBeJoinedAfterItsLastWork) {
  begin();
  order(a_, b_);
  order(b_, a_);
  sim_.submit_work(b_, {});
  EXPECT_EQ(sim_.end_capture(a_).code, DriverCode::kCaptureUnjoined);
  EXPECT_EQ(status(b_), CaptureStatus::kNone);
}

TEST_F(SimCaptureTest, ACaptureEndsOnTheStreamThatBeganIt) {
  begin();
  order(a_, b_);
  EXPECT_EQ(sim_.end_capture(b_).code, DriverCode::kCaptureUnmatched);
  order(b_, a_);
  end();
}

TEST_F(SimCaptureTest, MergingTwoCapturesLosesBoth) {
  begin();
  ASSERT_EQ(sim_.begin_capture(b_, CaptureMode::kRelaxed), DriverCode::kSuccess);
  const EventHandle event = sim_.create_event(0).value;
  ASSERT_EQ(sim_.record_event(event, a_), DriverCode::kSuccess);
  EXPECT_EQ(sim_.wait_event(b_, event), DriverCode::kCaptureMerge);
  EXPECT_EQ(sim_.end_capture(a_).code, DriverCode::kCaptureInvalidated);
  EXPECT_EQ(sim_.end_capture(b_).code, DriverCode::kCaptureInvalidated);
}

TEST_F(SimCaptureTest, ALossNamesTheCallThatMadeIt) {
  begin();
  EXPECT_EQ(sim_.get_stream_id(a_).code, DriverCode::kCaptureUnsupported);
  ASSERT_EQ(sim_.get_lost_captures().size(), 1u);
  const sim::LostCapture lost = sim_.get_lost_captures()[0];
  EXPECT_EQ(lost.entry, DriverEntry::kGetStreamId);
  EXPECT_EQ(lost.origin, a_);
  EXPECT_FALSE(lost.by_user);
}

TEST_F(SimCaptureTest, StreamOrderOutsideCountsForNothingInside) {
  sim_.end_lifetime(hand_out(memory_, a_));
  begin();
  hand_out(memory_, a_);
  expect_only(HazardKind::kUnordered);
}

TEST_F(SimCaptureTest, WhatTheHostHasSeenMayEnterACapture) {
  sim_.end_lifetime(hand_out(memory_, a_));
  EXPECT_EQ(sim_.user_synchronizes(a_), DriverCode::kSuccess);
  begin();
  sim_.end_lifetime(hand_out(memory_, a_));
  hand_out(memory_, a_);
  expect_clean();
}

TEST_F(SimCaptureTest, InsideACaptureReuseNeedsTheJoin) {
  begin();
  order(a_, b_);
  const LifetimeId id = hand_out(memory_, a_);
  sim_.use(id, b_);
  sim_.end_lifetime(id);
  hand_out(memory_ + 1_MiB, a_);
  expect_clean();
  sim_.end_lifetime(hand_out(memory_, a_));
  expect_only(HazardKind::kUnordered);
  order(b_, a_);
  hand_out(memory_, a_);
  expect_clean();
  end();
}

TEST_F(SimCaptureTest, ALaunchUsesTheMemoryAgain) {
  begin();
  sim_.end_lifetime(hand_out(memory_, a_));
  const GraphId graph = end();
  hand_out(memory_ + 1_MiB, b_);
  EXPECT_EQ(sim_.launch_graph(graph, a_), DriverCode::kSuccess);
  EXPECT_EQ(sim_.launch_graph(graph, a_), DriverCode::kSuccess);
  expect_clean();
  hand_out(memory_, b_);
  expect_only(HazardKind::kUnordered);
}

TEST_F(SimCaptureTest, MemoryOfADrainedGraphMayGoToAnyStream) {
  begin();
  sim_.end_lifetime(hand_out(memory_, a_));
  const GraphId graph = end();
  EXPECT_EQ(sim_.launch_graph(graph, a_), DriverCode::kSuccess);
  EXPECT_EQ(sim_.user_synchronizes(a_), DriverCode::kSuccess);
  hand_out(memory_, b_);
  expect_clean();
}

TEST_F(SimCaptureTest, LaunchingAGraphOverAnothersMemoryIsAHazard) {
  begin();
  sim_.end_lifetime(hand_out(memory_, a_));
  const GraphId graph = end();
  hand_out(memory_, a_);
  expect_clean();
  EXPECT_EQ(sim_.launch_graph(graph, a_), DriverCode::kSuccess);
  expect_only(HazardKind::kGraphMemory);
}

TEST_F(SimCaptureTest, LaunchingAGraphWhoseMemoryIsUnmappedIsAHazard) {
  const Address base = sim_.reserve_addresses(2_MiB, 0).value;
  const ExtentHandle extent = sim_.create_extent(0, 2_MiB, {}).value;
  ASSERT_EQ(sim_.map(base, 2_MiB, extent), DriverCode::kSuccess);
  const std::array<DeviceId, 1> devices{0};
  ASSERT_EQ(sim_.set_access(base, 2_MiB, devices), DriverCode::kSuccess);
  begin();
  sim_.end_lifetime(hand_out(base, a_));
  const GraphId graph = end();
  ASSERT_EQ(sim_.unmap(base, 2_MiB), DriverCode::kSuccess);
  expect_clean();
  EXPECT_EQ(sim_.launch_graph(graph, a_), DriverCode::kSuccess);
  expect_only(HazardKind::kAccessUnmapped);
}

TEST_F(SimCaptureTest, UnmappingUnderALaunchThatTheHostHasNotSeenIsAHazard) {
  const Address base = sim_.reserve_addresses(2_MiB, 0).value;
  const ExtentHandle extent = sim_.create_extent(0, 2_MiB, {}).value;
  ASSERT_EQ(sim_.map(base, 2_MiB, extent), DriverCode::kSuccess);
  const std::array<DeviceId, 1> devices{0};
  ASSERT_EQ(sim_.set_access(base, 2_MiB, devices), DriverCode::kSuccess);
  begin();
  sim_.end_lifetime(hand_out(base, a_));
  const GraphId graph = end();
  EXPECT_EQ(sim_.launch_graph(graph, b_), DriverCode::kSuccess);
  ASSERT_EQ(sim_.unmap(base, 2_MiB), DriverCode::kSuccess);
  expect_only(HazardKind::kUnmappedUnderUse);
}

TEST_F(SimCaptureTest, ACapturedLaunchIsANode) {
  begin();
  const GraphId inner = end();
  begin();
  sim_.submit_work(a_, {});
  std::vector<GraphNode> nodes;
  ASSERT_EQ(sim_.get_capture_frontier(a_, nodes), DriverCode::kSuccess);
  ASSERT_EQ(sim_.launch_graph(inner, a_), DriverCode::kSuccess);
  ASSERT_EQ(sim_.get_capture_frontier(a_, nodes), DriverCode::kSuccess);
  ASSERT_EQ(nodes.size(), 2u);
  EXPECT_NE(nodes[1], nodes[0]);
  ASSERT_EQ(sim_.get_predecessors(nodes[1], nodes), DriverCode::kSuccess);
  ASSERT_EQ(nodes.size(), 3u);
  EXPECT_EQ(nodes[2], nodes[0]);
  end();
}

TEST_F(SimCaptureTest, ANodeOfNoActiveCaptureIsAMisuse) {
  std::vector<GraphNode> nodes;
  begin();
  sim_.submit_work(a_, {});
  ASSERT_EQ(sim_.get_capture_frontier(a_, nodes), DriverCode::kSuccess);
  ASSERT_EQ(nodes.size(), 1u);
  const GraphNode node = nodes[0];
  const auto next = static_cast<GraphNode>(static_cast<std::uint64_t>(node) + 1);
  EXPECT_EQ(sim_.get_predecessors(next, nodes), DriverCode::kInvalidValue);
  EXPECT_EQ(sim_.misuse_count(), 1u);
  end();
  EXPECT_EQ(sim_.get_predecessors(node, nodes), DriverCode::kInvalidValue);
  EXPECT_EQ(sim_.misuse_count(), 2u);
  begin();
  sim_.submit_work(a_, {});
  nodes.clear();
  ASSERT_EQ(sim_.get_capture_frontier(a_, nodes), DriverCode::kSuccess);
  EXPECT_FALSE(sim_.get_stream_id(a_).is_ok());
  EXPECT_EQ(sim_.get_predecessors(nodes[0], nodes), DriverCode::kInvalidValue);
  EXPECT_EQ(sim_.misuse_count(), 3u);
  EXPECT_EQ(sim_.get_misuses()[2].kind, sim::MisuseKind::kUnknownNode);
  EXPECT_EQ(nodes.size(), 1u);
}

TEST_F(SimCaptureTest, CapturesWorkWithTheOracleOff) {
  SimDriver sim({.oracle = false});
  const StreamRef a = sim.create_stream(0, sim::StreamKind::kNonBlocking);
  const StreamRef b = sim.create_stream(0, sim::StreamKind::kNonBlocking);
  const EventHandle event = sim.create_event(0).value;
  ASSERT_EQ(sim.begin_capture(a, CaptureMode::kRelaxed), DriverCode::kSuccess);
  ASSERT_EQ(sim.record_event(event, a), DriverCode::kSuccess);
  ASSERT_EQ(sim.wait_event(b, event), DriverCode::kSuccess);
  EXPECT_EQ(sim.end_capture(a).code, DriverCode::kCaptureUnjoined);
}

}  // namespace
}  // namespace quarry
