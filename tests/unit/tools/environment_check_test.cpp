// SPDX-License-Identifier: Apache-2.0
// Quarry's and CUDA's variables, and LD_PRELOAD: each value that hurts, and those that do not.
#include "tools/environment_check.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace quarry::tools {
namespace {

using namespace std::string_literals;

// Severities and subjects, as "HURTS QUARRY_CONF" or "note LD_PRELOAD"; each has advice.
std::vector<std::string> summarise(const Findings& findings) {
  std::vector<std::string> lines;
  for (const Finding& finding : findings) {
    EXPECT_NE(finding.text, "") << finding.subject;
    EXPECT_NE(finding.advice, "") << finding.subject;
    lines.push_back((finding.severity == Severity::kHurts ? "HURTS " : "note ") + finding.subject);
  }
  return lines;
}

using Lines = std::vector<std::string>;

bool mentions(const Findings& findings, const std::string& text) {
  return std::any_of(findings.begin(), findings.end(), [&text](const Finding& finding) {
    return finding.text.find(text) != std::string::npos;
  });
}

TEST(ParseEnvironment, TakesTheFirstOfANameAndKeepsEqualSigns) {
  const Environment environment = parse_environment("A=1\0B=x=y\0A=2\0nothing\0C=\0D=last"s);
  EXPECT_EQ(environment, (Environment{{"A", "1"}, {"B", "x=y"}, {"C", ""}, {"D", "last"}}));
  EXPECT_EQ(parse_environment(""), Environment{});
  EXPECT_EQ(find_variable(environment, "B"), "x=y");
  EXPECT_EQ(find_variable(environment, "E"), "");
}

TEST(CheckEnvironment, FindsNothingInAnOrdinaryOne) {
  EXPECT_EQ(check_environment({{"PATH", "/bin"}, {"HOME", "/root"}}), Findings{});
  EXPECT_EQ(check_environment({{"QUARRY_CONF", "max_split_size_mb:256"},
                               {"QUARRY_DRIVER", "cuda"},
                               {"QUARRY_DISABLE", "0"},
                               {"QUARRY_LOG_LEVEL", "info"},
                               {"QUARRY_CONF_LENIENT", "1"},
                               {"CUDA_LAUNCH_BLOCKING", "0"},
                               {"PYTORCH_NO_CUDA_MEMORY_CACHING", "0"},
                               {"LD_PRELOAD", ""}}),
            Findings{});
}

TEST(CheckEnvironment, ReportsEveryKindInOneGo) {
  const Findings findings = check_environment({{"QUARRY_DISABLE", "1"},
                                               {"PYTORCH_NO_CUDA_MEMORY_CACHING", "1"},
                                               {"CUDA_LAUNCH_BLOCKING", "1"},
                                               {"LD_PRELOAD", "/opt/libvgpu.so"}});
  EXPECT_EQ(summarise(findings),
            (Lines{"HURTS QUARRY_DISABLE", "HURTS PYTORCH_NO_CUDA_MEMORY_CACHING",
                   "HURTS CUDA_LAUNCH_BLOCKING", "HURTS LD_PRELOAD"}));
}

TEST(CheckQuarryVariables, GivesTheParsersOwnTextForABadConfiguration) {
  const Findings findings = check_quarry_variables({{"QUARRY_CONF", "max_split_size_mb:tiny"}});
  EXPECT_EQ(summarise(findings), Lines{"HURTS QUARRY_CONF"});
  EXPECT_EQ(findings.at(0).text,
            read_config({{"QUARRY_CONF", "max_split_size_mb:tiny"}}).status().message());
  EXPECT_TRUE(mentions(findings, "tiny"));
  EXPECT_TRUE(mentions(findings, "max_split_size_mb"));
}

TEST(CheckQuarryVariables, NamesThoseThatNobodyReads) {
  const Findings findings = check_quarry_variables(
      {{"QUARRY", "1"}, {"QUARRY_CNOF", "1"}, {"QUARRY_LIBRARY_DIR", "/lib"}, {"QUARRZ", "1"}});
  EXPECT_EQ(summarise(findings), Lines{"note QUARRY_CNOF"});
}

TEST(CheckQuarryVariables, AreAsStrictAsTheLibrary) {
  const Environment unknown = {{"QUARRY_CONF", "no_such_option:1"}};
  EXPECT_EQ(summarise(check_quarry_variables(unknown)), Lines{"HURTS QUARRY_CONF"});
  EXPECT_FALSE(read_config(unknown).is_ok());
  Environment lenient = unknown;
  lenient["QUARRY_CONF_LENIENT"] = "1";
  EXPECT_EQ(summarise(check_quarry_variables(lenient)), Lines{"note QUARRY_CONF"});
  EXPECT_TRUE(read_config(lenient).is_ok());
  lenient["QUARRY_CONF_LENIENT"] = "yes";
  EXPECT_EQ(summarise(check_quarry_variables(lenient)),
            (Lines{"HURTS QUARRY_CONF", "note QUARRY_CONF_LENIENT"}));
}

TEST(CheckQuarryVariables, ReportEachWrongValueOfItsOwn) {
  const Environment environment = {{"QUARRY_DRIVER", "hip"},
                                   {"QUARRY_SIM_DEVICES", "0"},
                                   {"QUARRY_SIM_MEMORY", "lots"},
                                   {"QUARRY_DISABLE", "maybe"}};
  const Findings findings = check_quarry_variables(environment);
  EXPECT_EQ(summarise(findings),
            (Lines{"HURTS QUARRY_DRIVER", "HURTS QUARRY_SIM_DEVICES", "HURTS QUARRY_SIM_MEMORY",
                   "HURTS QUARRY_DISABLE", "note QUARRY_SIM_DEVICES", "note QUARRY_SIM_MEMORY"}));
  for (const char* value : {"hip", "'0'", "lots", "maybe"})
    EXPECT_TRUE(mentions(findings, value)) << value;
  EXPECT_FALSE(read_process_options(environment).is_ok());
}

TEST(CheckQuarryVariables, SayWhatChangesMuch) {
  EXPECT_EQ(summarise(check_quarry_variables({{"QUARRY_DISABLE", "1"}})),
            Lines{"HURTS QUARRY_DISABLE"});
  EXPECT_EQ(
      summarise(check_quarry_variables({{"QUARRY_DRIVER", "sim"}, {"QUARRY_SIM_DEVICES", "2"}})),
      Lines{"note QUARRY_DRIVER"});
  EXPECT_EQ(summarise(check_quarry_variables({{"QUARRY_LOG_LEVEL", "loud"}})),
            Lines{"note QUARRY_LOG_LEVEL"});
}

TEST(CheckCudaVariables, KnowWhatHidesDevices) {
  for (const char* hidden : {"", "-1", "-1,0", "NoDevFiles"}) {
    EXPECT_EQ(summarise(check_cuda_variables({{"CUDA_VISIBLE_DEVICES", hidden}})),
              Lines{"HURTS CUDA_VISIBLE_DEVICES"})
        << hidden;
    EXPECT_EQ(count_visible_devices({{"CUDA_VISIBLE_DEVICES", hidden}}), 0) << hidden;
  }
  for (const auto& [visible, count] : std::vector<std::pair<std::string, int>>{
           {"0", 1}, {"2,0", 2}, {"GPU-8f6e2f1a,MIG-12", 2}, {"0,-1,1", 1}}) {
    EXPECT_EQ(summarise(check_cuda_variables({{"CUDA_VISIBLE_DEVICES", visible}})),
              Lines{"note CUDA_VISIBLE_DEVICES"})
        << visible;
    EXPECT_EQ(count_visible_devices({{"CUDA_VISIBLE_DEVICES", visible}}), count) << visible;
  }
  EXPECT_TRUE(mentions(check_cuda_variables({{"CUDA_VISIBLE_DEVICES", "1,1"}}), "twice"));
  EXPECT_EQ(count_visible_devices({}), -1);
  EXPECT_EQ(check_cuda_variables({}), Findings{});
}

TEST(CheckPreloads, TellHooksFromWhatIsHarmless) {
  const auto check = [](const char* preload) {
    return summarise(check_preloads({{"LD_PRELOAD", preload}}));
  };
  EXPECT_EQ(check("libvgpu.so"), Lines{"HURTS LD_PRELOAD"});
  EXPECT_EQ(check("/a/libnvshare.so:/b/torch_memory_saver_hook_mode_preload.abi3.so"),
            (Lines{"HURTS LD_PRELOAD", "HURTS LD_PRELOAD"}));
  EXPECT_EQ(check("/usr/lib/x86_64-linux-gnu/libcuda.so.1"), Lines{"HURTS LD_PRELOAD"});
  EXPECT_EQ(check("/usr/lib/libjemalloc.so.2 /lib/libmine.so"),
            (Lines{"note LD_PRELOAD", "note LD_PRELOAD"}));
  EXPECT_EQ(check("/usr/lib/libquarry.so"), Lines{"note LD_PRELOAD"});
  EXPECT_EQ(check("/usr/lib/libquarry_preload.so"), Lines{});
  EXPECT_EQ(check("/a/libquarry_preload.so:/b/libquarry_preload.so.0"), Lines{"HURTS LD_PRELOAD"});
}

}  // namespace
}  // namespace quarry::tools
