// SPDX-License-Identifier: Apache-2.0
// Expandable segments and private pools: what a capture was given stays where it is, which pools
// keep plain segments, and what happens when the mode is changed while there are blocks of both
// kinds.
#include <algorithm>
#include <vector>

#include "tests/support/capture_scenario.hpp"

namespace quarry::test {
namespace {

constexpr PoolId kPool{0, 1};

class ExtentPoolsTest : public testing::Test {
 protected:
  explicit ExtentPoolsTest(Bytes cap = 1_GiB) : s_(ScenarioOptions::with_expandable(cap)) {
    s_.configure([](Config& config) { config.reserve_slack = 0; });
    side_ = s_.make_stream();
  }
  bool is_expandable(Address address) {
    return s_.allocator().find_block(address).value().is_expandable;
  }
  void set_expandable(bool is_expandable) {
    s_.configure([=](Config& config) { config.expandable_segments = is_expandable; });
  }
  std::int64_t moved() { return s_.stats().extents_moved; }

  CaptureScenario s_;
  StreamHandle side_{};
};

// --- graphs ---

// 512 MiB, freed within the capture: idle for the allocator, and written by each launch.
class CapturedExtentsTest : public ExtentPoolsTest {
 protected:
  CapturedExtentsTest() {
    s_.retain_pool(kPool);
    s_.begin_capture(side_, kPool);
    captured_ = s_.malloc(512_MiB, side_);
    s_.free(captured_);
    graph_ = s_.end_capture(side_, kPool);
    EXPECT_NE(graph_, sim::GraphId::kNone);
  }
  Address captured_ = 0;
  sim::GraphId graph_{};
};

TEST_F(CapturedExtentsTest, MemoryOfACaptureNeverMovesWhileItsPoolIsHeld) {
  EXPECT_NE(s_.malloc(510_MiB), 0u) << "the rest, but for what the wait for the device frees";
  EXPECT_EQ(s_.malloc(4_MiB), 0u);
  EXPECT_EQ(s_.last_code(), StatusCode::kOutOfMemory);
  EXPECT_TRUE(s_.allocator().trim_pool(0, kPool).is_ok());
  EXPECT_EQ(s_.empty_cache(), StatusCode::kOk);
  EXPECT_EQ(moved(), 0);
  EXPECT_EQ(s_.stats().extents_released, 0);
  s_.launch(graph_, side_);  // the oracle knows what it uses
  s_.complete(side_);
}

TEST_F(CapturedExtentsTest, ALaterCaptureOfThePoolHasItAgain) {
  s_.begin_capture(side_, kPool);
  EXPECT_EQ(s_.malloc(512_MiB, side_), captured_);
  EXPECT_NE(s_.end_capture(side_, kPool), sim::GraphId::kNone);
  EXPECT_EQ(s_.reserved(), 512_MiB);
}

TEST_F(CapturedExtentsTest, AReleasedPoolsMemoryServesAll) {
  s_.launch(graph_, side_);
  ASSERT_EQ(s_.sim().destroy_graph(graph_), DriverCode::kSuccess);
  s_.release_pool(kPool);
  EXPECT_NE(s_.malloc(1_GiB - 2_MiB), 0u);
  EXPECT_TRUE(s_.is_idle(side_)) << "the launch was waited for";
  EXPECT_LE(s_.reserved(), 1_GiB);
}

// During a capture no stream may be made to wait, and no event of it be asked.
TEST_F(ExtentPoolsTest, ACaptureGetsIdleExtentsAndNoWaits) {
  s_.free(s_.malloc(512_MiB, side_));
  const StreamHandle busy = s_.make_stream();
  const Address block = s_.malloc(256_MiB, busy);
  s_.busy(busy);
  s_.free(block);
  s_.retain_pool(kPool);
  s_.begin_capture(side_, kPool);
  EXPECT_NE(s_.malloc(512_MiB, side_), 0u);
  EXPECT_NE(s_.end_capture(side_, kPool), sim::GraphId::kNone) << "it is not lost";
  EXPECT_EQ(s_.stats().stream_waits, 0);
  EXPECT_FALSE(s_.is_idle(busy));
  s_.complete(busy);
}

// --- pools without captures ---

TEST_F(ExtentPoolsTest, IdleExtentsOfAHeldPoolMoveToOtherPools) {
  s_.retain_pool(kPool);
  s_.free(s_.malloc_in_pool(64_MiB, side_, kPool));
  EXPECT_NE(s_.malloc(64_MiB, side_), 0u);
  EXPECT_GT(moved(), 0);
  EXPECT_EQ(s_.reserved(), 64_MiB);
  EXPECT_EQ(s_.pool(kPool).stats.reserved_bytes.current, 0);
}

TEST_F(ExtentPoolsTest, ExtentsOfAPoolThatIsNotRecycledStay) {
  PoolOptions options;
  options.no_recycle = true;
  s_.retain_pool(kPool, options);
  const Address block = s_.malloc_in_pool(64_MiB, side_, kPool);
  s_.free(block);
  EXPECT_NE(s_.malloc(64_MiB, side_), 0u);
  EXPECT_EQ(moved(), 0);
  EXPECT_EQ(s_.reserved(), 128_MiB);
  EXPECT_EQ(s_.malloc_in_pool(64_MiB, side_, kPool), block);
}

TEST_F(ExtentPoolsTest, ThePoolsLimitIsNeverPassed) {
  PoolOptions options;
  options.limit_bytes = 64_MiB;
  s_.retain_pool(kPool, options);
  s_.free(s_.malloc(128_MiB, side_));  // idle extents that may move there
  std::vector<Address> blocks;
  while (const Address block = s_.malloc_in_pool(6_MiB, side_, kPool)) {
    blocks.push_back(block);
    ASSERT_LE(s_.pool(kPool).stats.reserved_bytes.peak, static_cast<std::int64_t>(64_MiB));
  }
  EXPECT_EQ(s_.last_code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(blocks.size(), 10u);
  for (std::size_t i = 0; i < blocks.size(); i += 2)
    s_.free(blocks[i]);
  EXPECT_NE(s_.malloc_in_pool(30_MiB, side_, kPool), 0u) << "by moves within the pool";
  EXPECT_LE(s_.pool(kPool).stats.reserved_bytes.peak, static_cast<std::int64_t>(64_MiB));
}

// Pieces of two streams side by side are joined for the borrower.
TEST_F(ExtentPoolsTest, APoolThatLendsServesTheDefaultPoolFromItsAddresses) {
  PoolOptions options;
  options.use_on_oom = true;
  options.no_recycle = true;
  s_.retain_pool(kPool, options);
  const StreamHandle other = s_.make_stream();
  const Address one = s_.malloc_in_pool(256_MiB, side_, kPool);
  const Address two = s_.malloc_in_pool(256_MiB, other, kPool);
  s_.free(one);
  s_.free(two);
  EXPECT_NE(s_.malloc(510_MiB, side_), 0u);
  EXPECT_EQ(s_.malloc(512_MiB, side_), std::min(one, two));
  EXPECT_EQ(moved(), 0);
  EXPECT_LE(s_.reserved(), 1_GiB);
}

// --- plain all the same ---

TEST_F(ExtentPoolsTest, PoolsWithFunctionsOrWithoutSplitsStayPlain) {
  PoolOptions whole;
  whole.no_split = true;
  s_.retain_pool(kPool, whole);
  EXPECT_FALSE(is_expandable(s_.malloc_in_pool(64_MiB, side_, kPool)));
  PoolChange split;
  split.no_split = false;
  ASSERT_TRUE(s_.allocator().change_pool(0, kPool, split).is_ok());
  EXPECT_TRUE(is_expandable(s_.malloc_in_pool(64_MiB, side_, kPool)));

  constexpr PoolId kOwn{0, 2};
  PoolOptions own;
  own.backend.allocate = [this](Bytes bytes, StreamRef) {
    return s_.sim().allocate(0, bytes).value;
  };
  own.backend.free = [this](Address address, Bytes, StreamRef) {
    EXPECT_EQ(s_.sim().free(0, address), DriverCode::kSuccess);
  };
  s_.retain_pool(kOwn, own);
  EXPECT_FALSE(is_expandable(s_.malloc_in_pool(64_MiB, side_, kOwn)));
  s_.free_all();
}

TEST(ExtentDeviceTest, ADeviceWithoutVirtualMemoryHasPlainSegments) {
  for (const Bytes granularity : {Bytes{0}, 4_MiB}) {
    ScenarioOptions options = ScenarioOptions::with_expandable();
    options.sim.extent_granularity = granularity;
    Scenario s(options);
    const Address block = s.malloc(64_MiB);
    ASSERT_NE(block, 0u);
    EXPECT_FALSE(s.allocator().find_block(block).value().is_expandable);
  }
}

TEST_F(ExtentPoolsTest, ALayoutWithExpandableSegmentsIsNotSaved) {
  s_.retain_pool(kPool);
  set_expandable(false);
  const Address plain = s_.malloc_in_pool(64_MiB, side_, kPool);
  const auto saved = s_.allocator().save_pool(0, kPool);
  ASSERT_TRUE(saved.is_ok());
  set_expandable(true);
  const Address later = s_.malloc_in_pool(64_MiB, side_, kPool);
  EXPECT_TRUE(is_expandable(later));
  const auto refused = s_.allocator().save_pool(0, kPool);
  EXPECT_EQ(refused.code(), StatusCode::kNotSupported);
  EXPECT_NE(refused.status().message().find("segments:plain"), std::string::npos);
  // The earlier layout can be had again; what is not in it is stale.
  const auto restored = s_.allocator().restore_pool(saved.value());
  ASSERT_TRUE(restored.is_ok()) << restored.status().message();
  EXPECT_EQ(restored.value().stale, std::vector<Address>{later});
  EXPECT_FALSE(is_expandable(plain));
  s_.follow(restored.value(), side_, 64_MiB);
  EXPECT_EQ(s_.free(later), StatusCode::kOk) << "the free that was to come";
}

// --- the mode changes ---

TEST_F(ExtentPoolsTest, BlocksOfBothKindsLiveOnWhenTheModeChanges) {
  set_expandable(false);
  const Address plain = s_.malloc(64_MiB, side_);
  const Address plain_freed = s_.malloc(64_MiB, side_);
  set_expandable(true);
  const Address expandable = s_.malloc(64_MiB, side_);
  const Address expandable_freed = s_.malloc(64_MiB, side_);
  EXPECT_FALSE(is_expandable(plain));
  EXPECT_TRUE(is_expandable(expandable));
  s_.free(plain_freed);
  s_.free(expandable_freed);
  // Either kind of free memory serves in either mode.
  for (const bool is_on : {false, true}) {
    set_expandable(is_on);
    const Address one = s_.malloc(64_MiB, side_), two = s_.malloc(64_MiB, side_);
    EXPECT_EQ(std::min(one, two), std::min(plain_freed, expandable_freed));
    EXPECT_EQ(std::max(one, two), std::max(plain_freed, expandable_freed));
    s_.free(one);
    s_.free(two);
  }
  EXPECT_EQ(s_.empty_cache(), StatusCode::kOk);
  EXPECT_EQ(s_.reserved(), 128_MiB);
  set_expandable(false);
  s_.free_all();
  EXPECT_EQ(s_.empty_cache(), StatusCode::kOk);
  EXPECT_EQ(s_.reserved(), 0u);
  EXPECT_EQ(s_.sim().get_holdings(0).extents, 0u);
}

TEST_F(ExtentPoolsTest, WhatIsIdleOfOneKindMakesRoomForTheOther) {
  Bytes size = 600_MiB;
  for (const bool is_on : {true, false, true}) {
    set_expandable(is_on);
    const Address block = s_.malloc(size, side_);
    ASSERT_NE(block, 0u);
    EXPECT_EQ(is_expandable(block), is_on);
    EXPECT_EQ(s_.reserved(), size);
    size += 100_MiB;
    s_.busy(side_);
    s_.free(block);
  }
  s_.complete(side_);
}

}  // namespace
}  // namespace quarry::test
