// SPDX-License-Identifier: Apache-2.0
// The set of ids: right against std::set, and small for ids in sequence.
#include "trace/id_set.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <set>

namespace quarry {
namespace {

TEST(IdSet, IsOneIntervalForIdsInSequence) {
  IdSet ids;
  for (std::uint64_t id = 1; id <= 1'000'000; ++id)
    ids.insert(id);
  EXPECT_EQ(ids.interval_count(), 1u);
  EXPECT_FALSE(ids.contains(0));
  EXPECT_TRUE(ids.contains(1'000'000));
  EXPECT_FALSE(ids.contains(1'000'001));
}

TEST(IdSet, IsOneIntervalForIdsThatTwoThreadsInterleave) {
  IdSet ids;
  for (std::uint64_t id = 0; id < 1000; id += 2) {
    ids.insert(id + 1);
    ids.insert(id);
  }
  EXPECT_EQ(ids.interval_count(), 1u);
}

TEST(IdSet, HoldsTheSmallestAndTheLargestNumber) {
  constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
  IdSet ids;
  ids.insert(kMax - 1);
  ids.insert(kMax);
  ids.insert(0);
  EXPECT_TRUE(ids.contains(kMax));
  EXPECT_TRUE(ids.contains(0));
  EXPECT_FALSE(ids.contains(1));
  EXPECT_EQ(ids.interval_count(), 2u);
}

TEST(IdSet, EqualsAStandardSetUnderRandomInsertions) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    std::mt19937_64 random(seed);
    IdSet ids;
    std::set<std::uint64_t> expected;
    std::uint64_t next = 0;
    for (int i = 0; i < 400; ++i) {
      if (random() % 4 == 0) next = random() % 500;
      ids.insert(next);
      expected.insert(next);
      ++next;
    }
    std::size_t runs = 0;
    for (std::uint64_t id = 0; id < 1000; ++id) {
      ASSERT_EQ(ids.contains(id), expected.count(id) == 1) << "seed " << seed << " id " << id;
      runs += expected.count(id) == 1 && expected.count(id + 1) == 0 ? 1 : 0;
    }
    EXPECT_EQ(ids.interval_count(), runs) << "seed " << seed;
  }
}

}  // namespace
}  // namespace quarry
