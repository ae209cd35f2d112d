// SPDX-License-Identifier: Apache-2.0
#include "patterns/rng.hpp"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace quarry::patterns {
namespace {

TEST(RngTest, IsSplitMix64) {
  // The first outputs that the generator's description gives for seed 1234567.
  Rng rng(1234567);
  const std::vector<std::uint64_t> expected = {6457827717110365317u, 3203168211198807973u,
                                               9817491932198370423u, 4593380528125082431u,
                                               16408922859458223821u};
  for (const std::uint64_t number : expected)
    EXPECT_EQ(rng.next(), number);
}

TEST(RngTest, DrawsEachNumberOfARangeAboutEquallyOften) {
  Rng rng(1);
  std::array<int, 7> counts{};
  for (int i = 0; i < 70'000; ++i)
    ++counts[rng.between(10, 16) - 10];
  for (const int count : counts)
    EXPECT_NEAR(count, 10'000, 500);
}

TEST(RngTest, ARangeOfOneNumberIsThatNumber) {
  Rng rng(1);
  EXPECT_EQ(rng.between(5, 5), 5u);
  EXPECT_EQ(rng.below(1), 0u);
}

TEST(RngTest, ExponentialNumbersHaveTheirMeanAndTheirMedian) {
  constexpr int kDraws = 100'000;
  constexpr std::uint64_t kMean = 1'000'000;
  Rng rng(2);
  std::uint64_t sum = 0;
  int below_median = 0;  // which is ln 2 times the mean
  for (int i = 0; i < kDraws; ++i) {
    const std::uint64_t drawn = rng.exponential(kMean);
    sum += drawn;
    if (drawn < 693'147) ++below_median;
  }
  EXPECT_NEAR(static_cast<double>(sum) / kDraws, kMean, 0.02 * kMean);
  EXPECT_NEAR(below_median, kDraws / 2, kDraws / 50);
  EXPECT_EQ(rng.exponential(0), 0u);
}

TEST(RngTest, AForkDoesNotDependOnWhatIsDrawnLater) {
  Rng first(3);
  Rng second(3);
  Rng fork = first.fork();
  Rng same_fork = second.fork();
  first.next();
  EXPECT_EQ(fork.next(), same_fork.next());
  EXPECT_NE(fork.next(), second.next());
}

TEST(RngTest, ChanceIsInPercent) {
  Rng rng(4);
  int hits = 0;
  for (int i = 0; i < 10'000; ++i) {
    EXPECT_FALSE(rng.chance(0));
    EXPECT_TRUE(rng.chance(100));
    if (rng.chance(30)) ++hits;
  }
  EXPECT_NEAR(hits, 3'000, 200);
}

}  // namespace
}  // namespace quarry::patterns
