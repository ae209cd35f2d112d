// SPDX-License-Identifier: Apache-2.0
// Configuration texts that are refused: each message names the option, the value, the offset and
// what is allowed. That a refusal changes nothing follows from the signature (values in, values
// out); that the process's settings survive is in configure_test.cpp.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "api/config_parser.hpp"

namespace quarry {
namespace {

struct Refused {
  std::string text;
  std::vector<std::string> message;  // pieces that must occur
  Config base = {};
};

void expect_refused(const std::vector<Refused>& cases, ParseMode mode) {
  for (const Refused& one : cases) {
    const auto parsed = parse_config(one.text, one.base, mode);
    ASSERT_FALSE(parsed.is_ok()) << one.text;
    EXPECT_EQ(parsed.code(), StatusCode::kInvalidArgument) << one.text;
    const std::string message(parsed.status().message());
    for (const std::string& piece : one.message) {
      EXPECT_NE(message.find(piece), std::string::npos) << one.text << ": " << message;
    }
  }
}

TEST(ConfigRefuses, C55AnUnknownKeyInStrictMode) {
  expect_refused({{"foo_bar:3", {"'foo_bar'", "offset 0", "'3'", "max_split_size_mb"}},
                  {"expandable_segments:False,foo_bar:3", {"'foo_bar'", "offset 26"}},
                  {"Max_Split_Size_Mb:64", {"'Max_Split_Size_Mb'", "unknown"}}},
                 ParseMode::kStrict);
}

TEST(ConfigRefuses, KeysOfUpstreamWithTheReason) {
  expect_refused({{"pinned_use_background_threads:True", {"pinned host memory"}},
                  {"pinned_reserve_segment_size_mb:1024", {"pinned host memory"}},
                  {"expandable_segments_reserve:40G", {"addresses are reserved"}},
                  {"seal:free", {"'seal'", "later version"}}},
                 ParseMode::kStrict);
}

TEST(ConfigRefuses, ValuesThatThisVersionDoesNotHaveYet) {
  const std::vector<Refused> cases = {
      {"segments:auto", {"'segments'", "'auto'", "later version", "allowed: plain"}},
      {"backend:cudaMallocAsync", {"'cudaMallocAsync'", "allowed: native"}},
      {"release_lock_on_cudamalloc:False", {"never holds its lock", "allowed: True"}},
      {"release_lock_on_hipmalloc:False", {"never holds its lock"}},
      {"graph_capture_record_stream_reuse:1", {"'1'", "neither True nor False"}}};
  expect_refused(cases, ParseMode::kStrict);
  expect_refused(cases, ParseMode::kLenient);
}

TEST(ConfigRefuses, ABadValueOfAKnownKeyInBothModes) {
  const std::vector<Refused> cases = {
      {"expandable_segments:maybe", {"'expandable_segments'", "'maybe'", "offset 20", "False"}},
      {"throw_on_cudamalloc_oom:true", {"'true'", "neither True nor False"}},
      {"graph_pools:auto", {"'auto'", "is no value of this option"}},
      {"upstream_quirks:1", {"'1'", "neither True nor False"}},
      {"upstream_quirks:[1:2]", {"is a list"}},
      {"segments:lumpy", {"'lumpy'", "allowed: plain"}},
      {"cross_stream_reuse:always", {"'always'", "is no value of this option"}},
      {"recycle:True", {"'True'", "is no value of this option"}},
      {"extent_handle_types:win32", {"'win32'", "is no value of this option"}},
      {"rdma:on", {"'on'", "is no value of this option", "allowed: auto or off"}},
      {"reserve_slack:2", {"'reserve_slack'", "'2'"}},
      {"max_split_size_mb:abc", {"'abc'", "whole number"}},
      {"max_split_size_mb:-5", {"'-5'", "whole number"}},
      {"max_split_size_mb:+64", {"'+64'"}},
      {"max_split_size_mb:64.5", {"'64.5'"}},
      {"max_split_size_mb:64MB", {"'64MB'"}},
      {"max_split_size_mb:0x40", {"'0x40'"}},
      {"max_split_size_mb:18446744073709551616", {"'18446744073709551616'"}},
      {"max_split_size_mb:17592186044416", {"is above 16777216"}},
      {"large_segment_size_mb:10", {"'10'", "is below 11", "above 10"}},
      {"garbage_collection_threshold:1", {"'1'", "allowed: a number in (0, 1)"}},
      {"garbage_collection_threshold:1.0", {"'1.0'"}},
      {"garbage_collection_threshold:-0.1", {"outside"}},
      {"garbage_collection_threshold:nan", {"'nan'"}},
      {"per_process_memory_fraction:1.01", {"'1.01'", "outside [0, 1]"}},
      {"per_process_memory_fraction:inf", {"'inf'"}},
      {"per_process_memory_fraction:1e999", {"'1e999'"}},
      {"per_process_memory_fraction:half", {"'half'"}}};
  expect_refused(cases, ParseMode::kStrict);
  expect_refused(cases, ParseMode::kLenient);
}

TEST(ConfigRefuses, C53BadRoundupLists) {
  expect_refused(
      {{"roundup_power2_divisions:[3:2]", {"'3'", "offset 26", "power of two from 1 to 32768"}},
       {"roundup_power2_divisions:[>:3]", {"'3'", "offset 28", "0 nor a power of two"}},
       {"roundup_power2_divisions:[1:2", {"',' or ']'", "offset 29", "end of the text"}},
       {"roundup_power2_divisions:[>:", {"a value for '>'", "end of the text"}},
       {"roundup_power2_divisions:[1:-2]", {"'-2'", "power of two"}},
       {"roundup_power2_divisions:[0:2]", {"'0'", "from 1 to 32768"}},
       {"roundup_power2_divisions:[65536:2]", {"'65536'", "from 1 to 32768"}},
       {"roundup_power2_divisions:[]", {"a key inside the list", "']'"}},
       {"roundup_power2_divisions:[1:2,]", {"a key inside the list"}},
       {"roundup_power2_divisions:[1]", {"':' after '1'"}},
       {"roundup_power2_divisions:[[1:2]]", {"a key inside the list", "'['"}},
       {"roundup_power2_divisions:3", {"'3'", "power of two"}},
       {"roundup_power2_divisions:4294967296", {"'4294967296'"}}},
      ParseMode::kStrict);
}

TEST(ConfigRefuses, BrokenGrammarWithTheOffset) {
  expect_refused({{"max_split_size_mb", {"':' after option 'max_split_size_mb'", "offset 17"}},
                  {"max_split_size_mb:", {"a value for option", "offset 18", "end of the text"}},
                  {"max_split_size_mb:,", {"a value for option", "','"}},
                  {":128", {"an option", "offset 0"}},
                  {"max_split_size_mb:128:3", {"','", "offset 21"}},
                  {"max_split_size_mb:128]", {"','", "']'"}},
                  {"[1:2]", {"an option", "'['"}},
                  {"roundup_power2_divisions:[1:2]x", {"','", "'x'"}}},
                 ParseMode::kStrict);
  expect_refused({{"foo", {"':' after option 'foo'"}}}, ParseMode::kLenient);
}

TEST(ConfigRefuses, CombinationsThatMakeNoSense) {
  Config small_split;
  small_split.max_split_bytes = 25_MiB;
  Config wide_rounding;
  wide_rounding.max_non_split_rounding_bytes = 25_MiB;
  expect_refused(
      {{"max_split_size_mb:19", {"'max_split_size_mb'", "'19'", "large_segment_size_mb (20 MB)"}},
       {"max_split_size_mb:25,large_segment_size_mb:30", {"'max_split_size_mb'", "offset 18"}},
       {"large_segment_size_mb:30", {"'large_segment_size_mb'", "25 MB"}, small_split},
       {"max_non_split_rounding_mb:19", {"'max_non_split_rounding_mb'", "'19'"}},
       {"large_segment_size_mb:30", {"max_non_split_rounding_mb (25 MB)"}, wide_rounding}},
      ParseMode::kStrict);
}

TEST(ConfigRefuses, AnEarlierBadValueThoughALaterOneOverridesIt) {
  expect_refused({{"max_split_size_mb:x,max_split_size_mb:64", {"'x'", "offset 18"}}},
                 ParseMode::kStrict);
}

TEST(ConfigRefuses, MessagesStayShortAndPrintable) {
  const std::string text = "max_split_size_mb:" + std::string(100'000, '\x01');
  const auto parsed = parse_config(text, {}, ParseMode::kStrict);
  ASSERT_FALSE(parsed.is_ok());
  const std::string message(parsed.status().message());
  EXPECT_LT(message.size(), 500u);
  EXPECT_EQ(message.find('\x01'), std::string::npos);
  EXPECT_NE(message.find("\\x01"), std::string::npos);
}

}  // namespace
}  // namespace quarry
