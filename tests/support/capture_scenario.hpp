// SPDX-License-Identifier: Apache-2.0
// A scenario with graphs: captures into private pools on the simulated device, launches, and the
// pools' figures. What a stream submits while it captures goes into the graph.
#pragma once

#include <vector>

#include "tests/support/scenario.hpp"

namespace quarry::test {

class CaptureScenario : public Scenario {
 public:
  using Scenario::Scenario;

  void retain_pool(PoolId pool, const PoolOptions& options = {}) {
    ASSERT_TRUE(allocator().retain_pool(0, pool, options).is_ok());
  }
  void release_pool(PoolId pool) { ASSERT_TRUE(allocator().release_pool(0, pool).is_ok()); }
  PoolReport pool(PoolId pool) { return allocator().get_pool_report(0, pool).value(); }

  // Routes the capture to the pool and begins it.
  void begin_capture(StreamHandle stream, PoolId pool, CaptureMode mode = CaptureMode::kGlobal) {
    const Route route{Route::Kind::kCapture, 0, pool, stream, {}};
    ASSERT_TRUE(allocator().begin_pool(route).is_ok());
    ASSERT_EQ(sim().begin_capture({0, stream}, mode), DriverCode::kSuccess);
  }
  // kNone if it was lost. Ends the route either way.
  sim::GraphId end_capture(StreamHandle stream, PoolId pool) {
    const sim::GraphId graph = end_capture_of_driver(stream);
    EXPECT_TRUE(allocator().end_pool(0, pool).is_ok());
    return graph;
  }
  sim::GraphId end_capture_of_driver(StreamHandle stream) {
    const auto graph = sim().end_capture({0, stream});
    return graph.is_ok() ? graph.value : sim::GraphId::kNone;
  }
  // The user makes a mistake.
  void lose_capture(StreamHandle stream) {
    ASSERT_NE(sim().destroy_stream({0, stream}), DriverCode::kSuccess);
  }
  // `after` goes on where `before` is: so a stream joins a capture, and comes back to it.
  void fork(StreamHandle before, StreamHandle after) {
    const auto event = sim().create_event(0);
    ASSERT_EQ(sim().record_event(event.value, {0, before}), DriverCode::kSuccess);
    ASSERT_EQ(sim().wait_event({0, after}, event.value), DriverCode::kSuccess);
    ASSERT_EQ(sim().destroy_event(event.value), DriverCode::kSuccess);
  }
  void launch(sim::GraphId graph, StreamHandle stream) {
    ASSERT_EQ(sim().launch_graph(graph, {0, stream}), DriverCode::kSuccess);
  }
};

}  // namespace quarry::test
