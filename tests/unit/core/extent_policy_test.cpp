// SPDX-License-Identifier: Apache-2.0
#include "core/extent_policy.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace quarry {
namespace {

TEST(ExtentPolicyTest, ARegularExtentIsThePowerOfTwoBelowAShareOfReserved) {
  const ExtentRule rule{2_MiB, 64_MiB, 1024};
  EXPECT_EQ(calculate_extent_size(0, rule), 2_MiB);
  EXPECT_EQ(calculate_extent_size(4_GiB - 1, rule), 2_MiB);
  EXPECT_EQ(calculate_extent_size(4_GiB, rule), 4_MiB);
  EXPECT_EQ(calculate_extent_size(19_GiB, rule), 16_MiB);
  EXPECT_EQ(calculate_extent_size(900_GiB, rule), 64_MiB);
  EXPECT_EQ(calculate_extent_size(900_GiB, ExtentRule{8_MiB, 8_MiB, 1024}), 8_MiB);
}

TEST(ExtentPolicyTest, ANewExtentFitsTheHoleAndShrinksToTheNeedWhenLittleIsLeft) {
  EXPECT_EQ(calculate_new_extent(16_MiB, 2_MiB, 1_GiB, kUnlimited), 16_MiB);
  EXPECT_EQ(calculate_new_extent(16_MiB, 2_MiB, 14_MiB, kUnlimited), 8_MiB);
  EXPECT_EQ(calculate_new_extent(16_MiB, 2_MiB, 1_GiB, 15_MiB), 2_MiB);
  EXPECT_EQ(calculate_new_extent(16_MiB, 6_MiB, 1_GiB, 0), 8_MiB);
  EXPECT_EQ(calculate_new_extent(16_MiB, 6_MiB, 6_MiB, 0), 4_MiB);
}

TEST(ExtentPolicyTest, ADecayedPeakHalvesTowardsWhatIsAllocated) {
  DecayedPeak peak(100);
  peak.add(80, 80);
  EXPECT_EQ(peak.get(), 80u);
  peak.add(20, 40);
  EXPECT_EQ(peak.get(), 60u);
  peak.add(200, 40);
  EXPECT_EQ(peak.get(), 45u);
  DecayedPeak steady;
  steady.add(80, 80);
  steady.add(1_GiB, 1);
  EXPECT_EQ(steady.get(), 80u);
}

TEST(ExtentPolicyTest, ABudgetIsThePeakAndItsSlack) {
  EXPECT_EQ(calculate_budget(1000, 0.0), 1000u);
  EXPECT_EQ(calculate_budget(1000, 0.02), 1020u);
}

// A mapped gap of 3 MiB, a hole of 4, a mapped one of 5, a hole without end.
const std::vector<Gap> kRun = {
    {0, 3_MiB, false},
    {4_MiB - 1_MiB, 4_MiB, true},
    {7_MiB, 5_MiB, false},
    {12_MiB, 1_GiB, true},
};

TEST(ExtentPolicyTest, APlaceIsWhereTheFewestPagesAreMissing) {
  const Place fits = find_place(kRun, 5_MiB, PlaceTie::kLowestAddress).value();
  EXPECT_EQ(fits.begin, 7_MiB);
  EXPECT_EQ(fits.missing, 0u);
  // From either side of the gap of 5 MiB one page is missing; the lower place is taken.
  const Place longer = find_place(kRun, 7_MiB, PlaceTie::kLowestAddress).value();
  EXPECT_EQ(longer.begin, 5_MiB);
  EXPECT_EQ(longer.missing, 2_MiB);
  const Place both = find_place(kRun, 12_MiB, PlaceTie::kLowestAddress).value();
  EXPECT_EQ(both.begin, 0u);
  EXPECT_EQ(both.missing, 4_MiB);
}

TEST(ExtentPolicyTest, TheSlackGrowsWithMovesToABoundAndNotBefore) {
  EXPECT_EQ(calculate_slack(0.02, 0), 0.02);
  EXPECT_EQ(calculate_slack(0.02, 0.02), 0.02);
  EXPECT_NEAR(calculate_slack(0.02, 0.03), 0.034, 1e-9);
  EXPECT_NEAR(calculate_slack(0.02, 0.04), 0.048, 1e-9);
  EXPECT_EQ(calculate_slack(0.02, 1), calculate_slack(0.02, 0.04));
}

TEST(ExtentPolicyTest, TheTimeOfMovesIsThatOfTheLastMinute) {
  constexpr std::uint64_t kSecond = 1'000'000'000;
  MovingTime time;
  time.begin(5 * kSecond);
  for (int i = 0; i < 1000; ++i)
    time.add_move();
  EXPECT_NEAR(time.calculate_share(6 * kSecond), 0.055, 1e-9);
  EXPECT_NEAR(time.calculate_share(65 * kSecond), 0.055 / 60, 1e-9);
  // A day of quiet counts for no more than a minute does.
  EXPECT_EQ(time.calculate_share(86'400 * kSecond), 0.0);
  for (int i = 0; i < 40'000; ++i)
    time.add_move();
  EXPECT_GT(time.calculate_share(86'401 * kSecond), kMovingShare);
}

TEST(ExtentPolicyTest, ARunTooShortHasNoPlace) {
  EXPECT_FALSE(find_place({}, 1, PlaceTie::kLowestAddress));
  EXPECT_FALSE(find_place(std::vector<Gap>{{0, 1_MiB, false}}, 2_MiB, PlaceTie::kSmallestRun));
}

TEST(ExtentPolicyTest, OfEqualPlacesTheTieDecides) {
  const Place low{0, 2_MiB, 100_MiB};
  const Place tight{50_MiB, 2_MiB, 10_MiB};
  EXPECT_TRUE(is_better_place(low, tight, PlaceTie::kLowestAddress));
  EXPECT_TRUE(is_better_place(tight, low, PlaceTie::kSmallestRun));
  EXPECT_TRUE(is_better_place(Place{60_MiB, 0, 1_GiB}, tight, PlaceTie::kSmallestRun));
}

TEST(ExtentPolicyTest, VictimsMoveInTheOrderAskedFor) {
  const Victim old_in_small_run{40_MiB, 2_MiB, 6_MiB, 1};
  const Victim new_in_large_run{10_MiB, 2_MiB, 20_MiB, 9};
  const Victim end_of_large_run{20_MiB, 2_MiB, 20_MiB, 9};
  EXPECT_TRUE(moves_before(new_in_large_run, old_in_small_run, VictimOrder::kLargestRun));
  EXPECT_TRUE(moves_before(end_of_large_run, new_in_large_run, VictimOrder::kLargestRun));
  EXPECT_TRUE(moves_before(old_in_small_run, new_in_large_run, VictimOrder::kSmallestRun));
  EXPECT_TRUE(moves_before(old_in_small_run, new_in_large_run, VictimOrder::kOldest));
  EXPECT_TRUE(moves_before(new_in_large_run, old_in_small_run, VictimOrder::kLowestAddress));
}

}  // namespace
}  // namespace quarry
