// SPDX-License-Identifier: Apache-2.0
// What expandable segments hold of the device: never more than the limits allow, nothing that is
// idle after the cache was emptied, and enough for any alignment.
#include <algorithm>
#include <random>
#include <vector>

#include "tests/support/scenario.hpp"

namespace quarry::test {
namespace {

// --- giving back ---

TEST(ExtentReleaseTest, AnEmptiedCacheHoldsTheLiveBlocksExtentsAndNoOther) {
  Scenario s(ScenarioOptions::with_expandable());
  std::vector<Address> blocks, live;
  for (int i = 0; i < 64; ++i)
    blocks.push_back(s.malloc(2_MiB));
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (i % 8 == 3) {
      live.push_back(blocks[i]);
    } else {
      s.free(blocks[i]);
    }
  }
  EXPECT_EQ(s.empty_cache(), StatusCode::kOk);
  EXPECT_EQ(s.reserved(), live.size() * 2_MiB);
  EXPECT_EQ(s.stats().extents_released, 56);
  EXPECT_EQ(s.sim().get_holdings(0).extents, live.size());
  for (const Address block : live)
    s.free(block);  // used once more: the oracle looks
  EXPECT_EQ(s.empty_cache(), StatusCode::kOk);
  EXPECT_EQ(s.sim().get_holdings(0).extents, 0u);
  EXPECT_EQ(s.reserved(), 0u);
}

TEST(ExtentReleaseTest, AnExtentThatALiveBlockTouchesStays) {
  Scenario s(ScenarioOptions::with_expandable());
  const Address a = s.malloc(3_MiB), b = s.malloc(3_MiB), c = s.malloc(2_MiB);
  s.free(a);
  s.free(c);
  EXPECT_EQ(s.empty_cache(), StatusCode::kOk);
  EXPECT_EQ(s.reserved(), 4_MiB) << "of the first only its first page is whole";
  EXPECT_EQ(s.free(b), StatusCode::kOk);
  EXPECT_EQ(s.malloc(8_MiB), a) << "the holes are filled again";
}

TEST(ExtentReleaseTest, SmallBlocksHaveARangeOfTheirOwnThatGoesBackToo) {
  Scenario s(ScenarioOptions::with_expandable());
  std::vector<Address> blocks;
  for (int i = 0; i < 4096; ++i)
    blocks.push_back(s.malloc(4096));
  EXPECT_EQ(s.reserved(), 16_MiB);
  EXPECT_EQ(s.stats().segment.family[0].current, 1);
  EXPECT_EQ(s.stats().segment.family[1].current, 0);
  std::shuffle(blocks.begin(), blocks.end(), std::mt19937(2));
  for (const Address block : blocks)
    s.free(block);
  EXPECT_EQ(s.empty_cache(), StatusCode::kOk);
  EXPECT_EQ(s.reserved(), 0u);
}

TEST(ExtentReleaseTest, ReservedCountsAnExtentOnceThoughItIsMappedTwice) {
  Scenario s(ScenarioOptions::with_expandable());
  s.configure([](Config& config) { config.reserve_slack = 0; });
  std::vector<Address> blocks;
  for (int i = 0; i < 16; ++i)
    blocks.push_back(s.malloc(4_MiB));
  s.busy(kS0);
  for (std::size_t i = 0; i < blocks.size(); i += 2)
    s.free(blocks[i]);
  EXPECT_NE(s.malloc(32_MiB), 0u);
  const auto held = s.sim().get_holdings(0);
  EXPECT_GT(held.mappings, held.extents);
  EXPECT_EQ(s.reserved(), held.extents * 2_MiB);
  const DeviceStats stats = s.stats();
  EXPECT_EQ(stats.cached_bytes, 0);
  EXPECT_EQ(stats.extents_created - stats.extents_released,
            static_cast<std::int64_t>(held.extents));
  s.complete(kS0);
}

// --- limits ---

struct LimitCase {
  const char* name;
  void (*apply)(Scenario&);
};
constexpr Bytes kLimit = 256_MiB;
constexpr LimitCase kLimits[] = {
    {"limit", [](Scenario& s) { EXPECT_TRUE(s.allocator().set_limit(0, kLimit).is_ok()); }},
    {"fraction",
     [](Scenario& s) { EXPECT_TRUE(s.allocator().set_memory_fraction(0, 0.25).is_ok()); }},
    {"device", [](Scenario& s) { s.sim().set_physical_bytes(0, kLimit); }},
};

// Blocks of all sizes on three streams, two of which are slow.
TEST(ExtentLimitsTest, NoLimitIsEverPassed) {
  for (const LimitCase& limit : kLimits) {
    SCOPED_TRACE(limit.name);
    Scenario s(ScenarioOptions::with_expandable(1_GiB));
    limit.apply(s);
    std::mt19937 random(5);
    const StreamHandle streams[] = {kS0, s.make_stream(), s.make_stream()};
    std::vector<Address> live;
    int served = 0, refused = 0;
    for (int i = 0; i < 3000; ++i) {
      if (random() % 16 == 0) {
        static_cast<void>(
            s.sim().submit_work({0, streams[random() % 3]}, sim::WorkTime::lasting_us(500)));
        s.sim().advance_by_us(random() % 300);
      }
      if (live.empty() || random() % 2 == 0) {
        const Bytes bytes = 1 + random() % (random() % 4 == 0 ? 96_MiB : 6_MiB);
        const Address block = s.malloc(bytes, streams[random() % 3]);
        ++(block != 0 ? served : refused);
        if (block != 0) live.push_back(block);
      } else {
        std::swap(live[random() % live.size()], live.back());
        s.free(live.back());
        live.pop_back();
      }
      ASSERT_LE(s.reserved(), kLimit);
      // Beside it the page of what the wait for the device frees.
      ASSERT_LE(s.sim().get_holdings(0).physical_bytes, kLimit + 2_MiB);
      if (i % 64 == 0) s.allocator().validate();
    }
    EXPECT_GT(served, 1000);
    EXPECT_GT(refused, 0);
    EXPECT_GT(s.stats().extents_moved, 0);
  }
}

TEST(ExtentLimitsTest, ALimitIsFilledToTheLastPage) {
  Scenario s(ScenarioOptions::with_expandable());
  ASSERT_TRUE(s.allocator().set_limit(0, 34_MiB).is_ok());
  std::vector<Address> blocks;
  while (const Address block = s.malloc(2_MiB))
    blocks.push_back(block);
  EXPECT_EQ(blocks.size(), 17u);
  EXPECT_EQ(s.reserved(), 34_MiB);
}

// Address space is not for ever, and a plan for it would be long.
TEST(ExtentLimitsTest, ARequestLargerThanTheDeviceReservesNoAddresses) {
  Scenario s(ScenarioOptions::with_expandable(1_GiB));
  for (const Bytes bytes : {1_GiB + 2_MiB, 1024_GiB, Bytes{1} << 59}) {
    EXPECT_EQ(s.malloc(bytes), 0u);
    EXPECT_EQ(s.last_code(), StatusCode::kOutOfMemory);
  }
  EXPECT_EQ(s.calls(DriverEntry::kReserveAddresses), 0u);
  EXPECT_EQ(s.calls(DriverEntry::kCreateExtent), 0u);
}

// throw_on_cudamalloc_oom refuses what would grow above the limit; a move grows nothing.
TEST(ExtentLimitsTest, ARequestThatMovesServeIsNotRefusedAtTheLimit) {
  Scenario s(ScenarioOptions::with_expandable());
  s.configure([](Config& config) { config.throw_on_cudamalloc_oom = true; });
  ASSERT_TRUE(s.allocator().set_limit(0, 64_MiB).is_ok());
  std::vector<Address> blocks;
  for (int i = 0; i < 16; ++i)
    blocks.push_back(s.malloc(4_MiB));
  for (std::size_t i = 0; i < blocks.size(); i += 2)
    s.free(blocks[i]);
  EXPECT_NE(s.malloc(32_MiB), 0u) << s.last_message();
  EXPECT_EQ(s.malloc(4_MiB), 0u);
  EXPECT_EQ(s.stats().num_oom_rejections, 1);
  EXPECT_EQ(s.stats().num_alloc_retries, 0);
  EXPECT_EQ(s.reserved(), 64_MiB);
}

// --- alignments ---

TEST(ExtentAlignmentTest, AnyAlignmentIsServedAlsoFromMovedExtents) {
  for (const Bytes alignment : {Bytes{512}, 64_KiB, 2_MiB, 64_MiB, 1_GiB}) {
    SCOPED_TRACE(alignment);
    Scenario s(ScenarioOptions::with_expandable(16_GiB));
    for (int round = 0; round < 3; ++round) {
      std::vector<Address> blocks;
      for (const Bytes bytes : {Bytes{512}, 1_MiB, 3_MiB, 40_MiB}) {
        blocks.push_back(s.malloc(bytes, kS0, alignment));
        ASSERT_NE(blocks.back(), 0u) << s.last_message();
        EXPECT_TRUE(is_aligned(blocks.back(), alignment));
      }
      s.allocator().validate();
      for (const Address block : blocks)
        s.free(block);
    }
    EXPECT_EQ(s.empty_cache(), StatusCode::kOk);
    EXPECT_EQ(s.reserved(), 0u);
  }
}

}  // namespace
}  // namespace quarry::test
