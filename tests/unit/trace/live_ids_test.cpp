// SPDX-License-Identifier: Apache-2.0
// The table of living ids: right against std::map under random use, slots dense and used again.
#include "trace/live_ids.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

namespace quarry {
namespace {

TEST(LiveIds, EqualsAStandardMapUnderRandomUse) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    std::mt19937_64 random(seed);
    LiveIds live;
    std::map<std::uint64_t, TraceSlot> expected;
    for (int i = 0; i < 20000; ++i) {
      const std::uint64_t id = (random() % 3000) << (seed % 3 * 20);
      const LiveIds::Entry* const entry = live.find(id);
      ASSERT_EQ(entry != nullptr, expected.count(id) == 1);
      if (entry != nullptr) {
        ASSERT_EQ(entry->slot, expected[id]);
        ASSERT_EQ(live.insert(id, 1, 0), nullptr);
        live.erase(live.find(id));
        expected.erase(id);
      } else {
        expected[id] = live.insert(id, 1, 0)->slot;
      }
      ASSERT_EQ(live.size(), expected.size());
    }
    std::set<TraceSlot> slots;
    for (const auto& [id, slot] : expected) {
      ASSERT_EQ(live.find(id)->slot, slot);
      ASSERT_LT(slot, live.slot_count());
      slots.insert(slot);
    }
    EXPECT_EQ(slots.size(), expected.size());
  }
}

TEST(LiveIds, GivesAsManySlotsAsLiveAtOnce) {
  LiveIds live;
  for (std::uint64_t id = 0; id < 100'000; ++id) {
    live.insert(id, 1, 0);
    if (id >= 10) live.erase(live.find(id - 10));
  }
  EXPECT_EQ(live.slot_count(), 11u);
}

}  // namespace
}  // namespace quarry
