// SPDX-License-Identifier: Apache-2.0
// What expandable segments reserve: the recorded traces to the byte, with the GPU 0, 2 and 20 ms
// behind, and every pattern of the generator within its bound. No hazard and no out-of-memory,
// where nothing limits.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "api/config_parser.hpp"
#include "patterns/pattern.hpp"
#include "tools/replayer.hpp"
#include "tools/trace_file.hpp"

namespace quarry::tools {
namespace {

constexpr std::uint64_t kLagsUs[] = {0, 2'000, 20'000};

Result<std::unique_ptr<Replayer>> make_replayer(const std::string& conf, std::uint64_t lag_us) {
  Result<ParsedConfig> parsed = parse_config(conf, Config{}, ParseMode::kStrict);
  if (!parsed.is_ok()) return std::move(parsed).status();
  ReplayOptions options;
  options.config = parsed.value().config;
  options.gpu_lag_us = lag_us;
  return Replayer::create(options);
}

Result<ReplayResult> replay(const std::string& conf, const std::vector<TraceEvent>& events,
                            std::uint64_t lag_us) {
  Result<std::unique_ptr<Replayer>> replayer = make_replayer(conf, lag_us);
  if (!replayer.is_ok()) return std::move(replayer).status();
  Status status = replayer.value()->replay(events);
  if (!status.is_ok()) return status;
  return replayer.value()->finish();
}

Result<std::vector<TraceEvent>> read_trace(const std::string& name) {
  Result<std::unique_ptr<TraceFile>> file =
      TraceFile::open(std::string(QUARRY_TRACES "/") + name + ".csv.gz", true);
  if (!file.is_ok()) return std::move(file).status();
  Result<std::unique_ptr<TraceReader>> reader = file.value()->rewind();
  if (!reader.is_ok()) return std::move(reader).status();
  std::vector<TraceEvent> all;
  std::vector<TraceEvent> events(4096);
  while (true) {
    Result<std::size_t> count = reader.value()->read(events);
    if (!count.is_ok()) return std::move(count).status();
    if (count.value() == 0) return all;
    all.insert(all.end(), events.begin(),
               events.begin() + static_cast<std::ptrdiff_t>(count.value()));
  }
}

void expect_within(const ReplayResult& result, double bound) {
  EXPECT_LE(static_cast<double>(result.peak_reserved_bytes),
            bound * static_cast<double>(result.trace.peak_bytes));
  EXPECT_EQ(result.ooms, 0u);
  EXPECT_EQ(result.hazards, 0u) << result.first_hazard;
}

struct Golden {
  const char* trace;
  double bound;  // of reserved to the trace's own peak
  Bytes peak_reserved_bytes[std::size(kLagsUs)];
};

void PrintTo(const Golden& golden, std::ostream* out) {
  *out << golden.trace;
}

class RecyclingGolden : public testing::TestWithParam<Golden> {};

TEST_P(RecyclingGolden, IsUnchangedAndWithinItsBound) {
  const auto events = read_trace(GetParam().trace);
  ASSERT_TRUE(events.is_ok()) << events.status().message();
  for (std::size_t i = 0; i < std::size(kLagsUs); ++i) {
    SCOPED_TRACE(std::to_string(kLagsUs[i]) + " us behind");
    const auto result =
        replay("segments:expandable,thread_cache:False", events.value(), kLagsUs[i]);
    ASSERT_TRUE(result.is_ok()) << result.status().message();
    EXPECT_EQ(result.value().peak_reserved_bytes, GetParam().peak_reserved_bytes[i]);
    expect_within(result.value(), GetParam().bound);
  }
}

TEST_P(RecyclingGolden, IsWithinItsBoundWithMagazines) {
  const auto events = read_trace(GetParam().trace);
  ASSERT_TRUE(events.is_ok()) << events.status().message();
  for (const std::uint64_t lag_us : kLagsUs) {
    SCOPED_TRACE(std::to_string(lag_us) + " us behind");
    const auto result = replay("segments:expandable", events.value(), lag_us);
    ASSERT_TRUE(result.is_ok()) << result.status().message();
    expect_within(result.value(), GetParam().bound);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Traces, RecyclingGolden,
    testing::Values(Golden{"train_varlen", 1.05, {7113539584, 7178551296, 7178551296}},
                    Golden{"prefill_static_kv", 1.05, {19337838592, 19337838592, 19335741440}},
                    Golden{"moe_dynamic", 1.05, {809500672, 809500672, 809500672}},
                    Golden{"fsdp_lora", 1.05, {10565451776, 10559160320, 10565451776}},
                    Golden{"llama_batch_bins", 1.05, {3359637504, 3359637504, 3359637504}},
                    Golden{"graph_buckets", 1.05, {1279262720, 1283457024, 1279262720}},
                    Golden{"tbo_record_stream", 1.1, {429916160, 421527552, 421527552}}),
    [](const auto& param) { return std::string(param.param.trace); });

class RecyclingOfPatterns : public testing::TestWithParam<const patterns::Pattern*> {};

TEST_P(RecyclingOfPatterns, StaysWithinFivePercent) {
  const patterns::Pattern& pattern = *GetParam();
  const auto trace = patterns::make_trace(pattern, {patterns::make_knob_values(pattern), {}}, 0);
  ASSERT_TRUE(trace.is_ok()) << trace.status().message();
  for (const std::uint64_t lag_us : kLagsUs) {
    SCOPED_TRACE(std::to_string(lag_us) + " us behind");
    const auto result = replay("segments:expandable", trace.value().events, lag_us);
    ASSERT_TRUE(result.is_ok()) << result.status().message();
    expect_within(result.value(), 1.05);
  }
}

INSTANTIATE_TEST_SUITE_P(Patterns, RecyclingOfPatterns,
                         testing::ValuesIn(patterns::list_patterns().begin(),
                                           patterns::list_patterns().end()),
                         [](const auto& param) { return std::string(param.param->name); });

}  // namespace
}  // namespace quarry::tools
