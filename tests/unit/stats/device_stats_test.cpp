// SPDX-License-Identifier: Apache-2.0
#include "stats/device_stats.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

namespace quarry {
namespace {

std::map<std::string, std::int64_t> to_map(const DeviceStats& stats) {
  std::map<std::string, std::int64_t> map;
  for (const NamedValue& entry : flatten(stats))
    map[entry.name] = entry.value;
  return map;
}

TEST(StatTest, CountsRisesAndFallsApart) {
  Stat stat;
  stat.add(100);
  stat.add(-30);
  stat.add(0);
  stat.add(20);
  EXPECT_EQ(stat.current, 90);
  EXPECT_EQ(stat.peak, 100);
  EXPECT_EQ(stat.allocated, 120);
  EXPECT_EQ(stat.freed, 30);
}

TEST(StatTest, APeakResetForgetsOnlyThePeak) {
  Stat stat;
  stat.add(100);
  stat.add(-60);
  stat.reset_peak();
  EXPECT_EQ(stat.current, 40);
  EXPECT_EQ(stat.peak, 40);
  EXPECT_EQ(stat.allocated, 100);
  EXPECT_EQ(stat.freed, 60);
  stat.add(5);
  EXPECT_EQ(stat.peak, 45);
}

TEST(StatTest, AnAccumulatedResetForgetsOnlyTheSums) {
  Stat stat;
  stat.add(100);
  stat.add(-60);
  stat.reset_accumulated();
  EXPECT_EQ(stat.current, 40);
  EXPECT_EQ(stat.peak, 100);
  EXPECT_EQ(stat.allocated, 0);
  EXPECT_EQ(stat.freed, 0);
}

// The peak of both families together is not the sum of their peaks.
TEST(FamilyStatTest, TheTotalHasAPeakOfItsOwn) {
  FamilyStat stat;
  stat.add(StatFamily::kSmall, 10);
  stat.add(StatFamily::kSmall, -10);
  stat.add(StatFamily::kLarge, 30);
  EXPECT_EQ(stat.all.peak, 30);
  EXPECT_EQ(stat.family[0].peak, 10);
  EXPECT_EQ(stat.family[1].peak, 30);
  EXPECT_EQ(stat.all.allocated, 40);
}

// torch.cuda.memory_stats(): every key that PyTorch has, and Quarry's own beside them.
TEST(DeviceStatsTest, KeysArePyTorchsAndOurs) {
  std::set<std::string> expected = {
      "num_alloc_retries", "num_ooms", "num_oom_rejections", "num_sync_all_streams",
      "num_device_alloc", "num_device_free", "max_split_size",
      // Quarry's own.
      "allocator_slack", "external_bytes", "largest_free_block", "pending_bytes", "cached_bytes",
      "parked_bytes", "idle_bytes", "fences_outstanding", "fences_failed", "invalid_frees",
      "size_mismatches", "driver_free_failures", "extents_created", "extents_released",
      "extents_moved", "pinned_bytes", "stream_waits"};
  const std::vector<std::string> metrics = {".current", ".peak", ".allocated", ".freed"};
  for (const std::string name :
       {"allocation", "segment", "active", "inactive_split", "allocated_bytes", "reserved_bytes",
        "active_bytes", "inactive_split_bytes", "requested_bytes"}) {
    for (const std::string pool : {".all", ".small_pool", ".large_pool"}) {
      for (const std::string& metric : metrics)
        expected.insert(name + pool + metric);
    }
  }
  for (const std::string name : {"oversize_allocations", "oversize_segments"}) {
    for (const std::string& metric : metrics)
      expected.insert(name + metric);
  }
  std::set<std::string> actual;
  for (const NamedValue& entry : flatten(DeviceStats{}))
    actual.insert(entry.name);
  EXPECT_EQ(actual, expected);
}

TEST(DeviceStatsTest, KeysAreSortedAndUnique) {
  const std::vector<NamedValue> flat = flatten(DeviceStats{});
  for (std::size_t i = 1; i < flat.size(); ++i)
    EXPECT_LT(flat[i - 1].name, flat[i].name);
}

// Every member is given a value of its own; none may appear under two keys or under none.
TEST(DeviceStatsTest, EveryFigureAppearsUnderItsOwnKey) {
  DeviceStats stats;
  std::int64_t next = 1;
  const auto fill = [&next](Stat& stat) {
    stat = {next, next + 1, next + 2, next + 3};
    next += 4;
  };
  for (FamilyStat* stat : {&stats.allocation, &stats.segment, &stats.active, &stats.inactive_split,
                           &stats.allocated_bytes, &stats.reserved_bytes, &stats.active_bytes,
                           &stats.inactive_split_bytes, &stats.requested_bytes}) {
    fill(stat->all);
    fill(stat->family[0]);
    fill(stat->family[1]);
  }
  fill(stats.oversize_allocations);
  fill(stats.oversize_segments);
  for (std::int64_t* scalar :
       {&stats.num_alloc_retries,    &stats.num_ooms,         &stats.num_oom_rejections,
        &stats.num_sync_all_streams, &stats.num_device_alloc, &stats.num_device_free,
        &stats.max_split_size,       &stats.allocator_slack,  &stats.external_bytes,
        &stats.largest_free_block,   &stats.pending_bytes,    &stats.cached_bytes,
        &stats.parked_bytes,         &stats.idle_bytes,       &stats.fences_outstanding,
        &stats.fences_failed,        &stats.invalid_frees,    &stats.size_mismatches,
        &stats.driver_free_failures, &stats.extents_created,  &stats.extents_released,
        &stats.extents_moved,        &stats.pinned_bytes,     &stats.stream_waits}) {
    *scalar = next++;
  }
  const auto map = to_map(stats);
  std::vector<std::int64_t> values;
  for (const auto& [name, value] : map)
    values.push_back(value);
  std::sort(values.begin(), values.end());
  ASSERT_EQ(values.size(), static_cast<std::size_t>(next - 1));
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_EQ(values[i], static_cast<std::int64_t>(i + 1));

  EXPECT_EQ(map.at("segment.small_pool.peak"), stats.segment.family[0].peak);
  EXPECT_EQ(map.at("requested_bytes.large_pool.freed"), stats.requested_bytes.family[1].freed);
  EXPECT_EQ(map.at("oversize_segments.allocated"), stats.oversize_segments.allocated);
  EXPECT_EQ(map.at("num_sync_all_streams"), stats.num_sync_all_streams);
}

TEST(DeviceStatsTest, ResetsReachEveryFigureAndOnlyWhatTheyShould) {
  DeviceStats stats;
  for (FamilyStat* stat : {&stats.allocation, &stats.requested_bytes}) {
    stat->add(StatFamily::kSmall, 8);
    stat->add(StatFamily::kSmall, -5);
  }
  stats.oversize_segments.add(2);
  stats.oversize_segments.add(-1);
  stats.num_ooms = stats.num_alloc_retries = stats.invalid_frees = 3;
  stats.max_split_size = 77;
  stats.pending_bytes = 66;

  DeviceStats peaks = stats;
  peaks.reset_peak();
  auto map = to_map(peaks);
  EXPECT_EQ(map["allocation.all.peak"], 3);
  EXPECT_EQ(map["allocation.small_pool.peak"], 3);
  EXPECT_EQ(map["requested_bytes.all.peak"], 3);
  EXPECT_EQ(map["oversize_segments.peak"], 1);
  EXPECT_EQ(map["allocation.all.allocated"], 8);
  EXPECT_EQ(map["num_ooms"], 3);

  DeviceStats sums = stats;
  sums.reset_accumulated();
  map = to_map(sums);
  EXPECT_EQ(map["allocation.all.allocated"], 0);
  EXPECT_EQ(map["allocation.small_pool.freed"], 0);
  EXPECT_EQ(map["oversize_segments.freed"], 0);
  EXPECT_EQ(map["allocation.all.peak"], 8);
  EXPECT_EQ(map["allocation.all.current"], 3);
  EXPECT_EQ(map["num_ooms"], 0);
  EXPECT_EQ(map["num_alloc_retries"], 0);
  EXPECT_EQ(map["invalid_frees"], 0);
  EXPECT_EQ(map["max_split_size"], 77);
  EXPECT_EQ(map["pending_bytes"], 66);
}

}  // namespace
}  // namespace quarry
