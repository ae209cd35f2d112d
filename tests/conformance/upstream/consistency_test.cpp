// SPDX-License-Identifier: Apache-2.0
// _check_memory_stat_consistency: after any operation the figures equal the sums over everything
// that the allocator, the simulated driver and the test itself know, each by its own book.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "tests/support/scenario.hpp"

namespace quarry::test {
namespace {

// The test's own book of live blocks, with what find_block says of each.
class Consistency : public testing::Test {
 protected:
  void check() {
    s_.allocator().validate();  // every sum over the tree, and every link
    const DeviceStats stats = s_.stats();
    struct Sum {
      std::int64_t blocks = 0, bytes = 0, requested = 0;
    } sums[2];
    std::map<Address, Bytes> segments;
    for (const auto& [address, bytes] : live_) {
      const BlockInfo info = s_.allocator().find_block(address).value();
      ASSERT_EQ(info.requested_bytes, bytes);
      Sum& sum = sums[info.segment_bytes == 2_MiB ? 0 : 1];
      sum.blocks += 1;
      sum.bytes += static_cast<std::int64_t>(info.bytes);
      sum.requested += static_cast<std::int64_t>(bytes);
      segments[info.segment_address] = info.segment_bytes;
    }
    for (const int family : {0, 1}) {
      ASSERT_EQ(stats.allocation.family[family].current, sums[family].blocks);
      ASSERT_EQ(stats.allocated_bytes.family[family].current, sums[family].bytes);
      ASSERT_GE(stats.requested_bytes.family[family].current, sums[family].requested);
    }
    ASSERT_EQ(stats.allocator_slack,
              sums[0].bytes + sums[1].bytes - sums[0].requested - sums[1].requested);
    ASSERT_GE(stats.segment.all.current, static_cast<std::int64_t>(segments.size()));
    check_driver(stats);
    check_cached(stats);
  }
  void check_driver(const DeviceStats& stats) {
    const SimDriver::Holdings held = s_.sim().get_holdings(0);
    ASSERT_EQ(stats.segment.all.current, static_cast<std::int64_t>(held.plain_allocations));
    ASSERT_EQ(stats.reserved_bytes.all.current, static_cast<std::int64_t>(held.physical_bytes));
    ASSERT_EQ(stats.num_device_alloc - stats.num_device_free, stats.segment.all.current);
  }
  void check_cached(const DeviceStats& stats) {
    std::int64_t cached = 0, largest = 0;
    const auto caches = s_.allocator().get_stream_caches(0).value();
    for (const StreamCache& cache : caches) {
      cached += static_cast<std::int64_t>(cache.cached_bytes);
      largest = std::max(largest, static_cast<std::int64_t>(cache.largest_free_block));
    }
    ASSERT_EQ(stats.cached_bytes, cached);
    ASSERT_EQ(stats.largest_free_block, largest);
    // What is parked is neither: no user has it, and no search finds it.
    ASSERT_EQ(stats.reserved_bytes.all.current,
              stats.active_bytes.all.current + cached + stats.parked_bytes);
    if (!has_magazines()) {
      ASSERT_EQ(stats.parked_bytes, 0);
    }
    ASSERT_EQ(stats.pending_bytes,
              stats.active_bytes.all.current - stats.allocated_bytes.all.current);
    ASSERT_LE(stats.inactive_split_bytes.all.current, cached);
  }

  void malloc() {
    const Bytes bytes = 1 + random_() % (random_() % 3 == 0 ? 90_MiB : 1_MiB);
    const Address address = s_.malloc(bytes, pick_stream());
    if (address != 0) live_[address] = bytes;
  }
  void free() {
    if (live_.empty()) return;
    const auto victim = std::next(live_.begin(), random_() % live_.size());
    if (random_() % 4 == 0) s_.record(victim->first, pick_stream());
    if (random_() % 8 == 0) {
      s_.free_on_stream(victim->first, pick_stream());
    } else {
      s_.free(victim->first);
    }
    live_.erase(victim);
  }
  StreamHandle pick_stream() { return streams_[random_() % std::size(streams_)]; }

  Scenario s_{1_GiB};
  StreamHandle streams_[3] = {kS0, s_.make_stream(), s_.make_stream()};
  std::mt19937 random_{17};
  std::map<Address, Bytes> live_;
};

TEST_F(Consistency, FiguresEqualTheBooksAtEveryPoint) {
  for (int step = 0; step < 4000; ++step) {
    switch (random_() % 16) {
      case 0:
        static_cast<void>(
            s_.sim().submit_work({0, pick_stream()}, sim::WorkTime::lasting_us(200)));
        break;
      case 1:
        s_.sim().advance_by_us(random_() % 500);
        break;
      case 2:
        if (random_() % 8 == 0) s_.empty_cache();
        break;
      case 3:
        s_.configure([this](Config& config) {
          config.max_split_bytes = random_() % 2 == 0 ? kUnlimited : 64_MiB;
        });
        break;
      default:
        random_() % 2 == 0 ? malloc() : free();
    }
    if (step % 10 != 0) continue;
    ASSERT_NO_FATAL_FAILURE(check()) << "step " << step;
  }
  while (!live_.empty())
    free();
  for (const StreamHandle stream : streams_)
    s_.complete(stream);
  EXPECT_EQ(s_.empty_cache(), StatusCode::kOk);
  check();
  EXPECT_EQ(s_.reserved(), 0u);
}

}  // namespace
}  // namespace quarry::test
