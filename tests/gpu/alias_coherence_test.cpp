// SPDX-License-Identifier: Apache-2.0
// Memory mapped at two addresses stays one memory, word for word, in every order that CUDA gives:
// `recycle:stream` rests on it, and CUDA's guide promises less, so this runs on each new kind of
// card and driver. The trials are those of bench/driver_facts; QUARRY_ALIAS_ROUNDS sets the
// rounds.
#include <gtest/gtest.h>

#include <cstdlib>

#include "bench/driver_facts/alias_coherence.hpp"

namespace quarry::facts {
namespace {

constexpr std::uint64_t kLarge = 64 * kMiB;  // more than the caches hold
constexpr std::uint64_t kSmall = 2 * kMiB;   // stays in them

unsigned get_rounds() {
  const char* const text = std::getenv("QUARRY_ALIAS_ROUNDS");
  const long rounds = text != nullptr ? std::strtol(text, nullptr, 10) : 100;
  return rounds > 0 ? static_cast<unsigned>(rounds) : 1;
}

class AliasCoherenceTest : public testing::TestWithParam<AliasTrial> {};

TEST_P(AliasCoherenceTest, WhatIsWrittenThroughOneAddressIsReadThroughTheOther) {
  const AliasTrial& trial = GetParam();
  for (std::uint64_t bytes : {kLarge, kSmall}) {
    const AliasOutcome outcome = run_alias_trial(trial, bytes, get_rounds());
    std::printf("trial=%s bytes=%llu words_compared=%llu wrong=%llu\n", trial.name.c_str(),
                static_cast<unsigned long long>(bytes), outcome.counts.compared,
                outcome.counts.wrong);
    EXPECT_GT(outcome.expected, 0u);
    EXPECT_EQ(outcome.counts.compared, outcome.expected);
    if (trial.is_demanded) {
      EXPECT_EQ(outcome.counts.wrong, 0u) << trial.what;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Trials, AliasCoherenceTest, testing::ValuesIn(get_alias_trials()),
                         [](const auto& trial) { return trial.param.name; });

class AliasCheckerTest : public testing::TestWithParam<Way> {};

TEST_P(AliasCheckerTest, CountsEverySpoiledWordAndNoOther) {
  for (unsigned spoiled : {0u, 1u, 1000u}) {
    const WordCounts counts = count_spoiled_words(GetParam(), kLarge, spoiled);
    EXPECT_EQ(counts.wrong, spoiled);
    EXPECT_EQ(counts.compared, kLarge / 4);
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, AliasCheckerTest,
                         testing::Values(Way::kPlain, Way::kReadOnly, Way::kBulk, Way::kTensor1d,
                                         Way::kTensor2d));

}  // namespace
}  // namespace quarry::facts
