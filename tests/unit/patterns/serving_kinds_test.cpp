// SPDX-License-Identifier: Apache-2.0
// What makes each pattern of a server the kind that it is.
#include <algorithm>

#include "pattern_support.hpp"

namespace quarry::patterns {
namespace {

// Keys and values of one token in the small model: 2 x 2 heads x 16 elements x 2 bytes.
constexpr Bytes kKvBytes = 128;

TEST(KvConcatTest, TheCacheGrowsByOneTokenAStepAndTheOldOneIsFreed) {
  const auto events = make_events("kv_concat", make_small_model({{"batch", "3"},
                                                                 {"batches", "1"},
                                                                 {"prompt-least", "1001"},
                                                                 {"prompt-most", "1001"},
                                                                 {"output-tokens", "4"}}));
  const auto counts = count_sizes(events);
  for (const Bytes length : {1001, 1002, 1003, 1004}) {
    const auto found = counts.find(3 * length * kKvBytes / 2);
    ASSERT_NE(found, counts.end()) << length;
    EXPECT_EQ(found->second, 2) << length;
  }
  EXPECT_FALSE(counts.contains(3 * 1005 * kKvBytes / 2));
}

TEST(KvStaticTest, TheSlotsAreAllocatedOnceAndNeverFreed) {
  const auto events = make_events(
      "kv_static", make_small_model({{"layers", "3"}, {"batch", "2"}, {"slot", "1999"}}));
  const Bytes slot_bytes = Bytes{2} * 1999 * kKvBytes / 2;
  EXPECT_EQ(count_sizes(events).at(slot_bytes), 6);
  const auto allocs = map_allocs(events);
  for (const TraceEvent& row : select(events, TraceOp::kFree))
    EXPECT_NE(allocs.at(row.id).bytes, slot_bytes);
}

TEST(BatchWobbleTest, CachesHaveThreeSizesInTurn) {
  const auto events = make_events(
      "batch_wobble", make_small_model({{"batch", "10"}, {"batches", "6"}, {"length", "777"}}));
  std::vector<Bytes> batches;
  for (const TraceEvent& row : select(events, TraceOp::kAlloc)) {
    const Bytes sequence_bytes = 777 * kKvBytes;
    if (row.bytes % sequence_bytes == 0) batches.push_back(row.bytes / sequence_bytes);
  }
  EXPECT_EQ(batches, (std::vector<Bytes>{10, 9, 11, 10, 9, 11}));
}

TEST(ChunkedPrefillTest, ScoresGrowFromChunkToChunkAndAreFreed) {
  const auto events = make_events("chunked_prefill", make_small_model({{"prompts", "1"},
                                                                       {"prompt-least", "2500"},
                                                                       {"prompt-most", "2500"},
                                                                       {"chunk", "1000"}}));
  const auto counts = count_sizes(events);
  // 4 heads, in bf16 before and after the softmax.
  EXPECT_EQ(counts.at(Bytes{4} * 1000 * 1000 * 2), 2);
  EXPECT_EQ(counts.at(Bytes{4} * 1000 * 2000 * 2), 3);  // and the softmax of the last chunk
  EXPECT_EQ(counts.at(Bytes{4} * 500 * 2500 * 2), 2);
  EXPECT_EQ(counts.at(Bytes{4} * 1000 * 2000 * 4), 1);
}

TEST(GrowingScratchTest, TheMaskNeedsOneTokenMoreAtEachStep) {
  const auto events = make_events("growing_scratch", make_small_model({{"batch", "5"},
                                                                       {"batches", "1"},
                                                                       {"prompt-least", "1001"},
                                                                       {"prompt-most", "1001"},
                                                                       {"output-tokens", "4"}}));
  const auto counts = count_sizes(events);
  for (const Bytes length : {1001, 1002, 1003, 1004})
    EXPECT_TRUE(counts.contains(5 * length * 4)) << length;
  EXPECT_FALSE(counts.contains(Bytes{5} * 1005 * 4));
}

TEST(ContinuousBatchingTest, ARequestOfAFileGetsACacheThatGrowsUntilItIsDone) {
  const auto events =
      make_events("continuous_batching", make_small_model({{"layers", "3"}, {"grow", "100"}}),
                  std::vector<Request>{{2'000'000, 1050, 200}});
  const Bytes token_bytes = 3 * kKvBytes;
  const auto counts = count_sizes(events);
  // 1,249 tokens at the end: the last one is never looked at again.
  EXPECT_EQ(counts.at(1100 * token_bytes), 1);
  EXPECT_EQ(counts.at(1200 * token_bytes), 1);
  EXPECT_EQ(counts.at(1300 * token_bytes), 1);
  EXPECT_FALSE(counts.contains(1400 * token_bytes));
}

TEST(ContinuousBatchingTest, NothingIsDoneForARequestBeforeItArrives) {
  const auto events = make_events("continuous_batching", make_small_model({{"grow", "100"}}),
                                  std::vector<Request>{{2'000'000, 1050, 1}});
  for (const TraceEvent& row : select(events, TraceOp::kAlloc)) {
    if (row.bytes == 1100 * kKvBytes) {
      EXPECT_GE(row.time_us, 2'000'000u);
      return;
    }
  }
  FAIL() << "no cache";
}

TEST(ContinuousBatchingTest, NoMoreRequestsRunThanTheBatchHolds) {
  const std::vector<Request> requests(9, Request{0, 1050, 5});
  const auto events = make_events("continuous_batching",
                                  make_small_model({{"batch", "4"}, {"grow", "100"}}), requests);
  const auto allocs = map_allocs(events);
  int running = 0;
  int most = 0;
  for (const TraceEvent& row : events) {
    if (allocs.at(row.id).bytes != 1100 * kKvBytes) continue;
    running += row.op == TraceOp::kAlloc ? 1 : -1;
    most = std::max(most, running);
  }
  EXPECT_EQ(most, 4);
  EXPECT_EQ(count_sizes(events).at(1100 * kKvBytes), 9);
}

TEST(ContinuousBatchingTest, EachEngineHasAStreamOfItsOwn) {
  EXPECT_EQ(
      collect_streams(make_events("continuous_batching", make_small_model({{"engines", "3"}})))
          .size(),
      3u);
}

TEST(ContinuousBatchingTest, AFileAndKnobsOfMadeRequestsExcludeEachOther) {
  const std::vector<Request> requests = {{0, 10, 10}};
  EXPECT_EQ(explain_failure("continuous_batching", {{"rate", "60"}}, requests),
            "--rate: not together with --request-file, which says it");
  EXPECT_EQ(explain_failure("continuous_batching", {{"batch", "2"}}, requests), "");
}

TEST(GraphBucketsTest, EachBatchSizeIsCapturedOnceTheLargestFirst) {
  const auto events =
      make_events("graph_buckets",
                  make_small_model({{"buckets", "4"}, {"bucket-step", "3"}, {"steps", "50"}}));
  std::vector<Bytes> batches;
  std::uint64_t last_captured = 0;
  std::uint64_t first_eager = ~std::uint64_t{0};
  const auto allocs = select(events, TraceOp::kAlloc);
  for (std::size_t i = 0; i < allocs.size(); ++i) {
    const Bytes logit_bytes = 4000;  // of 1,000 tokens in fp32
    const bool is_outputs = allocs[i].bytes % logit_bytes == 0 && allocs[i].bytes > 0;
    if (allocs[i].stream == 1) last_captured = i;
    if (allocs[i].stream == 1 && is_outputs) batches.push_back(allocs[i].bytes / logit_bytes);
    if (allocs[i].stream == 0 && !batches.empty()) first_eager = std::min(first_eager, i);
  }
  EXPECT_EQ(batches, (std::vector<Bytes>{12, 9, 6, 3}));
  EXPECT_LT(last_captured, first_eager);
}

TEST(ServerThreadsTest, EveryResultIsUsedOnTheSendersStreamBeforeItIsFreed) {
  const auto events =
      make_events("server_threads", make_small_model({{"threads", "3"}, {"requests", "5"}}));
  EXPECT_EQ(collect_streams(events), (std::set<std::uint64_t>{0, 1, 2}));
  const auto records = select(events, TraceOp::kRecordStream);
  EXPECT_EQ(records.size(), 15u);
  for (const TraceEvent& row : records)
    EXPECT_EQ(row.stream, 3u);
}

TEST(ServerThreadsTest, ThreadsRunSideBySide) {
  const auto events = make_events("server_threads", {{"threads", "2"}, {"requests", "5"}});
  int changes = 0;
  std::uint64_t before = 0;
  for (const TraceEvent& row : select(events, TraceOp::kAlloc)) {
    if (row.stream != before) ++changes;
    before = row.stream;
  }
  EXPECT_GT(changes, 50);
}

TEST(OneShotStreamTest, EachStreamIsUsedOnceForAsMuchAsItShould) {
  const auto events = make_events(
      "one_shot_stream",
      make_small_model({{"shots", "3"}, {"shot-mib", "64"}, {"pieces", "5"}, {"steps", "2"}}));
  std::map<std::uint64_t, Bytes> bytes;
  std::vector<std::uint64_t> order;
  for (const TraceEvent& row : select(events, TraceOp::kAlloc)) {
    if (order.empty() || order.back() != row.stream) order.push_back(row.stream);
    if (row.stream != 0) bytes[row.stream] += row.bytes;
  }
  EXPECT_EQ(order, (std::vector<std::uint64_t>{0, 1, 0, 2, 0, 3, 0}));
  for (const auto& [stream, sum] : bytes)
    EXPECT_EQ(sum, 64_MiB) << stream;
}

TEST(WeightSwizzleTest, EachOriginalIsFreedOnceItsPaddedCopyIsThere) {
  const auto events = make_events(
      "weight_swizzle", make_small_model({{"layers", "5"}, {"padding", "50"}, {"steps", "1"}}));
  // The matrix of the feed-forward part's first half: 64 x 192 elements of 2 bytes.
  const Bytes original = 64 * 192 * 2;
  const Bytes copy = original + original / 100 * 50;
  const auto allocs = map_allocs(events);
  int freed = 0;
  int copies = 0;
  for (const TraceEvent& row : events) {
    if (row.op == TraceOp::kAlloc && row.bytes == copy) ++copies;
    if (row.op != TraceOp::kFree || allocs.at(row.id).bytes != original) continue;
    ++freed;
    EXPECT_EQ(copies, freed);
  }
  EXPECT_EQ(freed, 5);
}

}  // namespace
}  // namespace quarry::patterns
