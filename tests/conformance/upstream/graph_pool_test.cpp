// SPDX-License-Identifier: Apache-2.0
// Upstream's tests of graphs and their pools, with their figures of memory. What its kernels
// compute needs a GPU: tests/gpu has the sums.
#include <string>

#include "tests/support/capture_scenario.hpp"

namespace quarry::test {
namespace {

constexpr PoolId kP1{0, 1};
constexpr PoolId kP2{0, 2};

class GraphPool : public testing::Test {
 protected:
  GraphPool() : side_(s_.make_stream()) {}
  // Three tensors of 1,000 floats, of which the last outlives the capture.
  sim::GraphId capture_chain(PoolId pool) {
    s_.begin_capture(side_, pool);
    const Address a = s_.malloc(4000, side_);
    const Address b = s_.malloc(4000, side_);
    s_.free(a);
    s_.malloc(4000, side_);
    s_.free(b);
    return s_.end_capture(side_, pool);
  }
  CaptureScenario s_;
  const StreamHandle side_;
};

TEST_F(GraphPool, GraphTwoSuccessiveSharingSavesOneSmallSegment) {
  s_.retain_pool(kP1);
  capture_chain(kP1);
  capture_chain(kP1);
  const Bytes shared = s_.reserved();
  s_.retain_pool(kP2);
  capture_chain(kP2);
  EXPECT_EQ(s_.reserved() - shared, 2'097'152u);
  EXPECT_EQ(shared, 2'097'152u);
}

struct SizeCase {
  Bytes bytes;
  std::int64_t segments;
  Bytes reserved;
  Bytes kept;  // after the graph is gone
};

class GraphMemoryStats : public GraphPool, public testing::WithParamInterface<SizeCase> {};

TEST_P(GraphMemoryStats, AndUseOfTheResultAfterTheGraphIsDestroyed) {
  const SizeCase& size = GetParam();
  const DeviceStats before = s_.stats();
  s_.retain_pool(kP1);
  s_.begin_capture(side_, kP1);
  Address b = s_.malloc(size.bytes, side_);
  for (int i = 0; i < 5; ++i) {
    const Address clone = s_.malloc(size.bytes, side_);
    const Address sum = s_.malloc(size.bytes, side_);
    s_.free(clone);
    s_.free(b);
    b = sum;
  }
  const sim::GraphId graph = s_.end_capture(side_, kP1);
  const DeviceStats after = s_.stats();
  EXPECT_EQ(after.segment.all.current - before.segment.all.current, size.segments);
  EXPECT_EQ(after.reserved_bytes.all.current - before.reserved_bytes.all.current,
            static_cast<std::int64_t>(size.reserved));
  EXPECT_EQ(after.active.all.current - before.active.all.current, 1);

  s_.launch(graph, side_);
  ASSERT_EQ(s_.sim().destroy_graph(graph), DriverCode::kSuccess);
  s_.release_pool(kP1);
  EXPECT_EQ(s_.empty_cache(), StatusCode::kOk);
  EXPECT_EQ(s_.reserved(), size.kept);
  EXPECT_EQ(s_.stats().segment.all.current, 1);
  EXPECT_TRUE(s_.allocator().find_block(b).is_ok());  // still the user's

  s_.free(b);
  EXPECT_EQ(s_.empty_cache(), StatusCode::kOk);
  EXPECT_EQ(s_.reserved(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Sizes, GraphMemoryStats,
                         testing::Values(SizeCase{512, 1, 2'097'152, 2'097'152},
                                         SizeCase{1'048'576, 2, 4'194'304, 2'097'152},
                                         SizeCase{1'049'088, 1, 20'971'520, 20'971'520},
                                         SizeCase{10'485'248, 2, 41'943'040, 20'971'520},
                                         SizeCase{10'486'272, 3, 37'748'736, 12'582'912}),
                         [](const auto& tested) {
                           return std::to_string(tested.param.bytes) + "Bytes";
                         });

// The third graph has the memory that the second freed, though the first had been given it: graphs
// that share a pool do not run at once.
TEST_F(GraphPool, GraphThreeSuccessiveReuseWhatALaterCaptureFreed) {
  s_.retain_pool(kP1);
  s_.begin_capture(side_, kP1);
  s_.malloc(4000, side_);
  const Address c = s_.malloc(4000, side_);
  s_.malloc(4000, side_);
  s_.end_capture(side_, kP1);
  s_.begin_capture(side_, kP1);
  s_.malloc(4000, side_);
  s_.free(c);
  s_.end_capture(side_, kP1);
  s_.begin_capture(side_, kP1);
  EXPECT_EQ(s_.malloc(4000, side_), c);
  EXPECT_NE(s_.end_capture(side_, kP1), sim::GraphId::kNone);
}

// As one block, if they are neighbours.
TEST_F(GraphPool, WhatALaterCaptureFreedJoinsWhatIsFree) {
  constexpr Bytes kLarge = 9'437'184;
  s_.retain_pool(kP1);
  s_.begin_capture(side_, kP1);
  const Address first = s_.malloc(kLarge, side_);
  const Address second = s_.malloc(kLarge, side_);
  s_.free(first);
  s_.end_capture(side_, kP1);
  s_.begin_capture(side_, kP1);
  s_.free(second);
  s_.end_capture(side_, kP1);
  const Bytes reserved = s_.reserved();
  s_.begin_capture(side_, kP1);
  EXPECT_EQ(s_.malloc(2 * kLarge, side_), first);
  EXPECT_NE(s_.end_capture(side_, kP1), sim::GraphId::kNone);
  EXPECT_EQ(s_.reserved(), reserved);
}

TEST_F(GraphPool, GraphRecordStreamAndFreeInACaptureAskNoEvent) {
  const StreamHandle s1 = s_.make_stream();
  s_.retain_pool(kP1);
  s_.begin_capture(side_, kP1);
  const Address a = s_.malloc(4000, side_);
  s_.fork(side_, s1);
  s_.record(a, s1);
  s_.sim().reset_call_counts();
  s_.free(a);
  EXPECT_NE(s_.malloc(4000, side_), a);
  EXPECT_EQ(s_.calls(DriverEntry::kQueryEvent), 0u);
  EXPECT_EQ(s_.calls(DriverEntry::kRecordEvent), 0u);
  s_.fork(s1, side_);
  EXPECT_NE(s_.end_capture(side_, kP1), sim::GraphId::kNone);
}

TEST_F(GraphPool, NoMemoryIsFreedInACaptureThatHasEnough) {
  s_.free(s_.malloc(41'943'040, kS0));
  s_.retain_pool(kP1);
  s_.begin_capture(side_, kP1);
  s_.sim().reset_call_counts();
  for (const Bytes bytes : {Bytes{512}, Bytes{4'194'304}, Bytes{33'554'432}})
    s_.free(s_.malloc(bytes, side_));
  EXPECT_EQ(s_.calls(DriverEntry::kFree), 0u);
  EXPECT_EQ(s_.calls(DriverEntry::kAllocate), 3u);
  EXPECT_NE(s_.end_capture(side_, kP1), sim::GraphId::kNone);
}

// A graph that is held keeps all its segments, whatever the cache gives back.
TEST_F(GraphPool, AGraphThatMayBeLaunchedKeepsItsMemory) {
  s_.retain_pool(kP1);
  s_.begin_capture(side_, kP1);
  s_.free(s_.malloc(33'554'432, side_));
  const sim::GraphId graph = s_.end_capture(side_, kP1);
  EXPECT_EQ(s_.empty_cache(), StatusCode::kOk);
  ASSERT_TRUE(s_.allocator().trim_pool(0, kP1).is_ok());
  EXPECT_EQ(s_.reserved(), 33'554'432u);
  s_.launch(graph, kS0);
  ASSERT_EQ(s_.sim().destroy_graph(graph), DriverCode::kSuccess);
  s_.release_pool(kP1);
  EXPECT_EQ(s_.empty_cache(), StatusCode::kOk);
  EXPECT_EQ(s_.reserved(), 0u);
}

}  // namespace
}  // namespace quarry::test
