// SPDX-License-Identifier: Apache-2.0
// The C API's statistics, and that docs/stats.md explains every key there is.
#include <fstream>
#include <map>
#include <sstream>
#include <vector>

#include "stats/device_stats.hpp"
#include "tests/unit/api/api_fixture.hpp"

namespace quarry {
namespace {

using testing_support::ApiTest;
using testing_support::error_says;
using testing_support::make_stream;

class StatsApi : public ApiTest {
 protected:
  quarry_stats get_stats(int device = 0) {
    quarry_stats stats = {};
    stats.struct_size = sizeof(stats);
    EXPECT_EQ(quarry_get_stats(device, &stats), QUARRY_OK) << quarry_get_last_error();
    return stats;
  }
};

TEST_F(StatsApi, TheStructShowsTheFiguresOfTheKeys) {
  allocate(3000);
  quarry_free(allocate(4 << 20));
  const quarry_stats stats = get_stats();
  EXPECT_EQ(stats.requested_bytes, 3000);
  EXPECT_EQ(stats.allocated_bytes, 3072);
  EXPECT_EQ(stats.allocator_slack, 72);
  EXPECT_EQ(stats.allocated_blocks, 1);
  EXPECT_EQ(stats.allocated_peak_bytes, stat("allocated_bytes.all.peak"));
  EXPECT_EQ(stats.active_bytes, stat("active_bytes.all.current"));
  EXPECT_EQ(stats.active_peak_bytes, stat("active_bytes.all.peak"));
  EXPECT_EQ(stats.reserved_bytes, 22 << 20);
  EXPECT_EQ(stats.reserved_peak_bytes, stat("reserved_bytes.all.peak"));
  EXPECT_EQ(stats.cached_bytes, stats.reserved_bytes - stats.allocated_bytes);
  EXPECT_EQ(stats.largest_free_block, 20 << 20);
  EXPECT_EQ(stats.segments, 2);
  EXPECT_EQ(stats.num_device_alloc, 2);
  EXPECT_EQ(stats.pending_bytes, stat("pending_bytes"));
  EXPECT_EQ(stats.idle_bytes, stat("idle_bytes"));
  EXPECT_EQ(stats.external_bytes, stat("external_bytes"));
}

TEST_F(StatsApi, ExternalBytesAreThoseOfOthers) {
  sim().set_external_bytes(0, 100 << 20);
  allocate(4 << 20);
  EXPECT_EQ(get_stats().external_bytes, 100 << 20);
}

TEST_F(StatsApi, IterationVisitsEveryKeyInOrderWithTheValueOfTheLookUp) {
  allocate(3000);
  std::vector<std::pair<std::string, std::int64_t>> visited;
  const quarry_stat_visitor visitor = [](const char* key, std::int64_t value, void* user) {
    static_cast<decltype(visited)*>(user)->emplace_back(key, value);
  };
  ASSERT_EQ(quarry_for_each_stat(0, visitor, &visited), QUARRY_OK);
  ASSERT_EQ(visited.size(), flatten(DeviceStats{}).size());
  EXPECT_TRUE(std::is_sorted(visited.begin(), visited.end()));
  for (const auto& [key, value] : visited)
    EXPECT_EQ(stat(key.c_str()), value) << key;
}

TEST_F(StatsApi, WrongArgumentsAreRefusedByName) {
  std::int64_t value = 7;
  EXPECT_EQ(quarry_get_stat(0, "allocated_bites", &value), QUARRY_ERROR_INVALID_ARGUMENT);
  EXPECT_TRUE(error_says("'allocated_bites'"));
  EXPECT_EQ(quarry_get_stat(0, nullptr, &value), QUARRY_ERROR_INVALID_ARGUMENT);
  EXPECT_TRUE(error_says("key is NULL"));
  EXPECT_EQ(quarry_get_stat(0, "num_ooms", nullptr), QUARRY_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(quarry_get_stat(9, "num_ooms", &value), QUARRY_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(value, 7);
  EXPECT_EQ(quarry_get_stats(0, nullptr), QUARRY_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(quarry_for_each_stat(0, nullptr, nullptr), QUARRY_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(quarry_for_each_stream_cache(0, nullptr, nullptr), QUARRY_ERROR_INVALID_ARGUMENT);
}

TEST_F(StatsApi, StreamCachesComeLargestFirst) {
  const auto make = [&] {
    return make_stream(
        static_cast<std::uint64_t>(sim().create_stream(0, sim::StreamKind::kNonBlocking).handle));
  };
  const quarry_stream small = make();
  const quarry_stream large = make();
  quarry_free(allocate(1000, 0, small));
  quarry_free(allocate(20 << 20, 0, large));
  std::vector<quarry_stream_cache> caches;
  const quarry_stream_cache_visitor visitor = [](const quarry_stream_cache* cache, void* user) {
    static_cast<std::vector<quarry_stream_cache>*>(user)->push_back(*cache);
  };
  ASSERT_EQ(quarry_for_each_stream_cache(0, visitor, &caches), QUARRY_OK);
  ASSERT_EQ(caches.size(), 2u);
  EXPECT_EQ(caches[0].struct_size, sizeof(quarry_stream_cache));
  EXPECT_EQ(caches[0].stream, large);
  EXPECT_EQ(caches[0].cached_bytes, 20_MiB);
  EXPECT_EQ(caches[0].largest_free_block, 20_MiB);
  EXPECT_EQ(caches[1].stream, small);
  EXPECT_EQ(caches[1].cached_bytes, 2_MiB);
}

TEST_F(StatsApi, C64APeakResetLeavesWhatIsLive) {
  void* a = allocate(4194304);
  ASSERT_EQ(quarry_reset_peak_stats(0), QUARRY_OK);
  EXPECT_EQ(stat("allocated_bytes.all.current"), 4194304);
  EXPECT_EQ(stat("allocated_bytes.all.peak"), 4194304);
  EXPECT_EQ(stat("allocation.all.allocated"), 1);
  quarry_free(allocate(8388608));
  EXPECT_EQ(stat("allocated_bytes.all.peak"), 12582912);
  EXPECT_EQ(stat("allocated_bytes.all.current"), 4194304);
  ASSERT_EQ(quarry_reset_peak_stats(0), QUARRY_OK);
  quarry_free(a);
  EXPECT_EQ(stat("allocated_bytes.all.current"), 0);
  EXPECT_EQ(stat("allocated_bytes.all.peak"), 4194304);
  EXPECT_EQ(stat("allocation.all.allocated"), 2);
  EXPECT_EQ(stat("allocation.all.freed"), 2);
}

TEST_F(StatsApi, AnAccumulatedResetClearsTotalsOnly) {
  void* kept = allocate(1000);
  quarry_free(allocate(1000));
  quarry_free(kept);
  quarry_free(kept);
  EXPECT_EQ(stat("invalid_frees"), 1);
  kept = allocate(1000);
  ASSERT_EQ(quarry_reset_accumulated_stats(0), QUARRY_OK);
  EXPECT_EQ(stat("allocation.all.allocated"), 0);
  EXPECT_EQ(stat("allocation.all.freed"), 0);
  EXPECT_EQ(stat("invalid_frees"), 0);
  EXPECT_EQ(stat("num_device_alloc"), 0);
  EXPECT_EQ(stat("allocation.all.current"), 1);
  EXPECT_EQ(stat("allocated_bytes.all.peak"), 2048);
}

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// "allocated_bytes.small_pool.peak" is explained under `allocated_bytes`, and its pool and metric
// once for all keys.
TEST(StatsDocument, ExplainsEveryPartOfEveryKey) {
  const std::string document = read_file(std::string(QUARRY_SOURCE_DIR) + "/docs/stats.md");
  ASSERT_FALSE(document.empty());
  for (const NamedValue& one : flatten(DeviceStats{})) {
    std::istringstream parts(one.name);
    for (std::string part; std::getline(parts, part, '.');) {
      EXPECT_NE(document.find("| `" + part + "` |"), std::string::npos)
          << "docs/stats.md has no row for " << part << " of " << one.name;
    }
  }
}

}  // namespace
}  // namespace quarry
