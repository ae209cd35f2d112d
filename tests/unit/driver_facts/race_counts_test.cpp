// SPDX-License-Identifier: Apache-2.0
// What a process counted is read from the file by another, and told with what became of it.
#include "bench/driver_facts/race_counts.hpp"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>
#include <fstream>
#include <iterator>

namespace quarry::facts {
namespace {

TEST(RaceCountsTest, OutliveTheProcessThatASignalEnds) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  // A name that the death test's own process finds too: it runs this body once more.
  const std::string path = testing::TempDir() + "race_counts_test";
  EXPECT_EXIT(
      {
        const SharedRaceCounts counts(path);
        counts.get().captures = 312;
        counts.get().in_capture = 7;
        static_cast<void>(std::raise(SIGKILL));
      },
      testing::KilledBySignal(SIGKILL), "");
  std::ifstream file(path, std::ios::binary);
  const std::string content{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(parse_race_counts(content).captures, 312u);
  EXPECT_EQ(parse_race_counts(content).in_capture, 7u);
  static_cast<void>(std::remove(path.c_str()));
}

TEST(RaceCountsTest, OfAProcessThatNeverMappedTheFileAreZero) {
  const AnswerFile answer;
  EXPECT_EQ(parse_race_counts(answer.read()).captures, 0u);
}

TEST(RaceCountsTest, AreToldWithTheEndOfTheProcess) {
  RaceCounts counts{20000, 0, 90000, 41, 0, 0};
  EXPECT_EQ(describe_race({0, 0, false}, counts), "survives");
  EXPECT_EQ(describe_race({-1, 11, false}, counts), "ended by signal 11");
  counts.lost = 3;
  counts.errors = 2;
  counts.last_error = 900;
  EXPECT_EQ(describe_race({0, 0, false}, counts),
            "survives, captures lost: 3, errors: 2, the last of them 900");
}

TEST(RaceCountsTest, AreHarmlessOnlyIfTheThreadsWereSeenToAskInCaptures) {
  const RaceCounts counts{20000, 0, 90000, 41, 0, 0};
  EXPECT_TRUE(is_harmless({0, 0, false}, counts));
  EXPECT_FALSE(is_harmless({-1, 11, false}, counts));
  EXPECT_FALSE(is_harmless({0, 0, false}, {20000, 0, 90000, 0, 0, 0}));
  EXPECT_FALSE(is_harmless({0, 0, false}, {20000, 1, 90000, 41, 0, 0}));
}

}  // namespace
}  // namespace quarry::facts
