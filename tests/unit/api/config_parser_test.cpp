// SPDX-License-Identifier: Apache-2.0
// What configuration texts mean: the grammar, every option's effect, what is left as it was, and
// the warnings. Texts that are refused are in config_rejection_test.cpp.
#include "api/config_parser.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "api/config_options.hpp"

namespace quarry {
namespace {

ParsedConfig parse(std::string_view text, const Config& base = {},
                   ParseMode mode = ParseMode::kStrict) {
  auto parsed = parse_config(text, base, mode);
  EXPECT_TRUE(parsed.is_ok()) << text << ": " << parsed.status().message();
  return parsed.is_ok() ? std::move(parsed).value() : ParsedConfig{};
}

RoundupDivisions divisions(std::initializer_list<std::uint32_t> values) {
  RoundupDivisions out{};
  std::copy(values.begin(), values.end(), out.begin());
  return out;
}

TEST(ConfigGrammar, C55EmptyTextAndStrayCommasChangeNothing) {
  const std::string_view texts[] = {"", ",,", " , ,\t\n"};
  Config base;
  base.max_split_bytes = 64_MiB;
  for (const auto text : texts) {
    const ParsedConfig parsed = parse(text, base);
    EXPECT_EQ(parsed.config, base) << text;
    EXPECT_TRUE(parsed.warnings.empty()) << text;
  }
}

TEST(ConfigGrammar, C55WhiteSpaceIsIgnoredWhereverItStands) {
  EXPECT_EQ(parse(" max_split_size_mb : 128 ").config.max_split_bytes, 128_MiB);
  EXPECT_EQ(parse("max_split_\nsize_mb:1 2 8").config.max_split_bytes, 128_MiB);
  EXPECT_EQ(parse(" roundup_power2_divisions : [ 1 : 2 , > : 4 ] ").config,
            parse("roundup_power2_divisions:[1:2,>:4]").config);
}

TEST(ConfigGrammar, StrayCommasBetweenOptionsAreIgnored) {
  const Config config = parse(",max_split_size_mb:128,,throw_on_cudamalloc_oom:True,").config;
  EXPECT_EQ(config.max_split_bytes, 128_MiB);
  EXPECT_TRUE(config.throw_on_cudamalloc_oom);
}

TEST(ConfigGrammar, C55OfADuplicateKeyTheLastHoldsWithOneWarning) {
  const ParsedConfig parsed = parse(
      "max_split_size_mb:64,upstream_quirks:False,max_split_size_mb:128,"
      "max_split_size_mb:256");
  EXPECT_EQ(parsed.config.max_split_bytes, 256_MiB);
  ASSERT_EQ(parsed.warnings.size(), 1u);
  EXPECT_NE(parsed.warnings[0].find("'max_split_size_mb' is given 3 times"), std::string::npos)
      << parsed.warnings[0];
  EXPECT_NE(parsed.warnings[0].find("offset 65"), std::string::npos) << parsed.warnings[0];
}

TEST(ConfigOptions, EveryOptionSetsItsField) {
  const Config c = parse(
                       "large_segment_size_mb:32,max_split_size_mb:256,"
                       "max_non_split_rounding_mb:40,garbage_collection_threshold:0.75,"
                       "roundup_power2_divisions:8,per_process_memory_fraction:0.5,"
                       "throw_on_cudamalloc_oom:True,upstream_quirks:False,segments:plain,"
                       "graph_capture_reclaim:False,graph_pools:automatic,"
                       "expandable_segments:False,thread_cache:False,backend:native,"
                       "release_lock_on_cudamalloc:True,release_lock_on_hipmalloc:True,"
                       "graph_capture_record_stream_reuse:True,cross_stream_reuse:idle,"
                       "recycle:passed,reserve_slack:0.1,extent_handle_types:fabric,"
                       "rdma:off")
                       .config;
  EXPECT_EQ(c.cross_stream_reuse, CrossStreamReuse::kIdle);
  EXPECT_EQ(c.recycle, Recycle::kPassed);
  EXPECT_EQ(c.reserve_slack, 0.1);
  EXPECT_EQ(c.extent_handle_types, ExtentKind::HandleType::kFabric);
  EXPECT_EQ(parse("extent_handle_types:posix_fd").config.extent_handle_types,
            ExtentKind::HandleType::kFileDescriptor);
  EXPECT_FALSE(c.rdma);
  EXPECT_FALSE(c.expandable_segments);
  EXPECT_TRUE(parse("segments:expandable").config.expandable_segments);
  EXPECT_TRUE(parse("expandable_segments:True").config.expandable_segments);
  EXPECT_EQ(parse("cross_stream_reuse:off,recycle:off").config.cross_stream_reuse,
            CrossStreamReuse::kOff);
  EXPECT_EQ(parse("cross_stream_reuse:off,recycle:off").config.recycle, Recycle::kOff);
  EXPECT_EQ(c.large_segment_bytes, 32_MiB);
  EXPECT_EQ(c.max_split_bytes, 256_MiB);
  EXPECT_EQ(c.max_non_split_rounding_bytes, 40_MiB);
  EXPECT_EQ(c.garbage_collection_threshold, 0.75);
  for (const std::uint32_t d : c.roundup_power2_divisions)
    EXPECT_EQ(d, 8u);
  EXPECT_EQ(c.per_process_memory_fraction, 0.5);
  EXPECT_TRUE(c.throw_on_cudamalloc_oom);
  EXPECT_FALSE(c.upstream_quirks);
  EXPECT_FALSE(c.graph_capture_reclaim);
  EXPECT_TRUE(c.automatic_graph_pools);
  EXPECT_TRUE(c.graph_capture_record_stream_reuse);
}

TEST(ConfigOptions, EveryDefaultInTheTableIsTheDefaultOfTheConfig) {
  for (const ConfigOption& option : get_config_options()) {
    const std::string text = std::string(option.name) + ":" + std::string(option.default_text);
    EXPECT_EQ(parse(text).config, Config{}) << text;
  }
}

TEST(ConfigOptions, EachOptionLeavesTheOthersAsTheyAre) {
  const Config base = parse(
                          "large_segment_size_mb:32,max_split_size_mb:256,"
                          "max_non_split_rounding_mb:40,garbage_collection_threshold:0.75,"
                          "roundup_power2_divisions:8,per_process_memory_fraction:0.5,"
                          "throw_on_cudamalloc_oom:True,upstream_quirks:False")
                          .config;
  Config expected = base;
  expected.max_split_bytes = 512_MiB;
  EXPECT_EQ(parse("max_split_size_mb:512", base).config, expected);
  expected = base;
  expected.throw_on_cudamalloc_oom = false;
  EXPECT_EQ(parse("throw_on_cudamalloc_oom:False", base).config, expected);
  expected = base;
  expected.roundup_power2_divisions = {};
  EXPECT_EQ(parse("roundup_power2_divisions:0", base).config, expected);
}

TEST(ConfigOptions, WhatWasSetCanBeTurnedOffAgain) {
  const Config base = parse(
                          "max_split_size_mb:256,per_process_memory_fraction:0.5,"
                          "garbage_collection_threshold:0.5,roundup_power2_divisions:4")
                          .config;
  EXPECT_EQ(parse("max_split_size_mb:unlimited,per_process_memory_fraction:1,"
                  "garbage_collection_threshold:0,roundup_power2_divisions:0",
                  base)
                .config,
            Config{});
}

TEST(ConfigOptions, TheOrderOfLargeSegmentAndItsDependentsDoesNotMatter) {
  EXPECT_EQ(parse("max_split_size_mb:15,large_segment_size_mb:12").config,
            parse("large_segment_size_mb:12,max_split_size_mb:15").config);
}

TEST(RoundupDivisions, AScalarHoldsForAllIntervals) {
  RoundupDivisions all{};
  all.fill(4);
  EXPECT_EQ(parse("roundup_power2_divisions:4").config.roundup_power2_divisions, all);
}

TEST(RoundupDivisions, TheFirstKeyFillsTheLowerIntervals) {
  EXPECT_EQ(parse("roundup_power2_divisions:[256:1,512:2,>:4]").config.roundup_power2_divisions,
            divisions({1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 4, 4, 4, 4, 4}));
}

TEST(RoundupDivisions, C53AGapInheritsTheNearestLowerKey) {
  EXPECT_EQ(parse("roundup_power2_divisions:[1:1,4:2,16:4]").config.roundup_power2_divisions,
            divisions({1, 1, 2, 2, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4}));
}

TEST(RoundupDivisions, OnlyTheRestKeyFillsAll) {
  RoundupDivisions all{};
  all.fill(2);
  EXPECT_EQ(parse("roundup_power2_divisions:[>:2]").config.roundup_power2_divisions, all);
}

TEST(RoundupDivisions, ZeroSwitchesAnIntervalOff) {
  EXPECT_EQ(parse("roundup_power2_divisions:[1:0,1024:8]").config.roundup_power2_divisions,
            divisions({0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 8, 8, 8, 8, 8}));
}

TEST(RoundupDivisions, TheLargestKeyLeavesNothingForTheRest) {
  EXPECT_EQ(parse("roundup_power2_divisions:[1:2,32768:4,>:8]").config.roundup_power2_divisions,
            divisions({2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 4}));
}

TEST(RoundupDivisions, AListReplacesAnEarlierOneAsAWhole) {
  const Config base = parse("roundup_power2_divisions:[1:2,64:16]").config;
  EXPECT_EQ(parse("roundup_power2_divisions:[>:4]", base).config,
            parse("roundup_power2_divisions:4").config);
}

TEST(ConfigLenient, C55UnknownKeysBecomeOneWarningAndKnownOnesApply) {
  const ParsedConfig parsed =
      parse("foo_bar:3,max_split_size_mb:128,baz:[1:2],pinned_num_register_threads:8", {},
            ParseMode::kLenient);
  EXPECT_EQ(parsed.config.max_split_bytes, 128_MiB);
  ASSERT_EQ(parsed.warnings.size(), 1u);
  EXPECT_NE(parsed.warnings[0].find("'foo_bar' at offset 0"), std::string::npos);
  EXPECT_NE(parsed.warnings[0].find("'baz' at offset 32"), std::string::npos);
}

TEST(ConfigLenient, ManyUnknownKeysMakeOneShortWarning) {
  std::string text;
  for (int i = 0; i < 10'000; ++i)
    text += "k" + std::to_string(i) + ":1,";
  const ParsedConfig parsed = parse(text, {}, ParseMode::kLenient);
  ASSERT_EQ(parsed.warnings.size(), 1u);
  EXPECT_LT(parsed.warnings[0].size(), 300u);
  EXPECT_NE(parsed.warnings[0].find("9996 more"), std::string::npos) << parsed.warnings[0];
}

TEST(ConfigLenient, TheEnvironmentTurnsItOn) {
  ::unsetenv("QUARRY_CONF_LENIENT");
  EXPECT_EQ(get_parse_mode_from_environment(), ParseMode::kStrict);
  ::setenv("QUARRY_CONF_LENIENT", "1", 1);
  EXPECT_EQ(get_parse_mode_from_environment(), ParseMode::kLenient);
  ::setenv("QUARRY_CONF_LENIENT", "0", 1);
  EXPECT_EQ(get_parse_mode_from_environment(), ParseMode::kStrict);
  ::unsetenv("QUARRY_CONF_LENIENT");
}

TEST(ConfigWarnings, SettingsWithoutEffectAreNamed) {
  const auto count = [](std::string_view text) { return parse(text).warnings.size(); };
  EXPECT_EQ(count("garbage_collection_threshold:0.5"), 1u);
  EXPECT_EQ(count("garbage_collection_threshold:0.5,per_process_memory_fraction:0.9"), 0u);
  EXPECT_EQ(count("garbage_collection_threshold:0.5,upstream_quirks:False"), 0u);
  EXPECT_EQ(count("roundup_power2_divisions:[1:1,4:2]"), 1u);
  EXPECT_EQ(count("roundup_power2_divisions:1,upstream_quirks:False"), 0u);
  EXPECT_EQ(count("max_non_split_rounding_mb:40"), 1u);
  EXPECT_EQ(count("max_non_split_rounding_mb:40,max_split_size_mb:64"), 0u);
}

TEST(ConfigFormat, TheWrittenFormParsesToTheSameConfig) {
  const std::string_view texts[] = {
      "",
      "large_segment_size_mb:64",
      "large_segment_size_mb:32,max_split_size_mb:256,max_non_split_rounding_mb:40",
      "garbage_collection_threshold:0.1,per_process_memory_fraction:0.3333333333333333",
      "roundup_power2_divisions:[256:1,512:2,>:4],throw_on_cudamalloc_oom:True",
      "upstream_quirks:False,roundup_power2_divisions:2147483648",
  };
  for (const auto text : texts) {
    const Config config = parse(text).config;
    EXPECT_EQ(parse(format_config(config)).config, config) << format_config(config);
  }
}

TEST(ConfigHelp, NamesEveryOptionWithWhatIsAllowed) {
  const std::string help = format_config_help();
  for (const ConfigOption& option : get_config_options()) {
    EXPECT_NE(help.find(std::string(option.name) + ":<"), std::string::npos) << option.name;
    EXPECT_NE(help.find(option.allowed), std::string::npos) << option.name;
  }
}

}  // namespace
}  // namespace quarry
