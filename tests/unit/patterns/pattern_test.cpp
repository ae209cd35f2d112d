// SPDX-License-Identifier: Apache-2.0
// What holds for every pattern, whatever program it stands for.
#include "patterns/pattern.hpp"

#include "pattern_support.hpp"

namespace quarry::patterns {

void PrintTo(const Pattern* pattern, std::ostream* out) {
  *out << pattern->name;
}

namespace {

class EveryPattern : public testing::TestWithParam<const Pattern*> {
 protected:
  static PatternTrace make(const Settings& settings, std::uint64_t seed) {
    Result<PatternTrace> trace = try_pattern(*GetParam(), settings, seed);
    EXPECT_TRUE(trace.is_ok()) << trace.status().message();
    return trace.is_ok() ? std::move(trace).value() : PatternTrace();
  }
};

TEST_P(EveryPattern, WritesATraceThatMakesSenseAndKeepsWhatItSays) {
  const PatternTrace trace = make({}, 0);
  TraceChecker checker;
  std::uint64_t before_us = 0;
  for (const TraceEvent& event : trace.events) {
    TraceSlot slot = 0;
    ASSERT_EQ(checker.check(event, slot), TraceFault::kNone);
    ASSERT_GE(event.time_us, before_us);
    before_us = event.time_us;
  }
  EXPECT_EQ(checker.live_count(), trace.kept_count);
  EXPECT_GT(trace.kept_count, 0u);
  EXPECT_GE(trace.events.size(), 5'000u);
  EXPECT_LE(trace.events.size(), 100'000u);
  EXPECT_GE(checker.totals().peak_bytes, 1'000'000'000u);
  EXPECT_LE(checker.totals().peak_bytes, 40'000'000'000u);
}

TEST_P(EveryPattern, GivesTheSameTraceForTheSameSeedAndAnotherForAnother) {
  const PatternTrace first = make({}, 7);
  EXPECT_TRUE(first.events == make({}, 7).events);
  EXPECT_FALSE(first.events == make({}, 8).events);
}

// Another value of the knob: half as much, else twice as much, else another word.
std::vector<std::string> list_other_values(const Knob& knob) {
  std::vector<std::string> values;
  for (const KnobChoice& choice : knob.choices) {
    if (choice.value != knob.value) values.emplace_back(choice.word);
  }
  if (!knob.choices.empty()) return values;
  if (knob.value / 2 >= knob.least) values.push_back(std::to_string(knob.value / 2));
  if (knob.value * 2 <= knob.most) values.push_back(std::to_string(knob.value * 2));
  return values;
}

TEST_P(EveryPattern, HasNoKnobWithoutEffect) {
  const PatternTrace usual = make({}, 0);
  const KnobValues values = make_knob_values(*GetParam());
  for (const Knob& knob : values.knobs()) {
    bool has_effect = false;
    for (const std::string& value : list_other_values(knob)) {
      const Result<PatternTrace> other =
          try_pattern(*GetParam(), {{std::string(knob.name), value}});
      // Some values go with no other default: half the heads, where all have keys of their own.
      has_effect |= other.is_ok() && !(other.value().events == usual.events);
      if (has_effect) break;
    }
    EXPECT_TRUE(has_effect) << knob.name;
  }
}

TEST_P(EveryPattern, DocumentsItselfAndItsKnobs) {
  const Pattern& pattern = *GetParam();
  EXPECT_FALSE(pattern.summary.empty());
  EXPECT_FALSE(pattern.at_end.empty());
  EXPECT_EQ(find_pattern(pattern.name), &pattern);
  const KnobValues values = make_knob_values(pattern);
  for (const Knob& knob : values.knobs()) {
    EXPECT_FALSE(knob.text.empty()) << knob.name;
    EXPECT_LE(knob.least, knob.value) << knob.name;
    EXPECT_LE(knob.value, knob.most) << knob.name;
  }
}

// Knobs that say how often something is done.
bool is_count(const Knob& knob) {
  static const std::set<std::string_view> names = {"steps",  "batches",  "prompts",
                                                   "images", "requests", "shots"};
  return names.contains(knob.name);
}

TEST_P(EveryPattern, MakesATraceOrSaysWhyNotWhereAKnobIsAtOneOfItsEnds) {
  const KnobValues values = make_knob_values(*GetParam());
  Settings once;
  for (const Knob& knob : values.knobs()) {
    if (is_count(knob)) once.emplace_back(knob.name, std::to_string(knob.least));
  }
  int made = 0;
  for (const Knob& knob : values.knobs()) {
    if (!knob.choices.empty() || is_count(knob)) continue;
    for (const std::uint64_t end : {knob.least, knob.most}) {
      Settings settings = once;
      settings.emplace_back(knob.name, std::to_string(end));
      const Result<PatternTrace> trace = try_pattern(*GetParam(), settings);
      if (trace.is_ok()) ++made;
      if (trace.is_ok()) continue;
      const std::string_view why = trace.status().message();
      EXPECT_TRUE(why.starts_with("--") || why.starts_with("these knobs ask for too much"))
          << knob.name << ": " << why;
    }
  }
  EXPECT_GT(made, 8);
}

TEST_P(EveryPattern, IsRefusedWhereItsKnobsAskForTooManyRows) {
  Settings most;
  const KnobValues values = make_knob_values(*GetParam());
  for (const Knob& knob : values.knobs()) {
    if (is_count(knob) || knob.name == "layers") {
      most.emplace_back(knob.name, std::to_string(knob.most));
    }
  }
  const Result<PatternTrace> trace = try_pattern(*GetParam(), most);
  ASSERT_FALSE(trace.is_ok());
  EXPECT_EQ(trace.status().message(),
            "these knobs ask for too much: a trace of 5000000 rows or more");
}

INSTANTIATE_TEST_SUITE_P(Patterns, EveryPattern, testing::ValuesIn(list_patterns()),
                         [](const auto& param) { return std::string(param.param->name); });

TEST(PatternTest, ThereAreFifteenOfDifferentNames) {
  std::set<std::string_view> names;
  for (const Pattern* const pattern : list_patterns())
    names.insert(pattern->name);
  EXPECT_EQ(names.size(), 15u);
  EXPECT_EQ(list_patterns().size(), 15u);
  EXPECT_EQ(find_pattern("kv"), nullptr);
}

TEST(PatternTest, KnobsThatContradictEachOtherAreNamed) {
  EXPECT_EQ(explain_failure("kv_concat", {{"heads", "3"}}),
            "--heads: value 3 is not allowed; allowed: a divisor of --hidden, which is 2048");
  EXPECT_EQ(explain_failure("kv_concat", {{"kv-heads", "5"}}),
            "--kv-heads: value 5 is not allowed; allowed: a divisor of --heads, which is 32");
  EXPECT_EQ(explain_failure("chunked_prefill", {{"prompt-least", "9000"}}),
            "--prompt-least: value 9000 is not allowed; allowed: at most --prompt-most, which is "
            "8192");
  EXPECT_EQ(explain_failure("kv_static", {{"slot", "1000"}}),
            "--slot: value 1000 is not allowed; allowed: at least --prompt-most and "
            "--output-tokens together, 1056");
  EXPECT_EQ(explain_failure("moe", {{"chosen", "17"}}),
            "--chosen: value 17 is not allowed; allowed: at most --experts, which is 16");
  EXPECT_EQ(explain_failure("batch_wobble", {{"output-most", "2000"}}),
            "--output-most: value 2000 is not allowed; allowed: at most --length, which is 1024");
}

}  // namespace
}  // namespace quarry::patterns
