// SPDX-License-Identifier: Apache-2.0
#include "core/thread_counts.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <vector>

namespace quarry {
namespace {

// The figures as anybody would keep them: each looked at after each change.
struct PlainFigure {
  std::int64_t rises = 0;
  std::int64_t falls = 0;
  std::int64_t high = 0;

  std::int64_t now() const { return rises - falls; }
  void rise(std::int64_t amount) {
    rises += amount;
    high = std::max(high, now());
  }
};

class ThreadCountsTest : public testing::Test {
 protected:
  ThreadCountsTest() {
    segments_[0].family = StatFamily::kSmall;
    segments_[1].family = StatFamily::kLarge;
  }

  static std::array<std::int64_t, 3> get_amounts(const Block& block) {
    return {1, static_cast<std::int64_t>(block.size),
            static_cast<std::int64_t>(block.requested_bytes)};
  }
  void take(int family, Bytes size, Bytes requested) {
    Block block;
    block.segment = &segments_[family];
    block.size = size;
    block.requested_bytes = requested;
    counts_.take(block);
    held_[family].push_back(block_of(block));
    for (const auto held : ThreadCounts::kHeld) {
      plain_[family][held].rise(get_amounts(block)[held]);
      plain_all_[held].rise(get_amounts(block)[held]);
    }
  }
  void give_back(int family, std::size_t which) {
    Block block;
    block.segment = &segments_[family];
    std::tie(block.size, block.requested_bytes) = held_[family][which];
    held_[family].erase(held_[family].begin() + static_cast<std::ptrdiff_t>(which));
    give_back(block);
  }
  // One that another thread took.
  void give_back(const Block& block) {
    counts_.give_back(block);
    const int family = static_cast<int>(block.segment->family);
    for (const auto held : ThreadCounts::kHeld) {
      plain_[family][held].falls += get_amounts(block)[held];
      plain_all_[held].falls += get_amounts(block)[held];
    }
  }
  void expect_same() const {
    for (const auto held : ThreadCounts::kHeld) {
      for (const int family : {0, 1}) {
        const ThreadCounts::Figure& figure = counts_.family[family][held];
        ASSERT_EQ(figure.rises, plain_[family][held].rises);
        ASSERT_EQ(figure.get_falls(), plain_[family][held].falls);
        ASSERT_EQ(figure.high, plain_[family][held].high);
      }
      ASSERT_EQ(counts_.high_of_all[held], plain_all_[held].high);
    }
  }
  static std::pair<Bytes, Bytes> block_of(const Block& block) {
    return {block.size, block.requested_bytes};
  }

  ThreadCounts counts_;
  std::array<Segment, 2> segments_;
  std::vector<std::pair<Bytes, Bytes>> held_[2];
  std::array<PlainFigure, 3> plain_[2];
  std::array<PlainFigure, 3> plain_all_;
};

TEST_F(ThreadCountsTest, EveryFigureAndItsHighestValueAreExactWhateverIsTakenAndGivenBack) {
  for (std::uint32_t seed = 1; seed <= 40; ++seed) {
    std::mt19937 random(seed);
    counts_ = {};
    plain_[0] = plain_[1] = plain_all_ = {};
    for (int step = 0; step < 2000; ++step) {
      const int family = static_cast<int>(random() % 2);
      // Sizes of like weight in both families, so that either may be what makes a highest value.
      const Bytes size = 512 * (1 + random() % 8);
      const bool is_growing = step / 100 % 2 == 0;
      const bool is_take = random() % 8 < (is_growing ? 5u : 3u);
      if (is_take || held_[family].empty()) {
        take(family, size, size - random() % 512);
      } else {
        give_back(family, random() % held_[family].size());
      }
      ASSERT_NO_FATAL_FAILURE(expect_same()) << "seed " << seed << ", step " << step;
    }
  }
}

TEST_F(ThreadCountsTest, AThreadThatFreesWhatOthersTookFallsBelowNothing) {
  Block foreign;
  foreign.segment = &segments_[1];
  foreign.size = 4096;
  foreign.requested_bytes = 4000;
  for (int i = 0; i < 3; ++i)
    give_back(foreign);
  take(0, 512, 500);
  take(1, 2048, 2048);
  ASSERT_NO_FATAL_FAILURE(expect_same());
  EXPECT_EQ(counts_.high_of_all[ThreadCounts::kBytes], 0);
  EXPECT_EQ(counts_.family[0][ThreadCounts::kBytes].high, 512);
}

TEST_F(ThreadCountsTest, CountsAreEmptyUntilSomethingIsCounted) {
  EXPECT_TRUE(counts_.is_empty());
  take(1, 2048, 2048);
  EXPECT_FALSE(counts_.is_empty());
  give_back(1, 0);
  EXPECT_FALSE(counts_.is_empty()) << "what came and went was there";
  counts_ = {};
  counts_.change_inactive_splits(StatFamily::kSmall, -1, -512);
  EXPECT_FALSE(counts_.is_empty());
}

}  // namespace
}  // namespace quarry
