// SPDX-License-Identifier: Apache-2.0
// Cases from the field about fragmentation, each under its number and with its figures. Not about
// speed, nor about expandable segments. Owns nothing but the scenarios it makes.
#include <array>
#include <map>
#include <random>
#include <vector>

#include "tests/support/scenario.hpp"

namespace quarry::test {
namespace {

// C01: one giant tensor, then 30 medium ones that stay, then the giant once more.
constexpr Bytes kGiant = 11'643'387'904;
constexpr Bytes kMedium = 16'515'072;

std::vector<Address> take_giant_then_medium(Scenario& s) {
  const Address giant = s.malloc(kGiant);
  EXPECT_NE(giant, 0u);
  EXPECT_EQ(s.free(giant), StatusCode::kOk);
  std::vector<Address> kept;
  for (int i = 0; i < 30; ++i)
    kept.push_back(s.malloc(kMedium));
  return kept;
}

TEST(C01a, MediumBlocksPinTheGiantSegmentAndTheGiantIsOutOfMemory) {
  Scenario s(17'179'869'184);
  const std::vector<Address> kept = take_giant_then_medium(s);
  EXPECT_EQ(s.malloc(kGiant), 0u);
  EXPECT_EQ(s.last_code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(s.reserved(), kGiant);
  EXPECT_EQ(s.allocated(), 495'452'160u);
  EXPECT_EQ(s.reserved() - s.allocated(), 11'147'935'744u);
  EXPECT_EQ(s.stats().num_alloc_retries, 1);
  EXPECT_EQ(s.stats().num_ooms, 1);
  for (const Address address : kept) {
    const auto info = s.allocator().find_block(address);
    ASSERT_TRUE(info.is_ok());
    EXPECT_EQ(info.value().address, address);
    EXPECT_EQ(info.value().bytes, kMedium);
  }
}

TEST(C01b, SplitLimitKeepsTheGiantSegmentWhole) {
  ScenarioOptions options = ScenarioOptions::with_cap(17'179'869'184);
  options.config.max_split_bytes = 209'715'200;
  Scenario s(options);
  const std::vector<Address> kept = take_giant_then_medium(s);
  for (const Address address : kept) {
    EXPECT_EQ(s.allocator().find_block(address).value().segment_bytes, 16'777'216u);
  }
  EXPECT_NE(s.malloc(kGiant), 0u);
  EXPECT_EQ(s.reserved(), 12'146'704'384u);
  EXPECT_EQ(s.stats().num_alloc_retries, 0);
}

TEST(C04, SegmentsOfAnotherStreamAreGivenBackFirst) {
  Scenario s(671'088'640);
  const StreamHandle s1 = s.make_stream();
  const StreamHandle s2 = s.make_stream();
  std::vector<Address> blocks;
  for (int i = 0; i < 8; ++i)
    blocks.push_back(s.malloc(67'108'864, s1));
  for (const Address block : blocks)
    s.free(block);
  s.complete(s1);
  EXPECT_NE(s.malloc(536'870'912, s2), 0u);
  EXPECT_EQ(s.calls(DriverEntry::kFree), 8u);
  EXPECT_EQ(s.reserved(), 536'870'912u);
  EXPECT_EQ(s.stats().num_alloc_retries, 1);
}

// Plain segments only: with expandable ones the same sequence succeeds.
TEST(C04, SegmentPinnedByItsStreamIsReportedAsStranded) {
  Scenario s(671'088'640);
  const StreamHandle s1 = s.make_stream();
  const StreamHandle s2 = s.make_stream();
  OomReport report;
  s.allocator().callbacks().add_oom_observer([&report](const OomReport& r) { report = r; });
  s.free(s.malloc(536'870'912, s1));
  EXPECT_NE(s.malloc(67'108'864, s1), 0u);
  EXPECT_EQ(s.malloc(469'762'048, s2), 0u);
  EXPECT_EQ(s.last_code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(s.reserved(), 536'870'912u);
  EXPECT_EQ(s.allocated(), 67'108'864u);
  EXPECT_EQ(report.reason, OomReport::Reason::kStranded);
  ASSERT_EQ(report.caches.size(), 1u);
  EXPECT_EQ(report.caches[0].stream, static_cast<std::uint64_t>(s1));
  EXPECT_EQ(report.caches[0].cached_bytes, 469'762'048u);
  EXPECT_EQ(report.caches[0].largest_free_block, 469'762'048u);
  EXPECT_NE(s.last_message().find(": 469762048 bytes"), std::string::npos) << s.last_message();
}

TEST(C06, LimitCanBeFilledExactly) {
  Scenario s;
  ASSERT_TRUE(s.allocator().set_limit(0, 67'108'864).is_ok());
  EXPECT_NE(s.malloc(33'554'432), 0u);
  const Address b = s.malloc(33'554'432);
  EXPECT_NE(b, 0u);
  EXPECT_EQ(s.reserved(), 67'108'864u);
  EXPECT_EQ(s.malloc(512), 0u);  // needs a segment of 2 MiB
  EXPECT_EQ(s.last_code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(s.stats().num_ooms, 1);
  s.free(b);
  EXPECT_EQ(s.malloc(33'554'432), b);
  EXPECT_EQ(s.calls(DriverEntry::kAllocate), 2u);
  EXPECT_EQ(s.stats().num_ooms, 1);
}

TEST(C06, EightBlocksOfAnEighthFillTheLimit) {
  Scenario s;
  // Blocks below 10 MiB share 20 MiB segments, so the limit of 64 MiB is 3.2 of them: only when
  // segments are as large as the limit do the eight fit, as they would in a pool that grows once.
  s.configure([](Config& config) { config.large_segment_bytes = 67'108'864; });
  ASSERT_TRUE(s.allocator().set_limit(0, 67'108'864).is_ok());
  for (int i = 0; i < 8; ++i)
    EXPECT_NE(s.malloc(8'388'608), 0u);
  EXPECT_EQ(s.reserved(), 67'108'864u);
  EXPECT_EQ(s.malloc(8'388'608), 0u);
}

TEST(C07, GrowthIsNeverMoreThanOneSegmentAhead) {
  Scenario s(85'899'345'920);
  for (Bytes i = 1; i <= 1000; ++i) {
    const Address address = s.malloc(17'825'792);
    ASSERT_NE(address, 0u);
    // The remainder is 1 MiB exactly, which is not split off.
    ASSERT_EQ(s.allocator().find_block(address).value().bytes, 18'874'368u);
    ASSERT_EQ(s.reserved(), i * 18'874'368u);
  }
  const DeviceStats stats = s.stats();
  EXPECT_EQ(stats.reserved_bytes.all.current, 18'874'368'000);
  EXPECT_EQ(stats.segment.all.current, 1000);
  EXPECT_EQ(stats.requested_bytes.all.current, 17'825'792'000);
  EXPECT_EQ(stats.reserved_bytes.all.current * 17, stats.requested_bytes.all.current * 18);
}

TEST(C08, WhollyFreeSegmentsAreGivenBackForALargerOne) {
  Scenario s(1'073'741'824);
  std::vector<Address> blocks;
  for (int i = 0; i < 10; ++i)
    blocks.push_back(s.malloc(67'108'864));
  for (const Address block : blocks)
    s.free(block);
  EXPECT_NE(s.malloc(838'860'800), 0u);
  EXPECT_EQ(s.calls(DriverEntry::kFree), 10u);
  EXPECT_EQ(s.reserved(), 838'860'800u);
  EXPECT_EQ(s.stats().num_alloc_retries, 1);
  EXPECT_EQ(s.stats().num_ooms, 0);
}

struct RoundingCase {
  std::uint32_t divisions;
  Bytes reserved_bytes;
};

Bytes reserve_150_then_200_mb(std::uint32_t divisions, bool upstream_quirks, bool* is_reused) {
  Scenario s;
  s.configure([&](Config& config) {
    config.roundup_power2_divisions.fill(divisions);
    config.upstream_quirks = upstream_quirks;
  });
  const Address x = s.malloc(157'286'400);
  s.free(x);
  const Address y = s.malloc(209'715'200);
  *is_reused = x == y;
  EXPECT_GE(s.allocator().find_block(y).value().bytes, 209'715'200u);
  return s.reserved();
}

TEST(C10, SmallerCachedBlockIsNotHandedOutWhateverTheRounding) {
  constexpr RoundingCase kCases[] = {{0, 367'001'600},  {64, 367'001'600}, {32, 369'098'752},
                                     {16, 369'098'752}, {8, 385'875'968},  {4, 402'653'184},
                                     {2, 469'762'048}};
  bool is_reused = false;
  for (const RoundingCase& c : kCases) {
    for (const bool upstream_quirks : {true, false}) {
      EXPECT_EQ(reserve_150_then_200_mb(c.divisions, upstream_quirks, &is_reused),
                c.reserved_bytes)
          << c.divisions << " divisions";
      EXPECT_FALSE(is_reused) << c.divisions << " divisions";
    }
  }
  // One division: the next power of two is large enough for both. Classic mode follows upstream,
  // where one division rounds nothing.
  EXPECT_EQ(reserve_150_then_200_mb(1, false, &is_reused), 268'435'456u);
  EXPECT_TRUE(is_reused);
  EXPECT_EQ(reserve_150_then_200_mb(1, true, &is_reused), 367'001'600u);
  EXPECT_FALSE(is_reused);
}

// Blocks in the hands of the user, by address; the second is the whole block's size.
using LiveBlocks = std::map<Address, Bytes>;

void expect_disjoint(const LiveBlocks& live, LiveBlocks::const_iterator block) {
  if (block != live.begin()) {
    const auto before = std::prev(block);
    ASSERT_LE(before->first + before->second, block->first);
  }
  if (const auto after = std::next(block); after != live.end()) {
    ASSERT_LE(block->first + block->second, after->first);
  }
}

Config make_random_rounding(std::mt19937_64& random) {
  Config config = make_config();
  for (std::uint32_t& divisions : config.roundup_power2_divisions) {
    const auto shift = random() % 8;
    divisions = shift == 7 ? 0u : 1u << shift;
  }
  config.upstream_quirks = random() % 2 == 0;
  return config;
}

Bytes make_random_size(std::mt19937_64& random) {
  // All magnitudes from bytes to 1 GiB alike.
  const Bytes magnitude = Bytes{1} << (random() % 31);
  return magnitude + random() % magnitude;
}

TEST(C10, AMillionRandomOperationsGiveDisjointBlocksAsLargeAsAsked) {
  ScenarioOptions options;
  options.sim.oracle = false;  // this test keeps its own book, of whole blocks
  options.sim.reuse_addresses = true;
  Scenario s(options);
  Allocator& allocator = s.allocator();
  std::mt19937_64 random(10);
  LiveBlocks live;
  std::vector<Address> addresses;
  Bytes allocated = 0;
  for (int i = 0; i < 1'000'000; ++i) {
    if (i % 5000 == 0) {
      allocator.configure(make_random_rounding(random));
      allocator.validate();
    }
    if (addresses.size() < 400 && random() % 2 == 0) {
      const Bytes bytes = make_random_size(random);
      const auto address = allocator.allocate({0, kS0}, bytes);
      if (!address.is_ok()) {  // the device is full
        ASSERT_EQ(address.code(), StatusCode::kOutOfMemory);
        continue;
      }
      const Bytes block_bytes = s.allocated() - allocated;
      allocated += block_bytes;
      ASSERT_GE(block_bytes, bytes);
      const auto [block, is_new] = live.emplace(address.value(), block_bytes);
      ASSERT_TRUE(is_new);
      expect_disjoint(live, block);
      addresses.push_back(address.value());
    } else if (!addresses.empty()) {
      std::swap(addresses[random() % addresses.size()], addresses.back());
      const auto block = live.find(addresses.back());
      ASSERT_TRUE(allocator.free(block->first).is_ok());
      allocated -= block->second;
      live.erase(block);
      addresses.pop_back();
    }
  }
}

}  // namespace
}  // namespace quarry::test
