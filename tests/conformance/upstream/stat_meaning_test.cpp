// SPDX-License-Identifier: Apache-2.0
// What each figure of torch.cuda.memory_stats() counts, at each step of a block's life.
#include <gtest/gtest.h>

#include "tests/support/scenario.hpp"

namespace quarry::test {
namespace {

// The figures of one family, or of both, that a block moves through.
struct Figures {
  std::int64_t allocation = 0, allocated_bytes = 0;
  std::int64_t active = 0, active_bytes = 0;
  std::int64_t requested_bytes = 0;
  std::int64_t segment = 0, reserved_bytes = 0;
  std::int64_t inactive_split = 0, inactive_split_bytes = 0;
  friend bool operator==(const Figures&, const Figures&) = default;
};

std::ostream& operator<<(std::ostream& out, const Figures& f) {
  return out << "allocation " << f.allocation << "/" << f.allocated_bytes << " active " << f.active
             << "/" << f.active_bytes << " requested " << f.requested_bytes << " segment "
             << f.segment << "/" << f.reserved_bytes << " inactive_split " << f.inactive_split
             << "/" << f.inactive_split_bytes;
}

template <class Select>
Figures select(const DeviceStats& stats, Select select_stat) {
  const auto current = [&](const FamilyStat& stat) { return select_stat(stat).current; };
  return {current(stats.allocation),
          current(stats.allocated_bytes),
          current(stats.active),
          current(stats.active_bytes),
          current(stats.requested_bytes),
          current(stats.segment),
          current(stats.reserved_bytes),
          current(stats.inactive_split),
          current(stats.inactive_split_bytes)};
}
Figures get_all(Scenario& s) {
  return select(s.stats(), [](const FamilyStat& stat) { return stat.all; });
}
Figures get_small(Scenario& s) {
  return select(s.stats(), [](const FamilyStat& stat) { return stat.family[0]; });
}
Figures get_large(Scenario& s) {
  return select(s.stats(), [](const FamilyStat& stat) { return stat.family[1]; });
}

constexpr std::int64_t kMib = 1 << 20;

TEST(UpstreamStats, EachStepOfABlocksLifeMovesItsOwnFigures) {
  Scenario s;
  const StreamHandle side = s.make_stream();
  const Address p = s.malloc(1000);
  Figures held{1, 1024, 1, 1024, 1000, 1, 2 * kMib, 1, 2 * kMib - 1024};
  EXPECT_EQ(get_small(s), held) << "allocated";
  s.record(p, side);
  EXPECT_EQ(get_small(s), held) << "recorded";
  s.busy(side);

  s.free(p);
  Figures pending = held;
  pending.allocation = pending.allocated_bytes = 0;
  EXPECT_EQ(get_small(s), pending) << "freed, waiting: still active, and requested";
  EXPECT_EQ(s.stats().pending_bytes, 1024);

  s.complete(side);
  EXPECT_EQ(get_small(s), pending) << "done, and not looked at";
  const Address q = s.malloc(3_MiB);
  const Figures cached{0, 0, 0, 0, 0, 1, 2 * kMib, 0, 0};
  EXPECT_EQ(get_small(s), cached) << "free: whole again, so not split";
  EXPECT_EQ(get_large(s),
            (Figures{1, 3 * kMib, 1, 3 * kMib, 3 * kMib, 1, 20 * kMib, 1, 17 * kMib}));

  s.empty_cache();
  EXPECT_EQ(get_small(s), Figures{}) << "given back";
  EXPECT_EQ(get_all(s), get_large(s));
  s.free(q);
  s.empty_cache();
  EXPECT_EQ(get_all(s), Figures{});
}

TEST(UpstreamStats, AllocatedBytesAreWholeBlocksAndRequestedBytesAreNot) {
  Scenario s;
  s.malloc(13_MiB - 100);  // its 14 MiB segment is not split
  const DeviceStats stats = s.stats();
  EXPECT_EQ(stats.allocated_bytes.all.current, 14 * kMib);
  EXPECT_EQ(stats.requested_bytes.all.current, 13 * kMib - 100);
  EXPECT_EQ(stats.allocator_slack, kMib + 100);
}

TEST(UpstreamStats, PeaksAndSumsFollowEveryMove) {
  Scenario s;
  const Address p = s.malloc(2048);
  s.malloc(1024);
  s.free(p);
  s.malloc(512);
  const Stat bytes = s.stats().allocated_bytes.all;
  EXPECT_EQ(bytes.current, 1536);
  EXPECT_EQ(bytes.peak, 3072);
  EXPECT_EQ(bytes.allocated, 3584);
  EXPECT_EQ(bytes.freed, 2048);
  const Stat blocks = s.stats().allocation.family[0];
  EXPECT_EQ(blocks.current, 2);
  EXPECT_EQ(blocks.peak, 2);
  EXPECT_EQ(blocks.allocated, 3);
  EXPECT_EQ(blocks.freed, 1);
  EXPECT_EQ(s.stats().allocation.family[1].allocated, 0);
}

// A free block that is split again by the next request is one change and not two.
TEST(UpstreamStats, ASplitOfASplitBlockIsOneMove) {
  Scenario s;
  s.malloc(512);
  const Stat before = s.stats().inactive_split.all;
  s.malloc(512);
  const Stat after = s.stats().inactive_split.all;
  EXPECT_EQ(after.current, 1);
  EXPECT_EQ(after.allocated, before.allocated);
  EXPECT_EQ(after.freed, before.freed);
  EXPECT_EQ(s.stats().inactive_split_bytes.all.freed, 512);
}

TEST(UpstreamStats, ResetsStartAtThePresent) {
  Scenario s;
  s.free(s.malloc(4096));
  s.malloc(1024);
  EXPECT_TRUE(s.allocator().reset_peak_stats(0).is_ok());
  EXPECT_EQ(s.stats().allocated_bytes.all.peak, 1024);
  EXPECT_EQ(s.stats().reserved_bytes.all.peak, 2 * kMib);
  EXPECT_EQ(s.stats().allocated_bytes.all.allocated, 5120);
  EXPECT_EQ(s.stats().num_device_alloc, 1);

  EXPECT_TRUE(s.allocator().reset_accumulated_stats(0).is_ok());
  EXPECT_EQ(s.stats().allocated_bytes.all.allocated, 0);
  EXPECT_EQ(s.stats().allocated_bytes.all.freed, 0);
  EXPECT_EQ(s.stats().num_device_alloc, 0);
  EXPECT_EQ(s.stats().allocated_bytes.all.current, 1024);
  EXPECT_EQ(s.stats().allocated_bytes.all.peak, 1024);
}

TEST(UpstreamStats, DriverCallsAndRetriesAreCounted) {
  Scenario s(1_GiB);
  s.free(s.malloc(600_MiB));
  s.malloc(700_MiB);
  s.malloc(600_MiB);  // fails
  const DeviceStats stats = s.stats();
  EXPECT_EQ(stats.num_device_alloc, 2) << "those that succeeded";
  EXPECT_EQ(stats.num_device_free, 1);
  EXPECT_EQ(stats.num_alloc_retries, 2);
  EXPECT_EQ(stats.num_sync_all_streams, 2);
  EXPECT_EQ(stats.num_ooms, 1);
}

TEST(UpstreamStats, OversizeIsWhatReachesTheSplitLimit) {
  Scenario s;
  EXPECT_EQ(s.stats().max_split_size, -1);
  s.configure([](Config& config) { config.max_split_bytes = 64_MiB; });
  EXPECT_EQ(s.stats().max_split_size, 64 * kMib);
  const Address below = s.malloc(62_MiB), at = s.malloc(64_MiB), above = s.malloc(80_MiB);
  EXPECT_EQ(s.stats().oversize_allocations.current, 2);
  EXPECT_EQ(s.stats().oversize_segments.current, 2);
  s.free(at);
  s.free(below);
  EXPECT_EQ(s.stats().oversize_allocations.current, 1);
  EXPECT_EQ(s.stats().oversize_segments.current, 2);
  s.empty_cache();
  EXPECT_EQ(s.stats().oversize_segments.current, 1);
  EXPECT_EQ(s.stats().oversize_segments.peak, 2);
  EXPECT_EQ(s.stats().oversize_segments.freed, 1);
  s.free(above);
  EXPECT_EQ(s.stats().oversize_allocations.freed, 2);
}

TEST(UpstreamStats, AChangeOfTheLimitDoesNotUnbalanceOversize) {
  Scenario s;
  s.configure([](Config& config) { config.max_split_bytes = 64_MiB; });
  const Address counted = s.malloc(80_MiB);
  s.configure([](Config& config) { config.max_split_bytes = 200_MiB; });
  const Address not_counted = s.malloc(90_MiB);
  s.configure([](Config& config) { config.max_split_bytes = 64_MiB; });
  s.free(counted);
  s.free(not_counted);
  s.empty_cache();
  EXPECT_EQ(s.stats().oversize_allocations.current, 0);
  EXPECT_EQ(s.stats().oversize_segments.current, 0);
}

TEST(UpstreamStats, ExternalBytesAreWhatOthersHold) {
  Scenario s(1_GiB);
  s.malloc(100_MiB);
  EXPECT_EQ(s.stats().external_bytes, 0);
  s.sim().set_external_bytes(0, 300_MiB);
  EXPECT_EQ(s.stats().external_bytes, 300 * kMib);
}

}  // namespace
}  // namespace quarry::test
