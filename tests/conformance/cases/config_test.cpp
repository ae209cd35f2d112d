// SPDX-License-Identifier: Apache-2.0
// Cases from the field about configuration texts and what their options mean for blocks. Each
// under its number and with its figures. The grammar itself is tested in tests/unit/api. Owns
// nothing but its scenarios.
#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "api/config_parser.hpp"
#include "tests/support/scenario.hpp"

namespace quarry::test {
namespace {

// The block that a request gets under a configuration text.
Bytes measure_block(const std::string& text, Bytes bytes, bool upstream_quirks) {
  const std::string whole = text + (upstream_quirks ? "" : ",upstream_quirks:False");
  const auto parsed = parse_config(whole, make_config(), ParseMode::kStrict);
  EXPECT_TRUE(parsed.is_ok()) << parsed.status().message();
  if (!parsed.is_ok()) return 0;
  ScenarioOptions options;
  options.config = parsed.value().config;
  Scenario s(options);
  return s.allocator().find_block(s.malloc(bytes)).value().bytes;
}

struct Rounding {
  const char* divisions;
  Bytes request;
  Bytes block;          // in our modes
  Bytes classic_block;  // in classic mode, which follows upstream: one division rounds nothing
};

TEST(C53, DivisionsRoundToTheirStepsAndGapsTakeTheLowerInterval) {
  constexpr Bytes k514 = 538'968'064;
  constexpr Rounding kRoundings[] = {
      {"[>:1]", k514, 1'073'741'824, k514},
      {"[>:2]", k514, 805'306'368, 805'306'368},
      {"[>:4]", k514, 671'088'640, 671'088'640},
      {"[>:8]", k514, 603'979'776, 603'979'776},
      {"0", k514, k514, k514},
      {"1", k514, 1'073'741'824, k514},
      {"1", 1'073'741'824, 1'073'741'824, 1'073'741'824},
      {"[1:1,4:2,16:4]", 3'145'729, 4'194'304, 3'146'240},
      {"[1:1,4:2,16:4]", 9'437'185, 12'582'912, 12'582'912},
  };
  for (const Rounding& r : kRoundings) {
    const std::string text = std::string("roundup_power2_divisions:") + r.divisions;
    EXPECT_EQ(measure_block(text, r.request, false), r.block) << text << " for " << r.request;
    EXPECT_EQ(measure_block(text, r.request, true), r.classic_block)
        << text << " for " << r.request << ", classic";
  }
}

TEST(C53, BadDivisionsAreRefusedByNameAndChangeNothing) {
  struct Bad {
    const char* text;
    const char* token;
  };
  constexpr Bad kBad[] = {
      {"[3:2]", "'3'"}, {"[>:3]", "'3'"}, {"[1:2", "["}, {"[>:", "["}, {"[1:-2]", "'-2'"}};
  Scenario s;
  s.configure([](Config& config) { config.roundup_power2_divisions.fill(4); });
  const Config before = s.allocator().get_config();
  const std::uint64_t calls = s.sim().call_count();
  for (const Bad& bad : kBad) {
    const auto parsed =
        parse_config(std::string("max_split_size_mb:64,roundup_power2_divisions:") + bad.text,
                     before, ParseMode::kStrict);
    ASSERT_FALSE(parsed.is_ok()) << bad.text;
    EXPECT_EQ(parsed.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(parsed.status().message().find(bad.token), std::string_view::npos)
        << parsed.status().message();
  }
  EXPECT_EQ(s.allocator().get_config(), before);
  EXPECT_EQ(s.sim().call_count(), calls);
}

TEST(C55, StrictModeNamesTheUnknownKeyAndItsOffset) {
  struct Case {
    const char* text;
    const char* offset;
  };
  // This version has no expandable segments, so the case's first key is given as False.
  constexpr Case kCases[] = {{"expandable_segments:False,foo_bar:3", "offset 26"},
                             {"foo_bar:3", "offset 0"}};
  for (const Case& c : kCases) {
    const auto parsed = parse_config(c.text, Config{}, ParseMode::kStrict);
    ASSERT_FALSE(parsed.is_ok());
    EXPECT_EQ(parsed.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(parsed.status().message().find("foo_bar"), std::string_view::npos);
    EXPECT_NE(parsed.status().message().find(c.offset), std::string_view::npos)
        << parsed.status().message();
  }
}

TEST(C55, LenientModeWarnsOnceAndAppliesTheKnownKeys) {
  const auto parsed =
      parse_config("foo_bar:3,max_split_size_mb:64,foo_baz:4", Config{}, ParseMode::kLenient);
  ASSERT_TRUE(parsed.is_ok());
  EXPECT_EQ(parsed.value().config.max_split_bytes, 64_MiB);
  ASSERT_EQ(parsed.value().warnings.size(), 1u);
  EXPECT_NE(parsed.value().warnings[0].find("foo_bar"), std::string::npos);
  EXPECT_NE(parsed.value().warnings[0].find("foo_baz"), std::string::npos);
}

TEST(C55, EmptyTextsAndSpacesAreAccepted) {
  for (const ParseMode mode : {ParseMode::kStrict, ParseMode::kLenient}) {
    for (const char* text : {"", ",,"}) {
      const auto parsed = parse_config(text, Config{}, mode);
      ASSERT_TRUE(parsed.is_ok()) << '"' << text << '"';
      EXPECT_EQ(parsed.value().config, Config{});
    }
    const auto parsed = parse_config(" max_split_size_mb : 128 ", Config{}, mode);
    ASSERT_TRUE(parsed.is_ok()) << parsed.status().message();
    EXPECT_EQ(parsed.value().config.max_split_bytes, 128_MiB);
  }
}

TEST(C55, OfADuplicateTheLastHoldsWithAWarning) {
  const auto parsed =
      parse_config("max_split_size_mb:64,max_split_size_mb:128", Config{}, ParseMode::kStrict);
  ASSERT_TRUE(parsed.is_ok());
  EXPECT_EQ(parsed.value().config.max_split_bytes, 128_MiB);
  ASSERT_EQ(parsed.value().warnings.size(), 1u);
  EXPECT_NE(parsed.value().warnings[0].find("max_split_size_mb"), std::string::npos);
}

TEST(C55, InvalidValueIsAnErrorInBothModes) {
  for (const ParseMode mode : {ParseMode::kStrict, ParseMode::kLenient}) {
    const auto parsed =
        parse_config("max_split_size_mb:64,expandable_segments:maybe", Config{}, mode);
    ASSERT_FALSE(parsed.is_ok());
    EXPECT_NE(parsed.status().message().find("expandable_segments"), std::string_view::npos);
    EXPECT_NE(parsed.status().message().find("maybe"), std::string_view::npos);
  }
}

TEST(C55, HundredKilobytesOfTextAreParsedOrRefused) {
  std::string long_list = "max_split_size_mb:64";
  while (long_list.size() < 100 * 1024)
    long_list += ",max_split_size_mb:128";
  const auto parsed = parse_config(long_list, Config{}, ParseMode::kStrict);
  ASSERT_TRUE(parsed.is_ok());
  EXPECT_EQ(parsed.value().config.max_split_bytes, 128_MiB);
  EXPECT_EQ(parsed.value().warnings.size(), 1u);
  EXPECT_FALSE(parse_config(std::string(100 * 1024, 'x'), Config{}, ParseMode::kStrict).is_ok());
  EXPECT_FALSE(parse_config(std::string(100 * 1024, '['), Config{}, ParseMode::kLenient).is_ok());
}

// tests/fuzz explores further; this is the share of it that every build runs.
TEST(C55, RandomlyDamagedTextsNeverCrashAndParseToWritableSettings) {
  const std::string whole = format_config(Config{});
  constexpr std::string_view kBytes = "[]:,>0189.-eE TrueFalse_\0\n\xff";
  std::mt19937_64 random(55);
  int accepted = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string text = whole;
    for (auto edits = random() % 4; edits > 0; --edits)
      text[random() % text.size()] = kBytes[random() % kBytes.size()];
    text.resize(random() % 4 == 0 ? random() % text.size() : text.size());
    const auto mode = random() % 2 == 0 ? ParseMode::kStrict : ParseMode::kLenient;
    const auto parsed = parse_config(text, Config{}, mode);
    if (!parsed.is_ok()) {
      EXPECT_FALSE(parsed.status().message().empty());
      continue;
    }
    ++accepted;
    const auto again =
        parse_config(format_config(parsed.value().config), Config{}, ParseMode::kStrict);
    ASSERT_TRUE(again.is_ok()) << text;
    EXPECT_EQ(again.value().config, parsed.value().config) << text;
  }
  EXPECT_GT(accepted, 1000);
}

// --- C56: 1 GiB, threshold 0.5, twelve blocks of 64 MiB freed, then one of 128 MiB ---

constexpr Bytes k64 = 67'108'864;

ScenarioOptions with_threshold(bool upstream_quirks) {
  ScenarioOptions options = ScenarioOptions::with_cap(1'073'741'824);
  options.config.garbage_collection_threshold = 0.5;
  options.config.upstream_quirks = upstream_quirks;
  return options;
}

std::vector<Address> cache_twelve(Scenario& s) {
  std::vector<Address> blocks;
  for (int i = 0; i < 12; ++i)
    blocks.push_back(s.malloc(k64));
  for (const Address block : blocks)
    s.free(block);
  EXPECT_EQ(s.reserved(), 805'306'368u);
  return blocks;
}

// "Before the driver call": by the time that the driver is asked for more, the garbage is gone.
void watch_frees_before_growth(Scenario& s, std::uint64_t* frees) {
  s.sim().fail_calls_if(
      DriverEntry::kFree, [frees](Bytes) { return ++*frees, false; }, DriverCode::kUnknown);
}

TEST(C56, WithoutAFractionTheThresholdIsPartOfTheDevice) {
  Scenario s(with_threshold(false));
  cache_twelve(s);
  std::uint64_t frees = 0;
  std::uint64_t frees_at_growth = 0;
  watch_frees_before_growth(s, &frees);
  s.sim().fail_calls_if(
      DriverEntry::kAllocate, [&](Bytes) { return frees_at_growth = frees, false; },
      DriverCode::kUnknown);
  EXPECT_NE(s.malloc(134'217'728), 0u);
  EXPECT_EQ(frees_at_growth, 4u);  // 268435456 bytes: exactly down to the threshold of 536870912
  EXPECT_EQ(frees, 4u);
  EXPECT_EQ(s.reserved(), 536'870'912u + 134'217'728u);
  EXPECT_EQ(s.stats().num_alloc_retries, 0);
  EXPECT_EQ(s.calls(DriverEntry::kSynchronizeEvent), 0u);
}

TEST(C56, WithAFractionTheThresholdIsPartOfTheLimit) {
  Scenario s(with_threshold(false));
  ASSERT_TRUE(s.allocator().set_memory_fraction(0, 0.8).is_ok());
  cache_twelve(s);
  EXPECT_NE(s.malloc(134'217'728), 0u);
  // 805306368 - 429496729 = 375809639 is six segments, rounded up.
  EXPECT_EQ(s.calls(DriverEntry::kFree), 6u);
  EXPECT_EQ(s.reserved(), 402'653'184u + 134'217'728u);
  EXPECT_EQ(s.stats().num_alloc_retries, 0);
}

TEST(C56, ClassicModeNeedsAFractionAndSaysSoOnce) {
  Scenario without(with_threshold(true));
  cache_twelve(without);
  EXPECT_NE(without.malloc(134'217'728), 0u);
  EXPECT_EQ(without.calls(DriverEntry::kFree), 0u);
  EXPECT_EQ(without.reserved(), 805'306'368u + 134'217'728u);

  const auto parsed =
      parse_config("garbage_collection_threshold:0.5", Config{}, ParseMode::kStrict);
  ASSERT_TRUE(parsed.is_ok());
  ASSERT_EQ(parsed.value().warnings.size(), 1u);
  EXPECT_NE(parsed.value().warnings[0].find("memory fraction"), std::string::npos);

  // With a fraction upstream releases, in rounds, all that are of average age: here all twelve.
  Scenario with(with_threshold(true));
  ASSERT_TRUE(with.allocator().set_memory_fraction(0, 0.8).is_ok());
  cache_twelve(with);
  EXPECT_NE(with.malloc(134'217'728), 0u);
  EXPECT_EQ(with.calls(DriverEntry::kFree), 12u);
  EXPECT_EQ(with.reserved(), 134'217'728u);
}

TEST(C56, LongestUnusedSegmentsGoFirst) {
  Scenario s(with_threshold(false));
  const std::vector<Address> blocks = cache_twelve(s);
  // The oldest four are used once more, so the next four are the longest unused.
  std::vector<Address> again;
  for (int i = 0; i < 4; ++i)
    again.push_back(s.malloc(k64));
  // A magazine, where these four are with magazines, gives the last freed one first.
  if (has_magazines()) std::reverse(again.begin(), again.end());
  EXPECT_EQ(again, std::vector<Address>(blocks.begin(), blocks.begin() + 4));
  for (const Address block : again)
    s.free(block);
  EXPECT_NE(s.malloc(134'217'728), 0u);
  EXPECT_EQ(s.calls(DriverEntry::kFree), 4u);
  std::vector<Address> left;
  for (int i = 0; i < 8; ++i)
    left.push_back(s.malloc(k64));
  std::vector<Address> expected(blocks.begin(), blocks.begin() + 4);
  expected.insert(expected.end(), blocks.begin() + 8, blocks.end());
  EXPECT_EQ(left, expected);
}

// A plain driver free waits for its device by itself; what the collector never does is wait for
// fences, or touch memory that has one outstanding.
TEST(C56, PendingBlocksAreNoGarbage) {
  Scenario s(with_threshold(false));
  const StreamHandle s1 = s.make_stream();
  std::vector<Address> blocks;
  for (int i = 0; i < 12; ++i)
    blocks.push_back(s.malloc(k64));
  s.busy(s1);
  for (int i = 0; i < 10; ++i)
    s.record(blocks[static_cast<std::size_t>(i)], s1);
  for (const Address block : blocks)
    s.free(block);
  EXPECT_NE(s.malloc(134'217'728), 0u);
  EXPECT_EQ(s.calls(DriverEntry::kFree), 2u);  // only two are vacant
  EXPECT_EQ(s.calls(DriverEntry::kSynchronizeEvent), 0u);
  EXPECT_EQ(s.stats().pending_bytes, static_cast<std::int64_t>(10 * k64));
  s.complete(s1);
}

}  // namespace
}  // namespace quarry::test
