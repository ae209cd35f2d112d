// SPDX-License-Identifier: Apache-2.0
// The recorded traces under the configuration that decides as PyTorch does. The reserved bytes of
// the first four are PyTorch's own, to the byte, and so are their segments in order. The driver
// calls are ours: they rise only on purpose.
#include <gtest/gtest.h>

#include "api/config_parser.hpp"
#include "tools/replayer.hpp"
#include "tools/trace_file.hpp"

namespace quarry::tools {
namespace {

struct Golden {
  const char* trace;
  std::uint64_t gpu_lag_us;
  std::uint64_t allocs;
  Bytes trace_peak_bytes;
  Bytes peak_allocated_bytes;  // PyTorch's, where the traces' README gives it
  Bytes peak_reserved_bytes;
  std::uint64_t driver_calls;
  bool has_recorded_segments;  // the sequence of segment sizes is the recorded one
};

void PrintTo(const Golden& golden, std::ostream* out) {
  *out << golden.trace;
}

Result<ReplayResult> replay_file(const Golden& golden) {
  Result<ParsedConfig> parsed =
      parse_config("segments:plain,thread_cache:False", Config{}, ParseMode::kStrict);
  if (!parsed.is_ok()) return std::move(parsed).status();
  ReplayOptions options;
  options.config = parsed.value().config;
  options.gpu_lag_us = golden.gpu_lag_us;
  options.compare_segments = true;
  Result<std::unique_ptr<TraceFile>> file =
      TraceFile::open(std::string(QUARRY_TRACES "/") + golden.trace + ".csv.gz", true);
  if (!file.is_ok()) return std::move(file).status();
  Result<std::unique_ptr<TraceReader>> reader = file.value()->rewind();
  if (!reader.is_ok()) return std::move(reader).status();
  Result<std::unique_ptr<Replayer>> replayer = Replayer::create(options);
  if (!replayer.is_ok()) return std::move(replayer).status();
  std::vector<TraceEvent> events(4096);
  for (;;) {
    Result<std::size_t> count = reader.value()->read(events);
    if (!count.is_ok()) return std::move(count).status();
    if (count.value() == 0) return replayer.value()->finish();
    Status status = replayer.value()->replay({events.data(), count.value()});
    if (!status.is_ok()) return status;
  }
}

class ReplayGolden : public testing::TestWithParam<Golden> {};

TEST_P(ReplayGolden, IsUnchanged) {
  const Golden& golden = GetParam();
  const Result<ReplayResult> replayed = replay_file(golden);
  ASSERT_TRUE(replayed.is_ok()) << replayed.status().message();
  const ReplayResult& result = replayed.value();
  EXPECT_EQ(result.trace.allocs, golden.allocs);
  EXPECT_EQ(result.trace.peak_bytes, golden.trace_peak_bytes);
  EXPECT_EQ(result.peak_allocated_bytes, golden.peak_allocated_bytes);
  EXPECT_EQ(result.peak_reserved_bytes, golden.peak_reserved_bytes);
  EXPECT_EQ(result.driver_calls, golden.driver_calls);
  EXPECT_EQ(result.segment_difference.empty(), golden.has_recorded_segments)
      << result.segment_difference;
  EXPECT_EQ(result.ooms, 0u);
  EXPECT_EQ(result.hazards, 0u) << result.first_hazard;
}

INSTANTIATE_TEST_SUITE_P(
    Traces, ReplayGolden,
    testing::Values(
        Golden{"train_varlen", 0, 45400, 6935750144, 6940482048, 21606957056, 161, true},
        Golden{"prefill_static_kv", 0, 36141, 18959264768, 18959968768, 22533898240, 212, true},
        Golden{"moe_dynamic", 0, 95221, 793781248, 793781248, 924844032, 29, true},
        Golden{"fsdp_lora", 0, 29857, 10359391232, 10384065536, 16546529280, 1390, true},
        Golden{"llama_batch_bins", 0, 110788, 3297983488, 3303259136, 3934257152, 221, false},
        Golden{"graph_buckets", 0, 15741, 1256207360, 1262414848, 1382023168, 197, false},
        Golden{"tbo_record_stream", 0, 5823, 411189248, 411189248, 1186988032, 26919, false},
        Golden{"tbo_record_stream", 20000, 5823, 411189248, 411877376, 24995954688, 41323, false}),
    [](const auto& param) {
      const Golden& golden = param.param;
      return std::string(golden.trace) + (golden.gpu_lag_us == 0 ? "" : "_late");
    });

}  // namespace
}  // namespace quarry::tools
