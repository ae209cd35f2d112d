// SPDX-License-Identifier: Apache-2.0
// PyTorch's tests of expandable segments, under their names and with their figures. Options are
// parsed as a user writes them; the cap of 120 MiB is a limit of the process, as upstream's
// fraction is.
#include <gtest/gtest.h>

#include <vector>

#include "api/config_parser.hpp"
#include "tests/support/capture_scenario.hpp"

namespace quarry::test {
namespace {

class UpstreamExpandable : public testing::Test {
 protected:
  void set_settings(std::string_view text) {
    auto parsed = parse_config(text, make_config(), ParseMode::kStrict);
    ASSERT_TRUE(parsed.is_ok());
    s_.allocator().configure(parsed.value().config);
  }
  void set_limit() { ASSERT_TRUE(s_.allocator().set_limit(0, 120_MiB).is_ok()); }
  bool is_expandable(Address address) {
    return s_.allocator().find_block(address).value().is_expandable;
  }
  CaptureScenario s_;
};

TEST_F(UpstreamExpandable, test_max_split_expandable) {
  set_settings("expandable_segments:True,max_split_size_mb:40");
  set_limit();
  std::vector<Address> blocks;
  for (int i = 0; i < 3; ++i) {
    blocks.push_back(s_.malloc(40_MiB));
    ASSERT_NE(blocks.back(), 0u);
  }
  EXPECT_EQ(s_.malloc(40_MiB), 0u);
  EXPECT_EQ(s_.last_code(), StatusCode::kOutOfMemory);
  for (const Address block : blocks)
    s_.free(block);
  EXPECT_NE(s_.malloc(120_MiB), 0u);
  EXPECT_EQ(s_.reserved(), 120_MiB);
}

TEST_F(UpstreamExpandable, test_garbage_collect_expandable) {
  set_settings("expandable_segments:True,garbage_collection_threshold:0.5");
  set_limit();
  const Address a = s_.malloc(40_MiB);
  const Address b = s_.malloc(40_MiB);
  s_.free(a);
  EXPECT_NE(s_.malloc(80_MiB), 0u);
  EXPECT_EQ(s_.reserved(), 120_MiB);
  EXPECT_TRUE(s_.allocator().find_block(b).is_ok());
}

// Figure 14, with expandable segments: the segments of a graph's pool are one range each family.
TEST_F(UpstreamExpandable, test_graph_memory_stats_and_use_result_after_destroy_graph) {
  constexpr PoolId kPool{0, 1};
  set_settings("expandable_segments:True");
  for (const Bytes bytes : {Bytes{512}, 1_MiB, 1_MiB + 512, 10_MiB - 512, 10_MiB + 512}) {
    SCOPED_TRACE(bytes);
    const StreamHandle side = s_.make_stream();
    s_.retain_pool(kPool);
    s_.begin_capture(side, kPool);
    const Address a = s_.malloc(bytes, side);
    const Address b = s_.malloc(bytes, side);
    const Address c = s_.malloc(bytes, side);
    ASSERT_TRUE(a != 0 && b != 0 && c != 0);
    EXPECT_EQ(s_.pool(kPool).stats.segments.current, 1);
    EXPECT_EQ(s_.reserved(), round_up(3 * round_up(bytes, 512), 2_MiB));
    s_.free(a);
    s_.free(c);
    const sim::GraphId graph = s_.end_capture(side, kPool);
    ASSERT_NE(graph, sim::GraphId::kNone);
    s_.launch(graph, side);
    ASSERT_EQ(s_.sim().destroy_graph(graph), DriverCode::kSuccess);
    s_.release_pool(kPool);
    EXPECT_EQ(s_.empty_cache(), StatusCode::kOk);
    // What the result lies on stays, and it is still the user's.
    EXPECT_LE(s_.reserved(), round_up(bytes, 2_MiB) + 2_MiB);
    EXPECT_TRUE(s_.allocator().find_block(b).is_ok());
    s_.free(b);
    EXPECT_EQ(s_.empty_cache(), StatusCode::kOk);
    EXPECT_EQ(s_.reserved(), 0u);
    EXPECT_EQ(s_.allocator().get_pool_reports(0).value().size(), 0u);
  }
}

// The pool has expandable segments of its own, and gives all of them back.
TEST_F(UpstreamExpandable, test_mempool_expandable) {
  constexpr PoolId kPool{0, 1};
  set_settings("expandable_segments:True");
  s_.retain_pool(kPool);
  const Address of_default = s_.malloc(21_MiB);
  const Address of_pool = s_.malloc_in_pool(21_MiB, kS0, kPool);
  const Address small = s_.malloc_in_pool(512, kS0, kPool);
  for (const Address block : {of_default, of_pool, small})
    EXPECT_TRUE(is_expandable(block));
  EXPECT_EQ(s_.pool(kPool).stats.segments.current, 2);
  EXPECT_EQ(s_.pool(kPool).stats.reserved_bytes.current, static_cast<std::int64_t>(24_MiB));
  s_.free(of_pool);
  s_.free(small);
  s_.release_pool(kPool);
  EXPECT_EQ(s_.empty_cache(), StatusCode::kOk);
  EXPECT_EQ(s_.allocator().get_pool_reports(0).value().size(), 0u);
  EXPECT_EQ(s_.reserved(), 22_MiB);
}

}  // namespace
}  // namespace quarry::test
