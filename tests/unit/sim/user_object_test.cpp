// SPDX-License-Identifier: Apache-2.0
// The end of graphs on the simulated device, beyond what every driver shares: at which virtual
// time it is told, from which calls, on what kind of thread, and what the host then knows.
#include <gtest/gtest.h>

#include <functional>

#include "sim/sim_driver.hpp"

namespace quarry {
namespace {

using sim::GraphId;
using sim::HazardKind;
using sim::LifetimeId;
using sim::WorkTime;

class UserObjectTest : public testing::Test {
 protected:
  using Action = std::function<void()>;

  void begin() { ASSERT_EQ(sim_.begin_capture(a_, CaptureMode::kRelaxed), DriverCode::kSuccess); }
  // Calls `action` when the graph that `a_` captures is gone.
  void at_end(Action& action) {
    const DriverCode code = sim_.call_when_graph_is_gone(
        a_, [](void* called) { (*static_cast<Action*>(called))(); }, &action);
    ASSERT_EQ(code, DriverCode::kSuccess);
  }
  GraphId end() { return sim_.end_capture(a_).value; }
  // A graph that counts its end in `told_`.
  GraphId make_graph() {
    begin();
    at_end(count_);
    return end();
  }
  // A graph that uses `memory_`, which its user has given back.
  GraphId make_graph_with_memory() {
    begin();
    at_end(count_);
    sim_.end_lifetime(hand_out(a_));
    return end();
  }
  LifetimeId hand_out(StreamRef stream) {
    const LifetimeId id = sim_.begin_lifetime(0, memory_, 1_MiB, stream);
    sim_.use(id, stream);
    return id;
  }

