// SPDX-License-Identifier: Apache-2.0
// Pools that are made for each graph without a call (graph_pools:automatic): they serve the
// captures that the driver tells of, and go with their graphs.
#include "tests/support/capture_scenario.hpp"

namespace quarry::test {
namespace {

class GraphPoolsTest : public testing::Test {
 protected:
  GraphPoolsTest() {
    s_.configure([](Config& config) {
      config.automatic_graph_pools = true;
      config.thread_cache = true;
    });
  }
  // Of memory that is cached nowhere else.
  Bytes emptied_reserved() {
    EXPECT_EQ(s_.empty_cache(), StatusCode::kOk);
    return s_.reserved();
  }
  std::size_t pool_count() { return s_.allocator().get_pool_reports(0).value().size(); }
  void begin(StreamHandle stream, CaptureMode mode = CaptureMode::kGlobal) {
    ASSERT_EQ(s_.sim().begin_capture({0, stream}, mode), DriverCode::kSuccess);
  }

  CaptureScenario s_;
};

TEST_F(GraphPoolsTest, ACaptureIsServedFromAPoolOfItsOwn) {
  const StreamHandle other = s_.make_stream();
  for (const CaptureMode mode :
       {CaptureMode::kGlobal, CaptureMode::kThreadLocal, CaptureMode::kRelaxed}) {
    for (const sim::StreamKind kind :
         {sim::StreamKind::kBlocking, sim::StreamKind::kNonBlocking}) {
      const StreamHandle side = s_.sim().create_stream(0, kind).handle;
      begin(side, mode);
      const Address inside = s_.malloc(1'048'576, side);
      EXPECT_EQ(pool_count(), 1u);
      const Address outside = s_.malloc(1'048'576, other);
      const auto report = s_.allocator().get_pool_reports(0).value().front();
      EXPECT_EQ(report.stats.allocations.current, 1);
      EXPECT_TRUE(report.has_active_capture);
      const auto graph = s_.end_capture_of_driver(side);
      ASSERT_NE(graph, sim::GraphId::kNone);
      s_.free(inside);
      s_.free(outside);
      ASSERT_EQ(s_.sim().destroy_graph(graph), DriverCode::kSuccess);
      EXPECT_EQ(emptied_reserved(), 0u);
      EXPECT_EQ(pool_count(), 0u);
    }
  }
}

TEST_F(GraphPoolsTest, ThePoolOutlivesLaunchesAndGoesWithTheGraph) {
  const StreamHandle side = s_.make_stream();
  const StreamHandle other = s_.make_stream();
  begin(side);
  s_.free(s_.malloc(33'554'432, side));
  const auto graph = s_.end_capture_of_driver(side);
  EXPECT_EQ(emptied_reserved(), 33'554'432u);  // the graph may be launched
  ASSERT_EQ(s_.sim().launch_graph(graph, {0, other}, sim::WorkTime::lasting_us(50)),
            DriverCode::kSuccess);
  ASSERT_EQ(s_.sim().destroy_graph(graph), DriverCode::kSuccess);
  EXPECT_EQ(pool_count(), 1u);  // the launch is in flight
  s_.sim().advance_by_us(100);
  static_cast<void>(s_.sim().user_synchronizes({0, other}));
  EXPECT_EQ(emptied_reserved(), 0u);
  EXPECT_EQ(pool_count(), 0u);
}

TEST_F(GraphPoolsTest, ALostCaptureLeavesNoPool) {
  const StreamHandle side = s_.make_stream();
  for (int round = 0; round < 100; ++round) {
    begin(side);
    const Address block = s_.malloc(33'554'432, side);
    s_.lose_capture(side);
    EXPECT_EQ(s_.end_capture_of_driver(side), sim::GraphId::kNone);
    s_.free(block);
    ASSERT_EQ(emptied_reserved(), 0u);
    ASSERT_EQ(pool_count(), 0u);
  }
}

TEST_F(GraphPoolsTest, StreamsThatJoinTheCaptureShareItsPool) {
  const StreamHandle s0 = s_.make_stream();
  const StreamHandle s1 = s_.make_stream();
  begin(s0);
  EXPECT_NE(s_.malloc(512, s0), 0u);
  s_.fork(s0, s1);
  EXPECT_NE(s_.malloc(512, s1), 0u);
  EXPECT_EQ(pool_count(), 1u);
  EXPECT_EQ(s_.allocator().get_pool_reports(0).value().front().stats.allocations.current, 2);
  s_.fork(s1, s0);
  EXPECT_EQ(s_.sim().destroy_graph(s_.end_capture_of_driver(s0)), DriverCode::kSuccess);
}

TEST_F(GraphPoolsTest, OrdinaryRequestsKeepTheirMagazines) {
  for (int i = 0; i < 4; ++i)
    s_.free(s_.malloc(65'536, kS0));
  EXPECT_GT(s_.stats().parked_bytes, 0);
  EXPECT_NE(s_.malloc(65'536, kS0), 0u);
  EXPECT_EQ(s_.stats().parked_bytes, 0);
}

TEST_F(GraphPoolsTest, ADriverThatCannotTieThePoolRefusesTheRequest) {
  const StreamHandle side = s_.make_stream();
  begin(side);
  s_.sim().fail_call(DriverEntry::kCallWhenGraphIsGone, 1, DriverCode::kNotSupported);
  EXPECT_EQ(s_.malloc(512, side), 0u);
  EXPECT_EQ(s_.last_code(), StatusCode::kDriverError);
  EXPECT_EQ(pool_count(), 0u);
  EXPECT_NE(s_.malloc(512, side), 0u);
  EXPECT_EQ(s_.sim().destroy_graph(s_.end_capture_of_driver(side)), DriverCode::kSuccess);
}

TEST_F(GraphPoolsTest, APoolThatTheUserReleasesServesItsCaptureNoMore) {
  const StreamHandle side = s_.make_stream();
  begin(side);
  const Address block = s_.malloc(33'554'432, side);
  s_.release_pool(s_.allocator().get_pool_reports(0).value().front().id);
  EXPECT_EQ(s_.malloc(512, side), 0u);
  EXPECT_EQ(s_.last_code(), StatusCode::kInvalidArgument);
  const auto graph = s_.end_capture_of_driver(side);
  ASSERT_EQ(s_.sim().destroy_graph(graph), DriverCode::kSuccess);
  EXPECT_EQ(pool_count(), 1u);
  s_.free(block);
  EXPECT_EQ(emptied_reserved(), 0u);
  EXPECT_EQ(pool_count(), 0u);
}

// Whoever asks for the pool next finds that its graph is gone.
TEST_F(GraphPoolsTest, APoolThatGoesWithItsGraphIsNotBegun) {
  const StreamHandle side = s_.make_stream();
  begin(side);
  s_.free(s_.malloc(512, side));
  const PoolId pool = s_.allocator().get_pool_reports(0).value().front().id;
  s_.lose_capture(side);
  EXPECT_EQ(s_.end_capture_of_driver(side), sim::GraphId::kNone);
  const Route route{Route::Kind::kCapture, 0, pool, side, {}};
  EXPECT_EQ(s_.allocator().begin_pool(route).code(), StatusCode::kInvalidArgument);
}

TEST_F(GraphPoolsTest, APoolWithoutMemoryThatGoesWithItsGraphIsNotBegun) {
  const StreamHandle side = s_.make_stream();
  begin(side);
  EXPECT_EQ(s_.malloc(kUnlimited / 32, side), 0u);
  const PoolId pool = s_.allocator().get_pool_reports(0).value().front().id;
  EXPECT_EQ(s_.sim().destroy_graph(s_.end_capture_of_driver(side)), DriverCode::kSuccess);
  const Route route{Route::Kind::kCapture, 0, pool, side, {}};
  EXPECT_EQ(s_.allocator().begin_pool(route).code(), StatusCode::kInvalidArgument);
}

// Nobody releases it by a call, which would end its routes.
TEST_F(GraphPoolsTest, ARouteToAPoolWhoseGraphIsGoneServesNobody) {
  const StreamHandle side = s_.make_stream();
  begin(side);
  const Address block = s_.malloc(512, side);
  const PoolId pool = s_.allocator().get_pool_reports(0).value().front().id;
  const auto graph = s_.end_capture_of_driver(side);
  ASSERT_TRUE(s_.allocator().begin_pool({Route::Kind::kThread, 0, pool, {}, {}}).is_ok());
  ASSERT_EQ(s_.sim().destroy_graph(graph), DriverCode::kSuccess);
  EXPECT_NE(s_.malloc(512), 0u);
  EXPECT_EQ(s_.allocator().end_pool(0, pool).code(), StatusCode::kInvalidArgument);
  s_.free(block);
}

// The default pool's memory would be others', and the graph's.
TEST_F(GraphPoolsTest, ACaptureKeepsItsPoolWhenTheSettingChanges) {
  const StreamHandle side = s_.make_stream();
  const StreamHandle other = s_.make_stream();
  begin(side);
  const Address first = s_.malloc(33'554'432, side);
  s_.configure([](Config& config) { config.automatic_graph_pools = false; });
  const Address second = s_.malloc(33'554'432, side);
  EXPECT_EQ(s_.allocator().get_pool_reports(0).value().front().stats.allocations.current, 2);
  s_.free(second);
  s_.free(first);
  const auto graph = s_.end_capture_of_driver(side);
  begin(other);
  EXPECT_NE(s_.malloc(512, other), 0u);
  EXPECT_EQ(pool_count(), 1u);
  EXPECT_EQ(s_.sim().destroy_graph(s_.end_capture_of_driver(other)), DriverCode::kSuccess);
  EXPECT_EQ(s_.sim().destroy_graph(graph), DriverCode::kSuccess);
  EXPECT_EQ(pool_count(), 1u);  // until its memory goes back
}

TEST_F(GraphPoolsTest, AGraphMayOutliveTheAllocator) {
  SimDriver sim;
  Config config;
  config.automatic_graph_pools = true;
  auto allocator = Allocator::create(sim, config).value();
  const StreamRef side = sim.create_stream(0, sim::StreamKind::kNonBlocking);
  ASSERT_EQ(sim.begin_capture(side, CaptureMode::kRelaxed), DriverCode::kSuccess);
  ASSERT_TRUE(allocator->allocate(side, 512).is_ok());
  const auto graph = sim.end_capture(side);
  allocator.reset();
  EXPECT_EQ(sim.destroy_graph(graph.value), DriverCode::kSuccess);
}

// Activations of a model of eight layers, of this size each.
void run_model(CaptureScenario& s, StreamHandle stream, Bytes bytes) {
  Address activation = s.malloc(bytes, stream);
  for (int layer = 0; layer < 8; ++layer) {
    const Address wide = s.malloc(bytes, stream);
    const Address scratch = s.malloc(bytes, stream);
    s.free(activation);
    activation = s.malloc(bytes, stream);
    s.free(scratch);
    s.free(wide);
  }
  s.free(activation);
}

TEST(SharedGraphPool, TwentyBatchSizesTakeNoMoreThanTheLargest) {
  constexpr PoolId kShared{0, 1}, kAlone{0, 2};
  constexpr Bytes kSample = 262'144;
  CaptureScenario s;
  const StreamHandle side = s.make_stream();
  for (const PoolId pool : {kShared, kAlone})
    s.retain_pool(pool);
  s.begin_capture(side, kAlone);
  run_model(s, side, 160 * kSample);
  EXPECT_NE(s.end_capture(side, kAlone), sim::GraphId::kNone);
  for (Bytes batch = 160; batch > 0; batch -= 8) {
    s.begin_capture(side, kShared);
    run_model(s, side, batch * kSample);
    EXPECT_NE(s.end_capture(side, kShared), sim::GraphId::kNone);
  }
  EXPECT_EQ(s.pool(kShared).stats.reserved_bytes.current,
            s.pool(kAlone).stats.reserved_bytes.current);
}

}  // namespace
}  // namespace quarry::test
