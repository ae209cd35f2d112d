// SPDX-License-Identifier: Apache-2.0
// Timelines: vector clocks checked against a plain graph of who follows whom, and their size.
#include "sim/timeline.hpp"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <utility>
#include <vector>

namespace quarry::sim {
namespace {

constexpr int kTimelines = 5;

// The same question answered the slow way: an action is ordered before new work of a timeline if
// it is in the set of actions that this timeline has behind it, or in the host's.
class SlowOrder {
 public:
  using Actions = std::set<std::pair<int, std::uint64_t>>;

  std::uint64_t act(int t) {
    ++last_[t];
    known_[t].insert({t, last_[t]});
    return last_[t];
  }
  const Actions& known(int t) const { return known_[t]; }
  void join(int into, const Actions& from) {
    act(into);
    known_[into].insert(from.begin(), from.end());
  }
  void host_sees(const Actions& actions) { host_.insert(actions.begin(), actions.end()); }
  bool covers(int observer, int t, std::uint64_t sequence) const {
    return host_.contains({t, sequence}) || known_[observer].contains({t, sequence});
  }

 private:
  std::uint64_t last_[kTimelines] = {};
  Actions known_[kTimelines];
  Actions host_;
};

class TimelineRandomTest : public testing::TestWithParam<int> {};

TEST_P(TimelineRandomTest, VectorClocksAgreeWithTheWholeGraph) {
  std::mt19937 random(static_cast<unsigned>(GetParam()));
  Timelines timelines(true);
  SlowOrder slow;
  std::vector<TimelineIndex> index;
  for (int t = 0; t < kTimelines; ++t)
    index.push_back(timelines.add({}, {}, false));
  std::vector<std::pair<Position, SlowOrder::Actions>> events;
  std::uint64_t last[kTimelines] = {};
  for (int step = 0; step < 400; ++step) {
    const int t = static_cast<int>(random() % kTimelines);
    const auto choice = random() % 8;
    if (choice < 3 || events.empty()) {
      ASSERT_EQ(timelines.act(index[t]), slow.act(t));
    } else if (choice < 5) {
      events.emplace_back(timelines.position(index[t]), slow.known(t));
    } else if (choice < 7) {
      const auto& [position, actions] = events[random() % events.size()];
      timelines.join(index[t], position);
      slow.join(t, actions);
    } else if (random() % 4 == 0) {
      const auto& [position, actions] = events[random() % events.size()];
      timelines.host_sees(position);
      slow.host_sees(actions);
    }
    last[t] = timelines.sequence(index[t]);
    for (int observer = 0; observer < kTimelines; ++observer) {
      for (int of = 0; of < kTimelines; ++of) {
        const std::uint64_t sequence = last[of] == 0 ? 0 : 1 + random() % last[of];
        if (sequence == 0) continue;
        ASSERT_EQ(timelines.covers(index[observer], index[of], sequence),
                  slow.covers(observer, of, sequence))
            << "step " << step << ": " << observer << " of " << of << ", " << sequence;
      }
    }
    if (events.empty()) events.emplace_back(timelines.position(index[t]), slow.known(t));
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, TimelineRandomTest, testing::Range(0, 20));

TEST(TimelineTest, WhatTheHostHasSeenLeavesTheClocks) {
  Timelines timelines(true);
  const TimelineIndex main = timelines.add({}, {}, false);
  for (int i = 0; i < 1000; ++i) {
    const TimelineIndex other = timelines.add({}, {}, false);
    timelines.act(other);
    timelines.join(main, timelines.position(other));
    const Position position = timelines.position(main);
    timelines.host_sees(position);
    timelines.retire(other);
  }
  const auto clock = timelines.position(main).clock;
  ASSERT_NE(clock, nullptr);
  EXPECT_LE(clock->size(), 16u);
}

TEST(TimelineTest, WithoutTrackingOnlyWhatTheHostSawIsOrder) {
  Timelines timelines(false);
  const TimelineIndex a = timelines.add({}, {}, false);
  const TimelineIndex b = timelines.add({}, {}, false);
  const std::uint64_t sequence = timelines.act(a);
  timelines.join(b, timelines.position(a));
  EXPECT_FALSE(timelines.covers(b, a, sequence));
  timelines.host_sees_all(a);
  EXPECT_TRUE(timelines.covers(b, a, sequence));
}

}  // namespace
}  // namespace quarry::sim
