// SPDX-License-Identifier: Apache-2.0
// Cases from the field about pools of users: whose requests they serve, and the life of memory
// that comes from functions of the user. Each under its number and with its figures.
#include <latch>
#include <set>
#include <thread>

#include "tests/support/capture_scenario.hpp"

namespace quarry::test {
namespace {

constexpr PoolId kP1{0, 1};
constexpr PoolId kP2{0, 2};
constexpr PoolId kP3{0, 3};

class C85 : public testing::Test {
 protected:
  C85() {
    for (const PoolId pool : {kP1, kP2, kP3})
      s_.retain_pool(pool);
  }
  void begin(PoolId pool) {
    ASSERT_TRUE(s_.allocator().begin_pool({Route::Kind::kThread, 0, pool, {}, {}}).is_ok());
  }
  std::int64_t blocks_of(PoolId pool) { return s_.pool(pool).stats.allocations.current; }
  CaptureScenario s_;
};

TEST_F(C85, AThreadsPoolServesThatThreadAlone) {
  std::latch has_begun(1), is_done(1);
  std::thread first([&] {
    begin(kP1);
    has_begun.count_down();
    is_done.wait();
    EXPECT_NE(s_.malloc(4'194'304, kS0), 0u);
    EXPECT_EQ(blocks_of(kP1), 1);
    EXPECT_TRUE(s_.allocator().end_pool(0, kP1).is_ok());
  });
  has_begun.wait();
  EXPECT_NE(s_.malloc(4'194'304, kS0), 0u);
  EXPECT_EQ(blocks_of(kP1), 0);
  begin(kP2);
  EXPECT_NE(s_.malloc(4'194'304, kS0), 0u);
  EXPECT_EQ(blocks_of(kP2), 1);
  EXPECT_TRUE(s_.allocator().end_pool(0, kP2).is_ok());
  is_done.count_down();
  first.join();
}

TEST_F(C85, NestedPoolsEndInTheOppositeOrder) {
  begin(kP1);
  begin(kP3);
  EXPECT_NE(s_.malloc(4'194'304, kS0), 0u);
  EXPECT_EQ(blocks_of(kP3), 1);
  EXPECT_EQ(s_.allocator().end_pool(0, kP1).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(s_.allocator().end_pool(0, kP3).is_ok());
  EXPECT_NE(s_.malloc(4'194'304, kS0), 0u);
  EXPECT_EQ(blocks_of(kP1), 1);
  EXPECT_TRUE(s_.allocator().end_pool(0, kP1).is_ok());
  EXPECT_NE(s_.malloc(4'194'304, kS0), 0u);
  EXPECT_EQ(blocks_of(kP1), 1);
}

TEST_F(C85, ARouteOfAStreamDoesNotDependOnThreads) {
  const StreamHandle side = s_.make_stream();
  ASSERT_TRUE(s_.allocator().begin_pool({Route::Kind::kStream, 0, kP1, side, {}}).is_ok());
  std::thread([&] {
    begin(kP2);
    EXPECT_NE(s_.malloc(4'194'304, kS0), 0u);
    EXPECT_EQ(blocks_of(kP2), 1);
    EXPECT_TRUE(s_.allocator().end_pool(0, kP2).is_ok());
    EXPECT_NE(s_.malloc(4'194'304, side), 0u);
    EXPECT_EQ(blocks_of(kP1), 1);
  }).join();
  EXPECT_TRUE(s_.allocator().end_pool(0, kP1).is_ok());
}

TEST_F(C85, AStreamThatIsRetiredEndsWhatWasBegunForIt) {
  const StreamHandle side = s_.make_stream();
  ASSERT_TRUE(s_.allocator().begin_pool({Route::Kind::kStream, 0, kP1, side, {}}).is_ok());
  ASSERT_TRUE(s_.allocator().begin_pool({Route::Kind::kCapture, 0, kP2, side, {}}).is_ok());
  ASSERT_TRUE(s_.allocator().retire_stream({0, side}).is_ok());
  EXPECT_EQ(s_.allocator().end_pool(0, kP1).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(s_.allocator().end_pool(0, kP2).code(), StatusCode::kInvalidArgument);
}

TEST_F(C85, AThreadThatEndsEndsWhatItBegan) {
  std::thread([&] {
    begin(kP1);
    begin(kP2);
    EXPECT_EQ(s_.allocator().end_thread_pools(), 2u);
    EXPECT_EQ(s_.allocator().end_thread_pools(), 0u);
    EXPECT_NE(s_.malloc(512, kS0), 0u);
  }).join();
  EXPECT_EQ(blocks_of(kP1) + blocks_of(kP2), 0);
}

// Functions of the user over the simulated device, and what was asked of them.
struct Backend {
  explicit Backend(SimDriver& driver) : sim(driver) {}
  SegmentBackend make() {
    return {[this](Bytes bytes, StreamRef) { return allocate(bytes); },
            [this](Address address, Bytes bytes, StreamRef) { free(address, bytes); },
            [this] {
              EXPECT_EQ(unused_calls++, 0);
              EXPECT_TRUE(held.empty());
            }};
  }
  Address allocate(Bytes bytes) {
    EXPECT_EQ(unused_calls, 0);
    ++allocs;
    last_bytes = bytes;
    if (is_exhausted) return 0;
    const Address address = sim.allocate(0, bytes + 64).value + shift;
    held.insert(address);
    return address;
  }
  void free(Address address, Bytes bytes) {
    EXPECT_EQ(unused_calls, 0);
    EXPECT_EQ(held.erase(address), 1u);
    EXPECT_EQ(bytes, last_bytes);
    EXPECT_EQ(sim.free(0, address - shift), DriverCode::kSuccess);
    ++frees;
  }

  SimDriver& sim;
  std::set<Address> held;
  Bytes last_bytes = 0;
  Bytes shift = 0;
  bool is_exhausted = false;
  int allocs = 0, frees = 0, unused_calls = 0;
};

class C91 : public testing::Test {
 protected:
  C91() : s_(1'073'741'824), backend_(s_.sim()) {
    PoolOptions options;
    options.backend = backend_.make();
    s_.retain_pool(kP1, options);
    EXPECT_TRUE(s_.allocator().begin_pool({Route::Kind::kThread, 0, kP1, {}, {}}).is_ok());
    x_ = s_.malloc(4'194'304, kS0);
    EXPECT_NE(x_, 0u);
    EXPECT_TRUE(s_.allocator().end_pool(0, kP1).is_ok());
    EXPECT_EQ(backend_.last_bytes, 20'971'520u);
  }
  // Each segment came from the pool's own function and went back to it; none to the driver's.
  void expect_returned_once() {
    EXPECT_EQ(backend_.allocs, 1);
    EXPECT_EQ(backend_.frees, 1);
    EXPECT_EQ(s_.calls(DriverEntry::kFree), 1u);  // the backend's own
  }
  CaptureScenario s_;
  Backend backend_;
  Address x_ = 0;
};

TEST_F(C91, EmptyCacheGivesAReleasedPoolsSegmentToItsOwnFunction) {
  s_.free(x_);
  s_.release_pool(kP1);
  EXPECT_EQ(s_.empty_cache(), StatusCode::kOk);
  expect_returned_once();
  EXPECT_EQ(backend_.unused_calls, 1);
}

TEST_F(C91, APoolThatIsReleasedWithALiveBlockGoesWithTheBlock) {
  s_.release_pool(kP1);
  EXPECT_EQ(backend_.frees, 0);
  s_.free(x_);
  expect_returned_once();
  EXPECT_EQ(backend_.unused_calls, 1);
}

TEST_F(C91, MemoryShortElsewhereTakesTheSegmentThroughThePoolsFunction) {
  s_.free(x_);
  EXPECT_NE(s_.malloc(1'069'547'520, kS0), 0u);  // all but 4 MiB
  expect_returned_once();
  EXPECT_EQ(backend_.unused_calls, 0);  // the pool may ask again
}

class C93 : public C91 {};

TEST_F(C93, TheHookRunsOnceAfterTheLastFree) {
  s_.release_pool(kP1);
  EXPECT_EQ(backend_.unused_calls, 0);
  EXPECT_EQ(s_.empty_cache(), StatusCode::kOk);
  EXPECT_EQ(backend_.unused_calls, 0);
  s_.free(x_);
  EXPECT_EQ(backend_.unused_calls, 1);
  EXPECT_EQ(s_.empty_cache(), StatusCode::kOk);
  EXPECT_EQ(s_.free(x_), StatusCode::kInvalidPointer);
  EXPECT_EQ(backend_.frees, 1);
}

TEST_F(C93, AMisalignedResultIsGivenBackAndNeverCached) {
  backend_.shift = 64;
  const auto block = s_.allocator().allocate_in_pool({0, kS0}, 33'554'432, 512, kP1);
  EXPECT_EQ(block.status().code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(backend_.held.size(), 1u);  // x's segment
  EXPECT_EQ(s_.pool(kP1).stats.segments.current, 1);
  backend_.shift = 0;
  backend_.last_bytes = 20'971'520;
  s_.free(x_);
  s_.release_pool(kP1);
  EXPECT_EQ(backend_.unused_calls, 1);
}

TEST_F(C93, AFunctionThatHasNoMoreIsOutOfMemory) {
  backend_.is_exhausted = true;
  const auto block = s_.allocator().allocate_in_pool({0, kS0}, 33'554'432, 512, kP1);
  EXPECT_EQ(block.status().code(), StatusCode::kOutOfMemory);
  backend_.last_bytes = 20'971'520;
  s_.free(x_);
  s_.release_pool(kP1);
  EXPECT_EQ(backend_.frees, 1);
  EXPECT_EQ(backend_.unused_calls, 1);
}

}  // namespace
}  // namespace quarry::test
