// SPDX-License-Identifier: Apache-2.0
// The default trace of every pattern: what docs/patterns.md says of it, and a sum over all its
// rows. Equal sums on every platform are the promise; a sum changes only with the pattern.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "patterns/pattern.hpp"
#include "trace/crc32.hpp"
#include "trace/trace_checker.hpp"
#include "trace/trace_writer.hpp"

namespace quarry::patterns {
namespace {

struct Golden {
  const char* pattern;
  std::uint32_t sum;  // CRC-32 of the trace as CSV
};

void PrintTo(const Golden& golden, std::ostream* out) {
  *out << golden.pattern;
}

class PatternGolden : public testing::TestWithParam<Golden> {
 protected:
  void SetUp() override {
    const Pattern* const pattern = find_pattern(GetParam().pattern);
    ASSERT_NE(pattern, nullptr);
    Result<PatternTrace> trace = make_trace(*pattern, {make_knob_values(*pattern), {}}, 0);
    ASSERT_TRUE(trace.is_ok()) << trace.status().message();
    events_ = std::move(trace).value().events;
  }

  std::vector<TraceEvent> events_;
};

// The cells of the pattern's row in the table of the page, as they stand there.
std::vector<std::string> read_documented(const std::string& pattern) {
  std::ifstream page(QUARRY_PATTERNS_PAGE);
  std::vector<std::string> cells;
  for (std::string line; std::getline(page, line);) {
    if (!line.starts_with("| " + pattern + " |")) continue;
    for (std::size_t start = 2; start < line.size();) {
      const std::size_t end = line.find(" |", start);
      if (end == std::string::npos) break;
      cells.push_back(line.substr(start, end - start));
      start = end + 3;
    }
    break;
  }
  return cells;
}

TEST_P(PatternGolden, IsTheSameOnEveryPlatform) {
  std::uint32_t sum = 0;
  TraceWriter writer(TraceFormat::kCsv, [&sum](std::span<const char> bytes) {
    sum = calculate_crc32(bytes, sum);
    return Status::ok();
  });
  ASSERT_TRUE(writer.write(events_).is_ok());
  ASSERT_TRUE(writer.finish().is_ok());
  EXPECT_EQ(sum, GetParam().sum) << fmt::format("{:#010x}", sum);
}

// "*model*" stands for the dimensions of a transformer, where a pattern has them.
std::string join_knobs(const Pattern& pattern) {
  const std::set<std::string_view> model = {"layers", "hidden", "heads", "kv-heads",
                                            "ffn",    "vocab",  "dtype"};
  const bool has_model = make_knob_values(pattern).has("layers");
  std::string joined = has_model ? "*model*" : "";
  for (const Knob& knob : pattern.knobs) {
    if (has_model && model.contains(knob.name)) continue;
    joined += (joined.empty() ? "" : ", ") + std::string(knob.name);
  }
  return joined;
}

TEST_P(PatternGolden, HasTheKnobsThatAreDocumented) {
  const std::vector<std::string> cells = read_documented(GetParam().pattern);
  ASSERT_EQ(cells.size(), 6u);
  EXPECT_EQ(cells[2], join_knobs(*find_pattern(GetParam().pattern)));
}

TEST_P(PatternGolden, HasTheEventsPeakAndTimeThatAreDocumented) {
  TraceChecker checker;
  for (const TraceEvent& event : events_) {
    TraceSlot slot = 0;
    ASSERT_EQ(checker.check(event, slot), TraceFault::kNone);
  }
  const std::vector<std::string> cells = read_documented(GetParam().pattern);
  ASSERT_EQ(cells.size(), 6u);
  EXPECT_EQ(cells[3], std::to_string(checker.totals().events));
  EXPECT_EQ(cells[4], std::to_string(checker.totals().peak_bytes));
  EXPECT_EQ(cells[5], fmt::format("{:.2f}", static_cast<double>(events_.back().time_us) / 1e6));
}

constexpr Golden kGoldens[] = {
    {"kv_concat", 0x5ffba8b0},
    {"kv_static", 0x6e1dd7fd},
    {"batch_wobble", 0xb2ef4ea7},
    {"chunked_prefill", 0x6be27256},
    {"continuous_batching", 0x173dc6d8},
    {"two_batch_overlap", 0x06b25cce},
    {"moe", 0x8a44fa9f},
    {"graph_buckets", 0xa80360e8},
    {"sharded_layers", 0xddbf7749},
    {"ragged_training", 0x6dd6715e},
    {"unet", 0x3bd4b8bd},
    {"server_threads", 0x944e6b5f},
    {"one_shot_stream", 0x98b3cb58},
    {"growing_scratch", 0x3da88c42},
    {"weight_swizzle", 0x0839a8ff},
};

INSTANTIATE_TEST_SUITE_P(Patterns, PatternGolden, testing::ValuesIn(kGoldens),
                         [](const auto& param) { return std::string(param.param.pattern); });

TEST(PatternGoldenTest, EveryPatternHasOne) {
  ASSERT_EQ(std::size(kGoldens), list_patterns().size());
  for (std::size_t i = 0; i < list_patterns().size(); ++i)
    EXPECT_EQ(kGoldens[i].pattern, list_patterns()[i]->name);
}

}  // namespace
}  // namespace quarry::patterns
