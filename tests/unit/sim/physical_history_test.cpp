// SPDX-License-Identifier: Apache-2.0
// The interval map of one physical allocation: what is cut, kept and dropped.
#include "sim/physical_history.hpp"

#include <gtest/gtest.h>

#include <string>

namespace quarry::sim {
namespace {

class PhysicalHistoryTest : public testing::Test {
 protected:
  void replace(Bytes offset, Bytes bytes, LifetimeSlot slot) {
    history_.replace(offset, bytes, 1000 + offset, slot,
                     [this](LifetimeSlot changed, int n) { counts_[changed] += n; });
  }
  void drop_neighbours(Bytes offset, LifetimeSlot done) {
    history_.drop_neighbours(
        offset, [done](LifetimeSlot slot) { return slot == done; },
        [this](LifetimeSlot changed, int n) { counts_[changed] += n; });
  }
  std::string text() {
    std::string text;
    for (const auto& [begin, span] : history_.spans()) {
      text += std::to_string(begin) + "-" + std::to_string(span.end) + ":" +
              std::to_string(span.slot) + " ";
    }
    return text;
  }
  PhysicalHistory history_;
  std::map<LifetimeSlot, int> counts_;
};

TEST_F(PhysicalHistoryTest, KeepsTheRemainsOfASpanThatIsCut) {
  replace(0, 100, 1);
  replace(40, 20, 2);
  EXPECT_EQ(text(), "0-40:1 40-60:2 60-100:1 ");
  EXPECT_EQ(counts_[1], 2);
}

TEST_F(PhysicalHistoryTest, DropsTheTouchingSpansThatAreDone) {
  replace(0, 100, 1);
  replace(40, 20, 2);
  drop_neighbours(40, 1);
  EXPECT_EQ(text(), "40-60:2 ");
  EXPECT_EQ(counts_[1], 0);
  EXPECT_EQ(counts_[2], 1);
}

TEST_F(PhysicalHistoryTest, LeavesTheOtherSpans) {
  replace(0, 40, 1);
  replace(40, 20, 2);
  replace(60, 40, 3);
  replace(101, 9, 1);
  drop_neighbours(40, 1);
  EXPECT_EQ(text(), "40-60:2 60-100:3 101-110:1 ");
  drop_neighbours(60, 1);
  EXPECT_EQ(text(), "40-60:2 60-100:3 101-110:1 ");
}

}  // namespace
}  // namespace quarry::sim
