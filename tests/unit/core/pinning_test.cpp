// SPDX-License-Identifier: Apache-2.0
// What is pinned keeps its memory at its addresses, and nothing else does. The simulated device
// knows each range as registered: memory that goes from under it is a hazard.
#include <string>
#include <tuple>
#include <vector>

#include "core/thread_state.hpp"
#include "tests/support/capture_scenario.hpp"

namespace quarry::test {
namespace {

// With plain or expandable segments, with and without magazines.
class PinningTest : public testing::TestWithParam<std::tuple<bool, bool>> {
 protected:
  static ScenarioOptions make_options() {
    ScenarioOptions options;
    std::tie(options.config.expandable_segments, options.config.thread_cache) = GetParam();
    options.config.reserve_slack = 0;
    return options;
  }
  static bool is_expandable() { return std::get<0>(GetParam()); }
  StatusCode pin(Address address, Bytes bytes) {
    const StatusCode code = s_.allocator().pin(address, bytes).code();
    if (code == StatusCode::kOk) registered_ = s_.sim().register_memory({address, bytes});
    return code;
  }
  // Of what was pinned last.
  StatusCode unpin(Address address, Bytes bytes) {
    s_.sim().deregister_memory(registered_);
    return s_.allocator().unpin(address, bytes).code();
  }
  Bytes pinned() { return static_cast<Bytes>(s_.stats().pinned_bytes); }

