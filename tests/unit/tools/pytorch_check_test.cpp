// SPDX-License-Identifier: Apache-2.0
// PyTorch's settings of its allocator beside QUARRY_CONF.
#include <gtest/gtest.h>

#include "tools/environment_check.hpp"

namespace quarry::tools {
namespace {

struct Case {
  const char* name;
  const char* pytorch;
  const char* quarry;
  const char* finding;  // "HURTS" or "note" and a part of the text; empty: nothing to say
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

class PyTorchOption : public testing::TestWithParam<Case> {};

TEST_P(PyTorchOption, IsHeldAgainstQuarrysOwn) {
  const Case& c = GetParam();
  const Findings findings =
      check_pytorch_variables({{"PYTORCH_CUDA_ALLOC_CONF", c.pytorch}, {"QUARRY_CONF", c.quarry}});
  const std::string expected = c.finding;
  if (expected.empty()) {
    EXPECT_EQ(findings, Findings{});
    return;
  }
  ASSERT_EQ(findings.size(), 1u);
  const std::string severity = expected.substr(0, expected.find(' '));
  EXPECT_EQ(findings[0].severity == Severity::kHurts ? "HURTS" : "note", severity);
  EXPECT_EQ(findings[0].subject, "PYTORCH_CUDA_ALLOC_CONF");
  EXPECT_NE(findings[0].text.find(expected.substr(severity.size() + 1)), std::string::npos)
      << findings[0].text;
  EXPECT_NE(findings[0].advice, "");
}

INSTANTIATE_TEST_SUITE_P(
    Options, PyTorchOption,
    testing::Values(
        Case{"Equal", "max_split_size_mb:256", "max_split_size_mb:256", ""},
        Case{"EqualLists", "roundup_power2_divisions:[256:1, >:4]",
             "roundup_power2_divisions:[256:1,>:4]", ""},
        Case{"AtItsDefault", "expandable_segments:False", "", ""},
        Case{"Contradiction", "max_split_size_mb:256", "max_split_size_mb:128",
             "HURTS QUARRY_CONF 'max_split_size_mb:128'"},
        Case{"ContradictionToADefault", "garbage_collection_threshold:0",
             "garbage_collection_threshold:0.8", "HURTS QUARRY_CONF"},
        Case{"OnlyThere", "garbage_collection_threshold:0.8", "",
             "note which QUARRY_CONF does not"},
        Case{"NotHere", "pinned_use_cuda_host_register:True", "", "note pinned host memory"},
        Case{"NeverHeardOf", "frobnicate:7", "", "note 'frobnicate', which Quarry does not have"},
        Case{"ExpandableOnlyThere", "expandable_segments:True", "",
             "note which QUARRY_CONF does not"},
        Case{"OtherBackend", "backend:cudaMallocAsync", "", "HURTS backend"},
        Case{"BadText", "max_split_size_mb", "", "HURTS offset"}),
    [](const auto& param) { return std::string(param.param.name); });

TEST(PyTorchVariables, AreReadInPyTorchsOrder) {
  const Environment only_new = {{"PYTORCH_ALLOC_CONF", "backend:cudaMallocAsync"}};
  ASSERT_EQ(check_pytorch_variables(only_new).size(), 1u);
  EXPECT_EQ(check_pytorch_variables(only_new)[0].subject, "PYTORCH_ALLOC_CONF");
  const Environment equal = {{"PYTORCH_ALLOC_CONF", "max_split_size_mb:64"},
                             {"PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64"},
                             {"QUARRY_CONF", "max_split_size_mb:64"}};
  EXPECT_EQ(check_pytorch_variables(equal), Findings{});
  Environment different = equal;
  different["PYTORCH_ALLOC_CONF"] = "max_split_size_mb:32";
  const Findings findings = check_pytorch_variables(different);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].severity, Severity::kHurts);
  EXPECT_EQ(findings[0].subject, "PYTORCH_ALLOC_CONF");
}

TEST(PyTorchVariables, ReportEveryOption) {
  EXPECT_EQ(check_pytorch_variables({{"PYTORCH_CUDA_ALLOC_CONF",
                                      "max_split_size_mb:64,pinned_num_register_threads:8,"
                                      "expandable_segments:True,backend:native"}})
                .size(),
            3u);
}

TEST(PyTorchVariables, SayThatCachingIsOff) {
  const Findings findings = check_pytorch_variables({{"PYTORCH_NO_CUDA_MEMORY_CACHING", "1"}});
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].severity, Severity::kHurts);
}

}  // namespace
}  // namespace quarry::tools
