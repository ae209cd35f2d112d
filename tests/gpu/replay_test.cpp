// SPDX-License-Identifier: Apache-2.0
// The recorded traces on the real device, through the command line tool, with kernels that fill
// and check every block. In step with the host every figure is the simulated device's; with the
// GPU behind as it happens to be, no word may be wrong either.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

namespace quarry {
namespace {

// The tool's one JSON object for a trace.
nlohmann::json replay(const std::string& trace, const std::string& options, int& exit_code) {
  const std::string command = "timeout 250 '" QUARRY_TOOL "' replay '" QUARRY_TRACES "/" + trace +
                              ".csv.gz' --json --segments " + options;
  std::FILE* const pipe = ::popen(command.c_str(), "r");
  std::string text;
  std::array<char, 4096> part{};
  while (std::fgets(part.data(), part.size(), pipe) != nullptr)
    text += part.data();
  exit_code = ::pclose(pipe);
  return nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
}

class GpuReplay : public testing::TestWithParam<const char*> {};

TEST_P(GpuReplay, HasTheSimulatedFiguresInStepAndNoWrongWord) {
  int exit_code = 0;
  const auto simulated = replay(GetParam(), "--oracle off", exit_code);
  ASSERT_EQ(exit_code, 0);
  const auto real = replay(
      GetParam(), "--driver cuda --touch --in-step --reference " QUARRY_TRACES "/pytorch.csv",
      exit_code);
  ASSERT_EQ(exit_code, 0) << real.dump();
  std::printf("%s\n", real.dump().c_str());
  for (const char* figure :
       {"allocs", "frees", "peak_allocated_bytes", "peak_active_bytes", "peak_reserved_bytes",
        "ooms", "segments_equal", "equal_segments", "driver_calls"}) {
    EXPECT_EQ(real[figure], simulated[figure]) << figure;
  }
  EXPECT_EQ(real["wrong_words"], 0);
  EXPECT_GT(real["touched_bytes"], 0);
}

TEST_P(GpuReplay, HasNoWrongWordWithTheGpuBehind) {
  for (const char* conf : {"segments:plain,thread_cache:False", "thread_cache:True",
                           "segments:expandable,thread_cache:False", "segments:expandable"}) {
    int exit_code = 0;
    const auto real =
        replay(GetParam(), std::string("--driver cuda --touch --conf ") + conf, exit_code);
    ASSERT_EQ(exit_code, 0) << real.dump();
    std::printf("%s\n", real.dump().c_str());
    EXPECT_EQ(real["wrong_words"], 0) << conf;
    EXPECT_GT(real["touched_bytes"], 0);
    EXPECT_EQ(real["ooms"], 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Traces, GpuReplay,
                         testing::Values("train_varlen", "prefill_static_kv", "moe_dynamic",
                                         "fsdp_lora", "llama_batch_bins", "graph_buckets",
                                         "tbo_record_stream"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace quarry
