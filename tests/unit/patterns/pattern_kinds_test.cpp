// SPDX-License-Identifier: Apache-2.0
// What makes each pattern of experts, of images and of training the kind that it is.
#include <algorithm>
#include <numeric>

#include "pattern_support.hpp"

namespace quarry::patterns {
namespace {

constexpr Bytes kStateBytes = 128;  // of one token in the small model

TEST(MoeTest, TheExpertsTokensAddUpAndDifferByTheSkew) {
  const auto run = [](const char* skew) {
    const auto events = make_events("moe", make_small_model({{"experts", "8"},
                                                             {"chosen", "2"},
                                                             {"steps", "1"},
                                                             {"skew", skew},
                                                             {"tokens-least", "4000"},
                                                             {"tokens-most", "4000"}}));
    // An expert's inner tensor: 96 elements of 2 bytes for each of its tokens. Nothing else in the
    // trace after the weights is a multiple of that below all tokens together, but by chance.
    std::vector<Bytes> tokens;
    const auto allocs = select(events, TraceOp::kAlloc);
    for (std::size_t i = 2; i + 1 < allocs.size(); ++i) {
      const bool is_expert = allocs[i - 2].bytes * 96 == allocs[i].bytes * 64 &&
                             allocs[i - 1].bytes == 2 * allocs[i].bytes;
      if (is_expert) tokens.push_back(allocs[i].bytes / 192);
    }
    return tokens;
  };
  const std::vector<Bytes> uneven = run("100");
  EXPECT_EQ(std::accumulate(uneven.begin(), uneven.end(), Bytes{0}), 8'000u);
  EXPECT_GT(std::set<Bytes>(uneven.begin(), uneven.end()).size(), 4u);
  EXPECT_EQ(run("0"), std::vector<Bytes>(8, 1'000));
}

TEST(TwoBatchOverlapTest, WhatIsSentIsRecordedOnTheOtherStreamAndFreedAtOnce) {
  const auto events = make_events("two_batch_overlap", make_small_model({{"steps", "3"}}));
  EXPECT_EQ(collect_streams(events), (std::set<std::uint64_t>{0}));
  const auto records = select(events, TraceOp::kRecordStream);
  // There and back, what is sent and what is received, for 2 halves, 1 layer and 3 steps.
  EXPECT_EQ(records.size(), 2u * 2 * 2 * 3);
  for (const TraceEvent& row : records)
    EXPECT_EQ(row.stream, 1u);
  const auto sent = std::find_if(events.begin(), events.end(), [](const TraceEvent& row) {
    return row.op == TraceOp::kRecordStream;
  });
  ASSERT_GE(events.end() - sent, 3);
  EXPECT_EQ(sent[2].op, TraceOp::kFree);
  EXPECT_EQ(sent[2].id, sent[0].id);
}

TEST(TwoBatchOverlapTest, OneHalfComputesWhileTheOtherIsOnItsWay) {
  const auto measure = [](const char* speed) {
    return make_events("two_batch_overlap", {{"link-gb-per-s", speed}}).back().time_us;
  };
  const std::uint64_t instant = measure("1000000");
  const std::uint64_t fast = measure("600");
  const std::uint64_t slow = measure("30");
  EXPECT_LT(fast - instant, instant / 10);
  EXPECT_GT(slow, 2 * instant);
}

TEST(ShardedLayersTest, EveryGatheredLayerIsUsedOnTheComputingStreamAndFreed) {
  const auto events = make_events(
      "sharded_layers",
      make_small_model({{"layers", "6"}, {"steps", "2"}, {"devices", "4"}, {"prefetch", "2"}}));
  const auto allocs = map_allocs(events);
  const Bytes layer_bytes = 64 * (2 * 64 + 2 * 32 + 3 * 96) * 2;
  const auto is_gathered = [&](std::uint64_t id) {
    return allocs.at(id).stream == 1 && allocs.at(id).bytes == layer_bytes;
  };
  int living = 0;
  int most = 0;
  int gathered = 0;
  int used = 0;
  for (const TraceEvent& row : events) {
    if (!is_gathered(row.id)) continue;
    if (row.op == TraceOp::kRecordStream) ++used;
    if (row.op == TraceOp::kAlloc) ++gathered;
    if (row.op != TraceOp::kRecordStream) living += row.op == TraceOp::kAlloc ? 1 : -1;
    most = std::max(most, living);
  }
  EXPECT_EQ(gathered, 2 * 2 * 6);  // forward and backward
  EXPECT_EQ(used, gathered);
  EXPECT_EQ(living, 0);
  EXPECT_EQ(most, 3);  // one in use and two ahead
}

TEST(RaggedTrainingTest, ActivationsAreFreedInReverseOrder) {
  const auto events = make_events("ragged_training", make_small_model({{"layers", "3"},
                                                                       {"steps", "1"},
                                                                       {"dtype", "fp32"},
                                                                       {"tokens-least", "3001"},
                                                                       {"tokens-most", "3001"}}));
  // All that are kept are longer-lived than the layer after them; the last ones go first.
  std::vector<std::uint64_t> kept;
  std::map<std::uint64_t, std::size_t> born;
  std::map<std::uint64_t, std::size_t> died;
  for (std::size_t i = 0; i < events.size(); ++i) {
    if (events[i].op == TraceOp::kAlloc) born[events[i].id] = i;
    if (events[i].op == TraceOp::kFree) died[events[i].id] = i;
  }
  for (const auto& [id, place] : born) {
    const bool is_kept = died.contains(id) && died.at(id) - place > 20;
    if (is_kept) kept.push_back(id);
  }
  ASSERT_GE(kept.size(), 10u);
  EXPECT_TRUE(std::is_sorted(kept.begin(), kept.end(), [&](std::uint64_t a, std::uint64_t b) {
    return died.at(a) > died.at(b);
  }));
}

TEST(UnetTest, EachResolutionHasSizesOfItsOwn) {
  const auto one = make_events("unet", {{"images", "1"}, {"steps", "2"}});
  const auto many = make_events("unet", {{"images", "20"}, {"steps", "2"}});
  EXPECT_GT(count_sizes(many).size(), 6 * count_sizes(one).size());
}

TEST(UnetTest, SidesBelowAndAboveTheStepAreMultiplesOfIt) {
  const auto events = make_events("unet", {{"images", "8"},
                                           {"steps", "1"},
                                           {"batch", "1"},
                                           {"side-least", "100"},
                                           {"side-most", "200"},
                                           {"dtype", "fp32"},
                                           {"levels", "1"},
                                           {"channels", "4096"},
                                           {"decoder-channels", "4096"}});
  // With so many channels all else is larger than latents: 4 channels of 4 bytes, sides of 64, 128
  // or 192 pixels, an eighth of that each.
  std::set<Bytes> latents;
  for (const Bytes height : {8, 16, 24}) {
    for (const Bytes width : {8, 16, 24})
      latents.insert(height * width * 4 * 4);
  }
  int found = 0;
  for (const auto& [bytes, count] : count_sizes(events)) {
    if (bytes > 16'000) break;
    EXPECT_TRUE(latents.contains(bytes)) << bytes;
    found += count;
  }
  EXPECT_EQ(found, 2 * 8);  // the latent, and its copy at the decoder
}

TEST(KnobTest, TheSizesFollowTheType) {
  const auto measure = [](const char* dtype) {
    const auto events = make_events("kv_static", make_small_model({{"dtype", dtype}}));
    return select(events, TraceOp::kAlloc).front().bytes;
  };
  EXPECT_EQ(measure("fp8"), 1000u * 64);
  EXPECT_EQ(measure("bf16"), 1000 * kStateBytes);
  EXPECT_EQ(measure("fp16"), 1000 * kStateBytes);
  EXPECT_EQ(measure("fp32"), 1000 * 2 * kStateBytes);
}

TEST(KnobTest, AFasterDeviceIsDoneEarlierWithTheSameRows) {
  const auto slow = make_events("kv_static", {});
  const auto fast = make_events(
      "kv_static", {{"tflops", "800"}, {"memory-gb-per-s", "6600"}, {"load-gb-per-s", "40"}});
  ASSERT_EQ(slow.size(), fast.size());
  EXPECT_LT(fast.back().time_us, slow.back().time_us * 6 / 10);
  EXPECT_EQ(count_sizes(slow), count_sizes(fast));
}

}  // namespace
}  // namespace quarry::patterns
