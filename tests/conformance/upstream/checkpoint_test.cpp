// SPDX-License-Identifier: Apache-2.0
// Upstream's TestBlockStateAbsorption, and the case from the field about it (C36): a pool goes
// back to an earlier layout, while blocks that came later are still in somebody's hands.
#include <algorithm>
#include <thread>

#include "tests/support/capture_scenario.hpp"

namespace quarry::test {
namespace {

constexpr PoolId kP{0, 1};
constexpr Bytes kSmallBlock = 512;
constexpr Bytes kLargeBlock = 4'194'304;

class CheckpointTest : public testing::Test {
 protected:
  CheckpointTest() { s_.retain_pool(kP); }
  Address allocate(Bytes bytes) { return s_.malloc_in_pool(bytes, kS0, kP); }
  PoolCheckpoint save() { return s_.allocator().save_pool(0, kP).value(); }
  RestoredPool restore(const PoolCheckpoint& saved) {
    auto restored = s_.allocator().restore_pool(saved);
    EXPECT_TRUE(restored.is_ok()) << restored.status().message();
    if (!restored.is_ok()) return {};
    s_.follow(restored.value(), kS0, kLargeBlock);
    s_.allocator().validate();
    return std::move(restored).value();
  }
  // Address, size and state of every block.
  using Layout = std::vector<std::tuple<Address, Bytes, bool>>;
  static Layout layout_of(const PoolCheckpoint& saved) {
    Layout layout;
    for (const auto& segment : saved.segments) {
      for (const auto& block : segment.blocks)
        layout.emplace_back(block.address, block.size, block.is_allocated);
    }
    return layout;
  }
  void expect_empty_in_the_end() {
    s_.free_all();
    s_.release_pool(kP);
    expect_nothing_left();
  }
  void expect_nothing_left() {
    EXPECT_EQ(s_.empty_cache(), StatusCode::kOk);
    EXPECT_EQ(s_.reserved(), 0u);
    EXPECT_EQ(s_.active(), 0u);
  }
  CaptureScenario s_;
};

class CheckpointOfTest : public CheckpointTest {
 protected:
  void check(Bytes bytes, std::vector<int> freed_before_save) {
    std::vector<Address> blocks;
    for (int i = 0; i < 9; ++i)
      blocks.push_back(allocate(bytes));
    for (const int i : freed_before_save)
      s_.free(blocks[static_cast<std::size_t>(i)]);
    const PoolCheckpoint saved = save();
    const std::size_t live = blocks.size() - freed_before_save.size();
    for (int i = 0; i < 5; ++i)
      allocate(bytes);
    const RestoredPool restored = restore(saved);
    EXPECT_EQ(restored.stale.size(), 5u);
    EXPECT_EQ(restored.live.size(), live);
    // Segments that came since are free, and stay.
    PoolCheckpoint now = save();
    now.segments.resize(saved.segments.size());
    EXPECT_EQ(layout_of(now), layout_of(saved));
  }
};

TEST_F(CheckpointOfTest, SmallBlocksComeBack) {
  check(kSmallBlock, {});
}

TEST_F(CheckpointOfTest, LargeBlocksComeBack) {
  check(kLargeBlock, {});
}

TEST_F(CheckpointOfTest, AllocatedInTheMiddleOfASegment) {
  check(kSmallBlock, {0, 1, 2, 3, 5, 6, 7, 8});
}

TEST_F(CheckpointOfTest, SeveralAllocatedInTheMiddle) {
  check(kLargeBlock, {0, 2, 4, 6, 8});
}

TEST_F(CheckpointOfTest, NeighboursAllocatedInTheMiddle) {
  check(kLargeBlock, {0, 1, 4, 7, 8});
}

TEST_F(CheckpointTest, WhatWasFreedSinceIsLiveAgain) {
  const Address a = allocate(kLargeBlock);
  const Address b = allocate(kLargeBlock);
  const PoolCheckpoint saved = save();
  s_.free(a);
  const RestoredPool restored = restore(saved);
  EXPECT_TRUE(restored.stale.empty());
  EXPECT_EQ(restored.live, (std::vector{a, b}));
  s_.free(a);  // once more, rightly
  s_.free(b);
  EXPECT_EQ(s_.pool(kP).stats.allocations.current, 0);
}

TEST_F(CheckpointTest, AFreeAfterTheCheckpointIsMadeAgainAfterTheRestore) {
  allocate(kLargeBlock);
  const Address b = allocate(kLargeBlock);
  const PoolCheckpoint with_both = save();
  s_.free(b);
  const PoolCheckpoint with_one = save();
  restore(with_both);
  EXPECT_EQ(layout_of(save()), layout_of(with_both));
  s_.free(b);
  EXPECT_EQ(layout_of(save()), layout_of(with_one));
}

TEST_F(CheckpointTest, LiveCountsFollowTheBlocks) {
  const Address a = allocate(kSmallBlock);
  const Address b = allocate(kSmallBlock);
  const PoolCheckpoint saved = save();
  const auto live = [&] { return s_.pool(kP).stats.allocations.current; };
  EXPECT_EQ(live(), 2);
  s_.free(a);
  EXPECT_EQ(live(), 1);
  s_.free(b);
  EXPECT_EQ(live(), 0);
  EXPECT_EQ(restore(saved).live.size(), 2u);
  EXPECT_EQ(live(), 2);
  expect_empty_in_the_end();
}

TEST_F(CheckpointTest, LiveBlocksArePreciselyThoseOfThePool) {
  const Address a = allocate(kSmallBlock);
  const Address b = allocate(kSmallBlock);
  allocate(kLargeBlock);
  s_.malloc(kSmallBlock, kS0);  // of the default pool
  auto live = s_.allocator().get_live_blocks(0, kP).value();
  EXPECT_EQ(live.size(), 3u);
  s_.free(a);
  live = s_.allocator().get_live_blocks(0, kP).value();
  EXPECT_EQ(live.size(), 2u);
  EXPECT_NE(std::ranges::find(live, b), live.end());
  EXPECT_EQ(std::ranges::find(live, a), live.end());
}

TEST_F(CheckpointTest, ThreadsThatAllocateToThePoolAreInItsLayout) {
  allocate(kLargeBlock);
  EXPECT_EQ(s_.pool(kP).stats.segments.current, 1);
  std::thread([&] {
    for (int i = 0; i < 3; ++i)
      EXPECT_NE(s_.malloc_in_pool(20'971'520, kS0, kP), 0u);
  }).join();
  EXPECT_EQ(s_.pool(kP).stats.segments.current, 4);
  expect_empty_in_the_end();
}

TEST_F(CheckpointTest, ARestoreKeepsWhatCapturesWereGivenApart) {
  const StreamHandle side = s_.make_stream();
  s_.begin_capture(side, kP);
  const Address a = s_.malloc(kLargeBlock, side);
  const auto first = s_.end_capture(side, kP);
  const PoolCheckpoint saved = save();
  s_.begin_capture(side, kP);
  EXPECT_EQ(s_.allocator().save_pool(0, kP).status().code(), StatusCode::kOk);
  const Address b = s_.malloc(kLargeBlock, side);
  EXPECT_EQ(s_.allocator().save_pool(0, kP).status().code(), StatusCode::kBusy);
  EXPECT_EQ(s_.allocator().restore_pool(saved).status().code(), StatusCode::kBusy);
  const auto second = s_.end_capture(side, kP);
  const RestoredPool restored = restore(saved);
  EXPECT_EQ(restored.stale, std::vector{b});
  EXPECT_EQ(restored.live, std::vector{a});
  EXPECT_NE(allocate(kLargeBlock), b);  // outside of captures nobody gets it
  s_.begin_capture(side, kP);
  EXPECT_EQ(s_.malloc(kLargeBlock, side), b);
  s_.end_capture(side, kP);
  static_cast<void>(s_.sim().destroy_graph(first));
  static_cast<void>(s_.sim().destroy_graph(second));
}

TEST_F(CheckpointTest, WorkUnderWayOnAStaleBlockIsWaitedFor) {
  const StreamHandle side = s_.make_stream();
  allocate(kLargeBlock);
  const PoolCheckpoint saved = save();
  const Address b = s_.malloc_in_pool(kLargeBlock, side, kP);
  s_.busy(side);
  s_.sim().use(s_.lifetime_of(b), {0, side});
  EXPECT_FALSE(s_.is_idle(side));
  restore(saved);
  EXPECT_TRUE(s_.is_idle(side));
  allocate(16'777'216);  // may lie where b was
}

// The owner of then is gone, so that anybody may have the memory: not while it is in use.
TEST_F(CheckpointTest, WorkQueuedOnAFreeBlockThatChangesItsOwnerIsWaitedFor) {
  const StreamHandle gone = s_.make_stream();
  const StreamHandle side = s_.make_stream();
  s_.free(s_.malloc_in_pool(kLargeBlock, gone, kP));
  const PoolCheckpoint saved = save();
  ASSERT_TRUE(s_.allocator().retire_stream({0, gone}).is_ok());
  const Address a = s_.malloc_in_pool(kLargeBlock, side, kP);
  EXPECT_EQ(s_.pool(kP).stats.segments.current, 1);
  s_.busy(side);
  s_.sim().use(s_.lifetime_of(a), {0, side});
  s_.free(a);
  EXPECT_FALSE(s_.is_idle(side));
  restore(saved);
  EXPECT_TRUE(s_.is_idle(side));
  EXPECT_EQ(allocate(kLargeBlock), a);
}

// Its holder goes on using it, on streams that it recorded before.
TEST_F(CheckpointTest, ABlockThatStaysKeepsItsForeignUses) {
  const StreamHandle side = s_.make_stream();
  const Address a = allocate(kLargeBlock);
  const PoolCheckpoint saved = save();
  s_.record(a, side);
  s_.busy(side);
  EXPECT_EQ(restore(saved).kept, std::vector{a});
  EXPECT_FALSE(s_.is_idle(side));  // nobody waits for what stays
  s_.sim().use(s_.lifetime_of(a), {0, side});
  s_.free(a);
  EXPECT_NE(allocate(kLargeBlock), a);
}

TEST_F(CheckpointTest, ARestoreThatTheDeviceCannotFinishLeavesWhatStays) {
  const Address a = allocate(kLargeBlock);
  const PoolCheckpoint saved = save();
  const Address b = allocate(kLargeBlock);
  s_.sim().fail_calls_if(
      DriverEntry::kQueryEvent, [](Bytes) { return true; }, DriverCode::kIllegalAddress);
  const Status status = s_.allocator().restore_pool(saved, StaleFrees::kNone).status();
  EXPECT_EQ(status.code(), StatusCode::kDriverError);
  EXPECT_NE(status.message().find("the restore was not finished"), std::string::npos);
  EXPECT_EQ(s_.allocator().get_live_blocks(0, kP).value(), std::vector{a});
  EXPECT_TRUE(s_.allocator().free(b).is_ok());  // its holder does not know
  EXPECT_EQ(s_.allocator().forget_stale(b).code(), StatusCode::kInvalidPointer);
  s_.allocator().validate();
  s_.sim().clear_faults();
  s_.follow({{b}, {a}, {a}}, kS0, kLargeBlock);
}

TEST_F(CheckpointTest, ASegmentThatIsGoneIsAnErrorThatChangesNothing) {
  const Address a = allocate(kLargeBlock);
  const PoolCheckpoint saved = save();
  s_.free(a);
  ASSERT_TRUE(s_.allocator().trim_pool(0, kP).is_ok());
  const Address b = allocate(kLargeBlock);
  EXPECT_EQ(s_.allocator().restore_pool(saved).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(s_.pool(kP).stats.allocations.current, 1);
  EXPECT_EQ(s_.free(b), StatusCode::kOk);
}

// Addresses that come again would make the free of a stale block that of somebody else's.
TEST_F(CheckpointTest, AStaleBlockKeepsItsSegmentUntilItsHolderIsDone) {
  const PoolCheckpoint saved = save();
  const Address a = allocate(kLargeBlock);
  const Address b = allocate(kSmallBlock);
  EXPECT_EQ(restore(saved).stale.size(), 2u);
  const auto segments = [&] { return s_.pool(kP).stats.segments.current; };
  ASSERT_TRUE(s_.allocator().trim_pool(0, kP).is_ok());
  EXPECT_EQ(segments(), 2);
  EXPECT_TRUE(s_.allocator().free(a).is_ok());
  EXPECT_TRUE(s_.allocator().forget_stale(b).is_ok());
  s_.allocator().validate();
  ASSERT_TRUE(s_.allocator().trim_pool(0, kP).is_ok());
  EXPECT_EQ(segments(), 0);
  EXPECT_EQ(s_.allocator().free(a).code(), StatusCode::kInvalidPointer);
}

TEST_F(CheckpointTest, AReleasedPoolGoesWhenItsStaleBlocksAreFreed) {
  const PoolCheckpoint saved = save();
  const Address a = allocate(kLargeBlock);
  restore(saved);
  s_.release_pool(kP);
  EXPECT_EQ(s_.empty_cache(), StatusCode::kOk);
  EXPECT_NE(s_.reserved(), 0u);
  EXPECT_TRUE(s_.allocator().free(a).is_ok());
  expect_nothing_left();
}

TEST_F(CheckpointTest, StaleBlocksThatNobodyFreesKeepNothing) {
  const PoolCheckpoint saved = save();
  const Address a = allocate(kLargeBlock);
  auto restored = s_.allocator().restore_pool(saved, StaleFrees::kNone);
  ASSERT_TRUE(restored.is_ok());
  s_.follow(restored.value(), kS0, kLargeBlock);
  EXPECT_EQ(restored.value().stale, std::vector{a});
  EXPECT_EQ(s_.allocator().forget_stale(a).code(), StatusCode::kInvalidPointer);
  s_.release_pool(kP);
  EXPECT_EQ(s_.empty_cache(), StatusCode::kOk);
  expect_nothing_left();
}

TEST_F(CheckpointTest, WhatStaysInItsHoldersHandsIsToldApart) {
  const Address a = allocate(kLargeBlock);
  const Address b = allocate(kLargeBlock);
  const PoolCheckpoint saved = save();
  s_.free(a);
  const Address c = allocate(kSmallBlock);
  const RestoredPool restored = restore(saved);
  EXPECT_EQ(restored.live, (std::vector{a, b}));
  EXPECT_EQ(restored.kept, std::vector{b});
  EXPECT_EQ(restored.stale, std::vector{c});
}

TEST_F(CheckpointTest, APoolThatIsGoneIsAnErrorAlsoWhenItsNameCameAgain) {
  const PoolCheckpoint saved = save();
  s_.release_pool(kP);
  EXPECT_EQ(s_.allocator().restore_pool(saved).status().code(), StatusCode::kInvalidArgument);
  s_.retain_pool(kP);
  const Address a = allocate(kLargeBlock);
  const Status status = s_.allocator().restore_pool(saved).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("is another one, made since"), std::string::npos);
  EXPECT_EQ(s_.free(a), StatusCode::kOk);
}

TEST_F(CheckpointTest, ASegmentThatCameAgainAtItsAddressIsAnother) {
  constexpr PoolId kOwn{0, 2};
  PoolOptions options;
  options.backend.allocate = [](Bytes, StreamRef) { return Address{1} << 45; };
  options.backend.free = [](Address, Bytes, StreamRef) {};
  s_.retain_pool(kOwn, options);
  auto& allocator = s_.allocator();
  const auto take = [&] {
    return allocator.allocate_in_pool({0, kS0}, kLargeBlock, 512, kOwn).value();
  };
  const Address a = take();
  const PoolCheckpoint saved = allocator.save_pool(0, kOwn).value();
  EXPECT_TRUE(allocator.free(a).is_ok());
  ASSERT_TRUE(allocator.trim_pool(0, kOwn).is_ok());
  EXPECT_EQ(take(), a);
  const Status status = allocator.restore_pool(saved).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("was given back"), std::string::npos);
  EXPECT_TRUE(allocator.free(a).is_ok());
}

class C36 : public CheckpointTest {
 protected:
  C36() {
    a_ = allocate(kLargeBlock);
    saved_ = save();
    b_ = allocate(kLargeBlock);
    restored_ = restore(saved_);
    c_ = allocate(kLargeBlock);
  }
  Address a_ = 0, b_ = 0, c_ = 0;
  PoolCheckpoint saved_;
  RestoredPool restored_;
};

TEST_F(C36, AStaleFreeDoesNothingToWhoeverHasTheAddressNow) {
  EXPECT_EQ(restored_.stale, std::vector{b_});
  EXPECT_EQ(restored_.live, std::vector{a_});
  EXPECT_EQ(c_, b_);
  EXPECT_TRUE(s_.allocator().free(b_).is_ok());  // b's holder
  EXPECT_TRUE(s_.allocator().find_block(c_).is_ok());
  EXPECT_EQ(s_.pool(kP).stats.allocations.current, 2);
  EXPECT_EQ(s_.free(c_), StatusCode::kOk);
  EXPECT_EQ(s_.free(a_), StatusCode::kOk);
  EXPECT_EQ(s_.pool(kP).stats.allocations.current, 0);
  EXPECT_EQ(s_.free(c_), StatusCode::kDoubleFree);
  expect_empty_in_the_end();
}

TEST_F(C36, AStaleFreeBeforeTheAddressIsHandedOutAgainDoesNothing) {
  s_.free(c_);
  EXPECT_EQ(s_.pool(kP).stats.allocations.current, 2);  // taken for b's, which is as well
  EXPECT_TRUE(s_.allocator().free(b_).is_ok());
  EXPECT_EQ(s_.pool(kP).stats.allocations.current, 1);
}

TEST_F(C36, AHolderWhoWillNotFreeCanSaySo) {
  EXPECT_TRUE(s_.allocator().forget_stale(b_).is_ok());
  EXPECT_EQ(s_.allocator().forget_stale(b_).code(), StatusCode::kInvalidPointer);
  EXPECT_EQ(s_.free(c_), StatusCode::kOk);
  EXPECT_EQ(s_.pool(kP).stats.allocations.current, 1);
}

}  // namespace
}  // namespace quarry::test
