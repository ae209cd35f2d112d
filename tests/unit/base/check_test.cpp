// SPDX-License-Identifier: Apache-2.0
#include "base/check.hpp"

#include <gtest/gtest.h>

namespace quarry {
namespace {

TEST(CheckTest, WhatHoldsIsSilentAndEvaluatedOnce) {
  int evaluations = 0;
  QUARRY_CHECK(++evaluations == 1);
  QUARRY_CHECK_EQ(++evaluations, 2);
  QUARRY_CHECK_GE(++evaluations, 3);
  QUARRY_CHECK_COMPARE(++evaluations, <, 5);
  EXPECT_EQ(evaluations, 4);
}

TEST(CheckDeathTest, AFailedCheckNamesPlaceAndCondition) {
  const bool is_tiled = false;
  EXPECT_DEATH(QUARRY_CHECK(is_tiled),
               "quarry: .*check_test\\.cpp:[0-9]+: invariant does not hold: is_tiled");
}

TEST(CheckDeathTest, AFailedComparisonPrintsBothOperands) {
  const int reserved = 17;
  const int allocated = 42;
  EXPECT_DEATH(QUARRY_CHECK_GE(reserved, allocated), "reserved >= allocated: 17 against 42");
  EXPECT_DEATH(QUARRY_CHECK_EQ(reserved, allocated), "reserved == allocated: 17 against 42");
  EXPECT_DEATH(QUARRY_CHECK_COMPARE(allocated, <, reserved), "42 against 17");
}

#ifdef NDEBUG
TEST(CheckTest, AssertsAreNotEvaluatedInReleaseBuilds) {
  int evaluations = 0;
  QUARRY_ASSERT(++evaluations == 7);
  QUARRY_ASSERT_EQ(++evaluations, 7);
  EXPECT_EQ(evaluations, 0);
}
#else
TEST(CheckDeathTest, AssertsEndDebugBuilds) {
  EXPECT_DEATH(QUARRY_ASSERT(1 == 2), "invariant does not hold: 1 == 2");
  EXPECT_DEATH(QUARRY_ASSERT_EQ(1, 2), "1 against 2");
}
#endif

}  // namespace
}  // namespace quarry