  Scenario s_{make_options()};
  sim::RegistrationId registered_{};
};

TEST_P(PinningTest, WhatIsFreedWhilePinnedGoesBackOnlyWhenUnpinned) {
  const Address kept = s_.malloc(32_MiB);
  const Address other = s_.malloc(64_MiB);
  EXPECT_EQ(pin(kept, 32_MiB), StatusCode::kOk);
  EXPECT_EQ(pinned(), 32_MiB);
  s_.free(kept);
  s_.free(other);
  EXPECT_EQ(s_.empty_cache(), StatusCode::kOk);
  EXPECT_EQ(s_.reserved(), 32_MiB);
  EXPECT_EQ(unpin(kept, 32_MiB), StatusCode::kOk);
  EXPECT_EQ(pinned(), 0u);
  EXPECT_EQ(s_.reserved(), 32_MiB);
  EXPECT_EQ(s_.empty_cache(), StatusCode::kOk);
  EXPECT_EQ(s_.reserved(), 0u);
}

TEST_P(PinningTest, PinsOfOneRangeAddUpAndThoseOfOthersAreApart) {
  const Address block = s_.malloc(32_MiB);
  EXPECT_EQ(pin(block, 32_MiB), StatusCode::kOk);
  EXPECT_EQ(s_.allocator().pin(block, 32_MiB).code(), StatusCode::kOk);
  EXPECT_EQ(s_.allocator().pin(block, 4_MiB).code(), StatusCode::kOk);
  EXPECT_EQ(pinned(), 32_MiB) << "each byte counts once";
  s_.free(block);
  EXPECT_EQ(s_.allocator().unpin(block, 4_MiB).code(), StatusCode::kOk);
  EXPECT_EQ(s_.allocator().unpin(block, 4_MiB).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(s_.allocator().unpin(block, 32_MiB).code(), StatusCode::kOk);
  EXPECT_EQ(s_.empty_cache(), StatusCode::kOk);
  EXPECT_EQ(s_.reserved(), 32_MiB);
  EXPECT_EQ(unpin(block, 32_MiB), StatusCode::kOk);
  EXPECT_EQ(s_.empty_cache(), StatusCode::kOk);
  EXPECT_EQ(s_.reserved(), 0u);
}

// Registered is registered, whoever has the block.
TEST_P(PinningTest, PinnedMemoryServesTheNextRequestWhereItIs) {
  const Address block = s_.malloc(32_MiB);
  EXPECT_EQ(pin(block, 32_MiB), StatusCode::kOk);
  s_.free(block);
  EXPECT_EQ(s_.malloc(32_MiB), block);
  EXPECT_EQ(unpin(block, 32_MiB), StatusCode::kOk);
}

TEST_P(PinningTest, OnlyARangeInsideOneHeldBlockIsPinned) {
  const Address block = s_.malloc(4_MiB);
  const Address behind = s_.malloc(4_MiB);
  EXPECT_EQ(pin(block + 4096, 4_MiB), StatusCode::kInvalidPointer);
  EXPECT_EQ(pin(block, kUnlimited), StatusCode::kInvalidPointer);
  EXPECT_EQ(pin(4096, 512), StatusCode::kInvalidPointer);
  EXPECT_EQ(pin(block, 0), StatusCode::kInvalidArgument);
  s_.free(behind);
  EXPECT_EQ(pin(behind, 4096), StatusCode::kInvalidPointer);
  EXPECT_EQ(pinned(), 0u);
  EXPECT_EQ(pin(block + 4096, 512), StatusCode::kOk);
  EXPECT_GE(pinned(), 2_MiB);
  EXPECT_EQ(s_.allocator().unpin(block, 512).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(unpin(block + 4096, 512), StatusCode::kOk);
}

TEST_P(PinningTest, OutOfMemoryIsTrueWhenOnlyPinnedMemoryIsLeft) {
  EXPECT_TRUE(s_.allocator().set_limit(0, 72_MiB).is_ok());
  const Address block = s_.malloc(32_MiB);
  EXPECT_NE(s_.malloc(2_MiB), 0u) << "so that the free memory cannot grow where it is";
  EXPECT_EQ(pin(block, 32_MiB), StatusCode::kOk);
  s_.free(block);
  EXPECT_EQ(s_.malloc(48_MiB), 0u);
  EXPECT_EQ(s_.last_code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(unpin(block, 32_MiB), StatusCode::kOk);
  EXPECT_NE(s_.malloc(48_MiB), 0u);
}

TEST_P(PinningTest, AReleasedPoolKeepsPinnedMemoryUntilItIsUnpinned) {
  constexpr PoolId kPool{0, 7};
  EXPECT_TRUE(s_.allocator().retain_pool(0, kPool).is_ok());
  const Address block = s_.malloc_in_pool(32_MiB, kS0, kPool);
  EXPECT_EQ(pin(block, 32_MiB), StatusCode::kOk);
  s_.free(block);
  EXPECT_TRUE(s_.allocator().trim_pool(0, kPool).is_ok());
  EXPECT_TRUE(s_.allocator().release_pool(0, kPool).is_ok());
  EXPECT_EQ(s_.empty_cache(), StatusCode::kOk);
  EXPECT_EQ(s_.reserved(), 32_MiB);
  EXPECT_EQ(unpin(block, 32_MiB), StatusCode::kOk);
  EXPECT_EQ(s_.empty_cache(), StatusCode::kOk);
  EXPECT_EQ(s_.reserved(), 0u);
  EXPECT_TRUE(s_.allocator().get_pool_reports(0).value().empty());
}

TEST_P(PinningTest, ItIsCalledFromDriverCallbacksToo) {
  const Address block = s_.malloc(32_MiB);
  s_.sim().set_callback_thread(true);
  {
    DriverCallbackScope scope;
    EXPECT_EQ(s_.allocator().pin(block, 32_MiB).code(), StatusCode::kOk);
    EXPECT_EQ(s_.allocator().unpin(block, 32_MiB).code(), StatusCode::kOk);
  }
  s_.sim().set_callback_thread(false);
}

INSTANTIATE_TEST_SUITE_P(Modes, PinningTest, testing::Combine(testing::Bool(), testing::Bool()),
                         [](const auto& tested) {
                           return std::string(std::get<0>(tested.param) ? "Expandable" : "Plain") +
                                  (std::get<1>(tested.param) ? "Magazines" : "");
                         });

TEST(PinnedExtentTest, IdleMemoryMovesAroundIt) {
  ScenarioOptions options = ScenarioOptions::with_expandable();
  options.config.reserve_slack = 0;
  Scenario s(options);
  std::vector<Address> blocks;
  for (int i = 0; i < 16; ++i)
    blocks.push_back(s.malloc(2_MiB));
  EXPECT_TRUE(s.allocator().pin(blocks[4], 2_MiB).is_ok());
  const auto registered = s.sim().register_memory({blocks[4], 2_MiB});
  for (std::size_t i = 0; i < blocks.size(); i += 2)
    s.free(blocks[i]);
  EXPECT_NE(s.malloc(14_MiB), 0u);
  EXPECT_EQ(s.stats().extents_moved, 7);
  EXPECT_EQ(s.reserved(), 32_MiB);
  // All that is left to move is pinned.
  EXPECT_NE(s.malloc(4_MiB), 0u);
  EXPECT_EQ(s.stats().extents_moved, 7);
  s.sim().deregister_memory(registered);
  EXPECT_TRUE(s.allocator().unpin(blocks[4], 2_MiB).is_ok());
}

TEST(PinnedExtentTest, APinOfAPartKeepsTheWholeExtentsThatItTouches) {
  Scenario s(ScenarioOptions::with_expandable());
  const Address block = s.malloc(16_MiB);
  EXPECT_TRUE(s.allocator().pin(block + 3_MiB, 2_MiB).is_ok());
  const Bytes pinned = static_cast<Bytes>(s.stats().pinned_bytes);
  s.free(block);
  EXPECT_EQ(s.empty_cache(), StatusCode::kOk);
  EXPECT_EQ(s.reserved(), pinned);
  EXPECT_GE(pinned, 4_MiB);
  EXPECT_TRUE(s.allocator().unpin(block + 3_MiB, 2_MiB).is_ok());
}

TEST(PinnedSegmentTest, GarbageCollectionAndASplitLimitPassItOver) {
  ScenarioOptions options;
  options.config.thread_cache = false;
  options.config.garbage_collection_threshold = 0.1;
  options.config.upstream_quirks = false;
  options.config.max_split_bytes = 20_MiB;
  Scenario s(options);
  EXPECT_TRUE(s.allocator().set_limit(0, 128_MiB).is_ok());
  const Address block = s.malloc(64_MiB);
  EXPECT_TRUE(s.allocator().pin(block, 64_MiB).is_ok());
  s.free(block);
  EXPECT_NE(s.malloc(30_MiB), 0u);
  EXPECT_EQ(s.reserved(), 94_MiB);
  EXPECT_EQ(s.malloc(40_MiB), 0u) << "more than 20 MiB smaller, and no room beside";
  EXPECT_EQ(s.reserved(), 94_MiB);
  EXPECT_TRUE(s.allocator().unpin(block, 64_MiB).is_ok());
  EXPECT_NE(s.malloc(40_MiB), 0u);
}

// Segments of a user's own functions go back as soon as nothing keeps them.
TEST(PinnedSegmentTest, ABackendHearsOfItWhenItIsUnpinned) {
  Scenario s;
  constexpr PoolId kPool{0, 9};
  int freed = 0;
  PoolOptions pool;
  pool.backend.allocate = [](Bytes, StreamRef) { return Address{1} << 46; };
  pool.backend.free = [&freed](Address, Bytes, StreamRef) { ++freed; };
  EXPECT_TRUE(s.allocator().retain_pool(0, kPool, pool).is_ok());
  const auto block = s.allocator().allocate_in_pool({0, kS0}, 32_MiB, 512, kPool);
  ASSERT_TRUE(block.is_ok());
  EXPECT_TRUE(s.allocator().pin(block.value(), 32_MiB).is_ok());
  EXPECT_TRUE(s.allocator().release_pool(0, kPool).is_ok());
  EXPECT_TRUE(s.allocator().free(block.value()).is_ok());
  EXPECT_EQ(freed, 0);
  EXPECT_TRUE(s.allocator().unpin(block.value(), 32_MiB).is_ok());
  EXPECT_EQ(freed, 1);
}

}  // namespace
}  // namespace quarry::test
