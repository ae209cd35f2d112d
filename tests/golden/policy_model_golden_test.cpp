// SPDX-License-Identifier: Apache-2.0
// The models of bench/policy_model on the recorded traces. The figures of upstream's expandable
// policy are those that examples/traces/README.md gives; all but the last are PyTorch's own.
#include <gtest/gtest.h>

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

TEST_P(UpstreamExpandableGolden, ReservesWhatPyTorchDid) {
  const Result<PolicyTrace> trace =
      read_policy_trace(std::string(QUARRY_TRACES "/") + GetParam().trace + ".csv.gz");
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

}  // namespace
}  // namespace quarry::policy_model
