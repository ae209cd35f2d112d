// SPDX-License-Identifier: Apache-2.0
// The models of bench/policy_model on the recorded traces. The figures of upstream's expandable
// policy are those that examples/traces/README.md gives; all but the last are PyTorch's own.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "bench/policy_model/recycling_model.hpp"
#include "bench/policy_model/upstream_expandable.hpp"

namespace quarry::policy_model {
namespace {

struct UpstreamGolden {
  const char* trace;
  Bytes peak_reserved_bytes;
};

void PrintTo(const UpstreamGolden& golden, std::ostream* out) {
  *out << golden.trace;
}

class UpstreamExpandableGolden : public testing::TestWithParam<UpstreamGolden> {};

Result<PolicyTrace> read_trace(const std::string& name) {
  return read_policy_trace(std::string(QUARRY_TRACES "/") + name + ".csv.gz");
}

TEST_P(UpstreamExpandableGolden, ReservesWhatPyTorchDid) {
  const Result<PolicyTrace> trace = read_trace(GetParam().trace);
  ASSERT_TRUE(trace.is_ok()) << trace.status().message();
  EXPECT_EQ(replay_upstream_expandable(trace.value()).peak_reserved_bytes,
            GetParam().peak_reserved_bytes);
}

INSTANTIATE_TEST_SUITE_P(Traces, UpstreamExpandableGolden,
                         testing::Values(UpstreamGolden{"train_varlen", 8080326656},
                                         UpstreamGolden{"prefill_static_kv", 20935868416},
                                         UpstreamGolden{"moe_dynamic", 908066816},
                                         UpstreamGolden{"llama_batch_bins", 3466592256},
                                         UpstreamGolden{"fsdp_lora", 14373879808},
                                         UpstreamGolden{"graph_buckets", 1333788672}),
                         [](const auto& param) { return std::string(param.param.trace); });

// tbo_record_stream is not here: docs/recycling.md says how far it is from the aims.
constexpr const char* kRecyclingTraces[] = {"train_varlen", "prefill_static_kv",
                                            "moe_dynamic",  "llama_batch_bins",
                                            "fsdp_lora",    "graph_buckets"};

class RecyclingGolden : public testing::TestWithParam<std::uint64_t> {};

TEST_P(RecyclingGolden, TheDefaultsReachTheAimsAtThisLag) {
  RecyclingOptions options;
  options.lag_us = GetParam();
  std::vector<double> ratios;
  for (const char* name : kRecyclingTraces) {
    const Result<PolicyTrace> trace = read_trace(name);
    ASSERT_TRUE(trace.is_ok()) << trace.status().message();
    const RecyclingResult result = replay_recycling(trace.value(), options);
    const double ratio = static_cast<double>(result.peak_reserved_bytes) /
                         static_cast<double>(trace.value().totals.peak_bytes);
    EXPECT_GE(ratio, 1.0) << name;
    EXPECT_LE(ratio, 1.05) << name;
    EXPECT_LE(result.driver_us, 0.03 * static_cast<double>(trace.value().span_us)) << name;
    ratios.push_back(ratio);
  }
  std::sort(ratios.begin(), ratios.end());
  EXPECT_LE(ratios[ratios.size() / 2], 1.03);
}

INSTANTIATE_TEST_SUITE_P(Lags, RecyclingGolden, testing::Values(0, 2000, 20000),
                         [](const auto& param) { return std::to_string(param.param) + "_us"; });

}  // namespace
}  // namespace quarry::policy_model
