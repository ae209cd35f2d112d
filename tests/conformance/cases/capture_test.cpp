// SPDX-License-Identifier: Apache-2.0
// Cases from the field about memory of CUDA graphs: captures that fail, memory that is short in a
// capture, reuse inside. Each under its number and with its figures. The scenario fails the test
// on any hazard and on any capture that the allocator lost.
#include <thread>

#include "tests/support/capture_scenario.hpp"

namespace quarry::test {
namespace {

constexpr PoolId kP{0, 1};

class C31 : public testing::Test {
 protected:
  C31() : s_(1'073'741'824) {
    s_.configure([](Config& config) { config.max_split_bytes = 209'715'200; });
    s_.free(s_.malloc(419'430'400, kS0));  // cached in the default pool
  }
  CaptureScenario s_;
};

TEST_F(C31, AsPyTorchNothingIsGivenBackWhileAStreamCaptures) {
  s_.configure([](Config& config) { config.graph_capture_reclaim = false; });
  const StreamHandle side = s_.make_stream();
  const StreamHandle other = s_.make_stream();
  s_.retain_pool(kP);
  s_.begin_capture(side, kP);
  EXPECT_NE(s_.malloc(20'971'520, side), 0u);
  const std::uint64_t frees = s_.calls(DriverEntry::kFree);
  EXPECT_EQ(s_.malloc(838'860'800, side), 0u);
  EXPECT_EQ(s_.last_code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(s_.malloc(838'860'800, other), 0u);  // a stream that does not capture: the same rule
  EXPECT_EQ(s_.calls(DriverEntry::kFree), frees);
  s_.end_capture(side, kP);
  EXPECT_NE(s_.malloc(838'860'800, other), 0u);
  EXPECT_EQ(s_.reserved(), 838'860'800u + 20'971'520u);
}

// Calls that are measured to be safe in a bracket may make room.
TEST_F(C31, ByDefaultACaptureGetsRoomByBracketedCalls) {
  const StreamHandle side = s_.make_stream();
  s_.retain_pool(kP);
  for (const CaptureMode mode :
       {CaptureMode::kGlobal, CaptureMode::kThreadLocal, CaptureMode::kRelaxed}) {
    s_.begin_capture(side, kP, mode);
    const Address block = s_.malloc(838'860'800, side);
    EXPECT_NE(block, 0u);
    EXPECT_EQ(s_.reserved(), 838'860'800u);
    EXPECT_NE(s_.end_capture(side, kP), sim::GraphId::kNone);
    s_.free(block);
  }
}

class C32 : public testing::Test {
 protected:
  // The captured pool is gone, and nothing else has changed.
  void expect_clean() {
    EXPECT_EQ(s_.empty_cache(), StatusCode::kOk);
    EXPECT_EQ(s_.reserved(), 0u);
    EXPECT_TRUE(s_.allocator().get_pool_reports(0).value().empty());
    const Address block = s_.malloc(1'048'576, kS0);
    EXPECT_NE(block, 0u);
    s_.free(block);
    EXPECT_EQ(s_.empty_cache(), StatusCode::kOk);
    EXPECT_EQ(s_.reserved(), 0u);
  }
  CaptureScenario s_;
};

TEST_F(C32, ACaptureThatTheDriverFailsToEndGivesItsPoolBack) {
  const StreamHandle side = s_.make_stream();
  for (int round = 0; round < 1000; ++round) {
    s_.retain_pool(kP);
    s_.begin_capture(side, kP);
    const Address block = s_.malloc(33'554'432, side);
    s_.lose_capture(side);
    EXPECT_EQ(s_.end_capture(side, kP), sim::GraphId::kNone);
    s_.free(block);
    s_.release_pool(kP);
    EXPECT_EQ(s_.empty_cache(), StatusCode::kOk);
    ASSERT_EQ(s_.reserved(), 0u) << "round " << round;
  }
  expect_clean();
}

TEST_F(C32, AGraphThatIsDroppedWithoutAnEndOfItsCaptureGivesItsPoolBack) {
  const StreamHandle side = s_.make_stream();
  for (int round = 0; round < 1000; ++round) {
    s_.retain_pool(kP);
    s_.begin_capture(side, kP);
    const Address block = s_.malloc(33'554'432, side);
    s_.release_pool(kP);  // with its route
    EXPECT_NE(s_.malloc(512, kS0), 0u);
    s_.end_capture_of_driver(side);
    s_.free(block);
    s_.free_all();
    EXPECT_EQ(s_.empty_cache(), StatusCode::kOk);
    ASSERT_EQ(s_.reserved(), 0u) << "round " << round;
  }
  expect_clean();
}

TEST_F(C32, ACaptureThatCannotBeginGivesItsPoolBack) {
  const StreamHandle side = s_.make_stream();
  for (int round = 0; round < 1000; ++round) {
    s_.retain_pool(kP);
    ASSERT_TRUE(s_.allocator().begin_pool({Route::Kind::kCapture, 0, kP, side, {}}).is_ok());
    // The driver refuses to begin: an ordinary request is nobody's.
    const Address block = s_.malloc(33'554'432, side);
    EXPECT_EQ(s_.pool(kP).stats.allocations.current, 0);
    ASSERT_TRUE(s_.allocator().end_pool(0, kP).is_ok());
    s_.release_pool(kP);
    s_.free(block);
    EXPECT_EQ(s_.empty_cache(), StatusCode::kOk);
    ASSERT_EQ(s_.reserved(), 0u) << "round " << round;
  }
  expect_clean();
}

// Without proof of order a block that another stream of the capture uses comes back only after it.
TEST(C34, ABlockUsedByTwoStreamsOfACaptureIsNotReusedInIt) {
  CaptureScenario s;
  const StreamHandle s0 = s.make_stream();
  const StreamHandle s1 = s.make_stream();
  s.retain_pool(kP);
  s.begin_capture(s0, kP);
  const Address a = s.malloc(8'388'608, s0);
  s.fork(s0, s1);
  s.record(a, s1);
  s.free(a);
  const Address b = s.malloc(8'388'608, s0);
  s.fork(s1, s0);
  const Address c = s.malloc(8'388'608, s0);
  EXPECT_NE(b, a);
  EXPECT_NE(c, a);
  EXPECT_NE(s.end_capture(s0, kP), sim::GraphId::kNone);
  // Now it is the pool's again, for the next capture.
  s.begin_capture(s0, kP);
  EXPECT_EQ(s.malloc(8'388'608, s0), a);
  EXPECT_NE(s.end_capture(s0, kP), sim::GraphId::kNone);
}

class C34WithProof : public testing::Test {
 protected:
  C34WithProof() {
    s_.configure([](Config& config) { config.graph_capture_record_stream_reuse = true; });
    s_.retain_pool(kP);
    s_.begin_capture(s0_, kP);
  }
  ~C34WithProof() override { EXPECT_NE(s_.end_capture(s0_, kP), sim::GraphId::kNone); }
  // A block of s0 that s1 uses, and that is freed before s0 has joined s1.
  Address fork_with_block() {
    const Address block = s_.malloc(8'388'608, s0_);
    s_.fork(s0_, s1_);
    s_.record(block, s1_);
    s_.free(block);
    return block;
  }

  CaptureScenario s_;
  const StreamHandle s0_ = s_.make_stream();
  const StreamHandle s1_ = s_.make_stream();
};

TEST_F(C34WithProof, ABlockIsReusedOnceTheGraphHasJoinedItsUses) {
  const Address a = fork_with_block();
  const Address b = s_.malloc(8'388'608, s0_);
  EXPECT_NE(b, a);
  s_.fork(s1_, s0_);
  EXPECT_EQ(s_.malloc(8'388'608, s0_), a);
}

TEST_F(C34WithProof, AJoinOfAnotherStreamProvesNothing) {
  const StreamHandle s2 = s_.make_stream();
  const Address a = fork_with_block();
  s_.fork(s0_, s2);
  s_.fork(s2, s0_);
  EXPECT_NE(s_.malloc(8'388'608, s0_), a);
  s_.fork(s1_, s2);  // by a detour
  s_.fork(s2, s0_);
  EXPECT_EQ(s_.malloc(8'388'608, s0_), a);
}

TEST_F(C34WithProof, AFreeAfterTheJoinIsReusedAtOnce) {
  const Address a = s_.malloc(8'388'608, s0_);
  s_.fork(s0_, s1_);
  s_.record(a, s1_);
  s_.fork(s1_, s0_);
  EXPECT_NE(s_.malloc(512, s0_), 0u);
  s_.sim().use(s_.lifetime_of(a), {0, s0_});
  s_.forget(a, s1_);  // s1 does not use it again
  s_.free(a);
  EXPECT_EQ(s_.malloc(8'388'608, s0_), a);
}

// The graph is its maker's: nobody else looks at it.
TEST_F(C34WithProof, AFreeOfAnotherThreadWaitsForTheEnd) {
  const Address a = s_.malloc(8'388'608, s0_);
  s_.fork(s0_, s1_);
  s_.record(a, s1_);
  s_.sim().reset_call_counts();
  std::thread([&] { s_.free(a); }).join();
  EXPECT_EQ(s_.calls(DriverEntry::kGetCaptureFrontier), 0u);
  s_.fork(s1_, s0_);
  EXPECT_NE(s_.malloc(8'388'608, s0_), a);
}

TEST_F(C34WithProof, ADriverThatCannotTellLeavesTheBlockToTheEnd) {
  s_.sim().fail_call(DriverEntry::kGetCaptureFrontier, 1, DriverCode::kNotSupported);
  const Address a = fork_with_block();
  s_.fork(s1_, s0_);
  EXPECT_NE(s_.malloc(8'388'608, s0_), a);
}

// Time belongs into benchmarks: here the driver's calls are counted, of which every node of the
// graph needs one.
TEST_F(C34WithProof, TwiceTheRoundsAreTwiceTheCallsAndNoMoreMemory) {
  const auto count_calls = [&](int rounds) {
    s_.sim().reset_call_counts();
    for (int i = 0; i < rounds; ++i) {
      fork_with_block();
      s_.fork(s1_, s0_);
    }
    return s_.sim().call_count(DriverEntry::kGetPredecessors) +
           s_.sim().call_count(DriverEntry::kGetCaptureFrontier);
  };
  const auto once = static_cast<double>(count_calls(1000));
  const Bytes reserved = s_.reserved();
  const auto twice = static_cast<double>(count_calls(2000));
  EXPECT_GT(once, 1000.0);
  EXPECT_LE(twice, 2.5 * once);
  EXPECT_EQ(s_.reserved(), reserved);
}

}  // namespace
}  // namespace quarry::test