  SimDriver sim_;
  const StreamRef a_ = sim_.create_stream(0, sim::StreamKind::kNonBlocking);
  const StreamRef b_ = sim_.create_stream(0, sim::StreamKind::kNonBlocking);
  const Address memory_ = sim_.allocate(0, 2_MiB).value;
  int told_ = 0;
  Action count_ = [this] { ++told_; };
};

TEST_F(UserObjectTest, AGraphIsGoneAtTheVirtualTimeWhenItsLastLaunchEnds) {
  const GraphId graph = make_graph();
  sim_.launch_graph(graph, b_, WorkTime::lasting_us(100));
  sim_.destroy_graph(graph);
  sim_.advance_to_ns(100'000 - 1);
  EXPECT_EQ(told_, 0);
  sim_.advance_to_us(100);
  EXPECT_EQ(told_, 1);
  sim_.advance_to_us(200);
  EXPECT_EQ(told_, 1);
}

TEST_F(UserObjectTest, LaunchesOfOneGraphRunOneAfterTheOtherOnAnyStreams) {
  const GraphId graph = make_graph();
  sim_.launch_graph(graph, a_, WorkTime::lasting_us(100));
  sim_.launch_graph(graph, b_, WorkTime::lasting_us(100));
  sim_.destroy_graph(graph);
  sim_.advance_to_us(199);
  EXPECT_TRUE(sim_.is_idle(a_));
  EXPECT_FALSE(sim_.is_idle(b_));
  EXPECT_EQ(told_, 0);
  sim_.advance_to_us(200);
  EXPECT_EQ(told_, 1);
}

TEST_F(UserObjectTest, TheDriversWaitsTellItAndItsOtherCallsDoNot) {
  for (const bool waits_by_free : {false, true}) {
    told_ = 0;
    const GraphId graph = make_graph();
    sim_.launch_graph(graph, b_, WorkTime::endless());
    sim_.destroy_graph(graph);
    const EventHandle event = sim_.create_event(0).value;
    ASSERT_EQ(sim_.record_event(event, b_), DriverCode::kSuccess);
    EXPECT_EQ(sim_.query_event(event), DriverCode::kNotReady);
    EXPECT_EQ(told_, 0);
    const DriverCode code =
        waits_by_free ? sim_.free(0, sim_.allocate(0, 512).value) : sim_.synchronize_event(event);
    EXPECT_EQ(code, DriverCode::kSuccess);
    EXPECT_EQ(told_, 1);
  }
}

TEST_F(UserObjectTest, WhatOnlyADriverCallCouldNoticeWaitsForTheUsersNextCall) {
  SimDriver sim({.calls_take_time = true});
  const StreamRef stream = sim.create_stream(0, sim::StreamKind::kNonBlocking);
  ASSERT_EQ(sim.begin_capture(stream, CaptureMode::kRelaxed), DriverCode::kSuccess);
  const auto tell = [](void* told) { ++*static_cast<int*>(told); };
  ASSERT_EQ(sim.call_when_graph_is_gone(stream, tell, &told_), DriverCode::kSuccess);
  const GraphId graph = sim.end_capture(stream).value;
  sim.launch_graph(graph, stream, WorkTime::lasting_us(10));
  sim.destroy_graph(graph);
  ASSERT_TRUE(sim.allocate(0, 2_MiB).is_ok());  // lets 77 us pass, perhaps under the caller's lock
  EXPECT_TRUE(sim.is_idle(stream));
  EXPECT_EQ(told_, 0);
  sim.submit_work(stream, {});
  EXPECT_EQ(told_, 1);
}

TEST_F(UserObjectTest, ACallbackMayMakeNoDriverCall) {
  Action call = [this] {
    EXPECT_EQ(sim_.get_memory_info(0).code, DriverCode::kNotPermitted);
    ++told_;
  };
  begin();
  at_end(call);
  sim_.destroy_graph(end());
  EXPECT_EQ(told_, 1);
  ASSERT_EQ(sim_.misuse_count(), 1u);
  EXPECT_EQ(sim_.get_misuses()[0].kind, sim::MisuseKind::kCallbackThread);
  EXPECT_TRUE(sim_.get_memory_info(0).is_ok());
}

TEST_F(UserObjectTest, ACallbackMayEndAnotherGraph) {
  const GraphId other = make_graph();
  Action destroy = [this, other] { sim_.destroy_graph(other); };
  begin();
  at_end(destroy);
  sim_.destroy_graph(end());
  EXPECT_EQ(told_, 1);
  EXPECT_TRUE(sim_.get_memory_info(0).is_ok());
}

TEST_F(UserObjectTest, MemoryMayGoToAnyStreamOnceTheEndOfItsGraphIsTold) {
  const GraphId graph = make_graph_with_memory();
  sim_.launch_graph(graph, a_, WorkTime::lasting_us(100));
  sim_.launch_graph(graph, b_, WorkTime::lasting_us(100));
  sim_.destroy_graph(graph);
  sim_.advance_by_us(200);
  ASSERT_EQ(told_, 1);
  hand_out(sim_.create_stream(0, sim::StreamKind::kNonBlocking));
  EXPECT_EQ(sim_.hazard_count(), 0u);
}

TEST_F(UserObjectTest, LaunchesThatEndedEarlierAreKnownToBeDoneToo) {
  const GraphId graph = make_graph_with_memory();
  sim_.launch_graph(graph, b_, WorkTime::lasting_us(100));
  sim_.advance_by_us(100);
  EXPECT_EQ(told_, 0);
  sim_.destroy_graph(graph);
  ASSERT_EQ(told_, 1);
  hand_out(a_);
  EXPECT_EQ(sim_.hazard_count(), 0u);
}

TEST_F(UserObjectTest, UntilItIsToldTheHostKnowsNothing) {
  const GraphId graph = make_graph_with_memory();
  sim_.launch_graph(graph, b_, WorkTime::lasting_us(100));
  sim_.advance_by_us(100);
  ASSERT_EQ(told_, 0);
  hand_out(a_);
  ASSERT_EQ(sim_.hazard_count(), 1u);
  EXPECT_EQ(sim_.get_hazards()[0].kind, HazardKind::kUnordered);
}

TEST_F(UserObjectTest, AGraphLivesOnInTheGraphThatCapturedItsLaunch) {
  const GraphId inner = make_graph_with_memory();
  ASSERT_EQ(sim_.begin_capture(b_, CaptureMode::kRelaxed), DriverCode::kSuccess);
  EXPECT_EQ(sim_.launch_graph(inner, b_), DriverCode::kSuccess);
  sim_.destroy_graph(inner);
  EXPECT_EQ(told_, 0);
  const GraphId outer = sim_.end_capture(b_).value;
  sim_.launch_graph(outer, b_, WorkTime::lasting_us(100));
  sim_.destroy_graph(outer);
  EXPECT_EQ(told_, 0);
  sim_.advance_by_us(100);
  EXPECT_EQ(told_, 1);
  hand_out(a_);
  EXPECT_EQ(sim_.hazard_count(), 0u);
}

TEST_F(UserObjectTest, AResetOfTheDeviceEndsItsCapturesAndLaunches) {
  const GraphId graph = make_graph();
  sim_.launch_graph(graph, b_, WorkTime::endless());
  sim_.destroy_graph(graph);
  begin();
  at_end(count_);
  EXPECT_EQ(told_, 0);
  sim_.reset_device(0);
  EXPECT_EQ(told_, 2);
}

TEST_F(UserObjectTest, ASimulationThatEndsTellsNothing) {
  {
    SimDriver sim;
    const StreamRef stream = sim.create_stream(0, sim::StreamKind::kNonBlocking);
    ASSERT_EQ(sim.begin_capture(stream, CaptureMode::kRelaxed), DriverCode::kSuccess);
    const auto tell = [](void* told) { ++*static_cast<int*>(told); };
    ASSERT_EQ(sim.call_when_graph_is_gone(stream, tell, &told_), DriverCode::kSuccess);
    const GraphId graph = sim.end_capture(stream).value;
    sim.launch_graph(graph, stream, WorkTime::endless());
  }
  EXPECT_EQ(told_, 0);
}

}  // namespace
}  // namespace quarry
