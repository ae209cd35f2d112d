// SPDX-License-Identifier: Apache-2.0
#include "bench/policy_model/address_range.hpp"

#include <gtest/gtest.h>

namespace quarry::policy_model {
namespace {

constexpr StreamSet kFirst = 1;
constexpr StreamSet kSecond = 2;

// A range with extents of 2 MiB at [0, 8 MiB), all free and idle.
AddressRange make_range() {
  AddressRange range;
  for (Address begin = 0; begin < 8_MiB; begin += 2_MiB)
    range.map(begin, 2_MiB, {});
  return range;
}

TEST(AddressRangeTest, IdlePiecesMergeAndServeAnyStream) {
  AddressRange range = make_range();
  range.validate();
  EXPECT_EQ(range.find_piece(8_MiB, kSecond, PieceFit::kBest), 0u);
  EXPECT_FALSE(range.find_piece(8_MiB + 512, kSecond, PieceFit::kBest));
}

TEST(AddressRangeTest, AFreedPieceServesItsOwnStreamUntilItsFencePasses) {
  AddressRange range = make_range();
  range.take(0, 8_MiB);
  range.give(0, 8_MiB, {kFirst, 0, 100, 0});
  EXPECT_TRUE(range.find_piece(8_MiB, kFirst, PieceFit::kLowestAddress));
  EXPECT_FALSE(range.find_piece(512, kSecond, PieceFit::kLowestAddress));
  range.advance(99);
  EXPECT_FALSE(range.find_piece(512, kSecond, PieceFit::kBest));
  range.advance(100);
  EXPECT_TRUE(range.find_piece(8_MiB, kSecond, PieceFit::kBest));
}

TEST(AddressRangeTest, AStreamThatHasWaitedMayTakeWhatItWaitedFor) {
  AddressRange range = make_range();
  range.take(0, 8_MiB);
  range.give(0, 8_MiB, {kFirst, 0, 100, 0});
  EXPECT_EQ(range.get_pending(0, 8_MiB, 1), kFirst);
  range.add_waiter(1, kFirst);
  EXPECT_EQ(range.get_pending(0, 8_MiB, 1), 0u);
  EXPECT_TRUE(range.find_piece(8_MiB, kSecond, PieceFit::kBest));
  EXPECT_FALSE(range.find_piece(8_MiB, get_stream_bit(2), PieceFit::kBest));
}

TEST(AddressRangeTest, BestFitTakesTheSmallestPieceAndLowestTheFirst) {
  AddressRange range = make_range();
  range.take(4_MiB, 1_MiB);  // leaves 4 MiB before and 3 MiB after
  EXPECT_EQ(range.find_piece(1_MiB, kFirst, PieceFit::kBest), 5_MiB);
  EXPECT_EQ(range.find_piece(1_MiB, kFirst, PieceFit::kLowestAddress), 0u);
}

TEST(AddressRangeTest, OnlyExtentsWhollyInFreePiecesOutsideThePlaceMayMove) {
  AddressRange range = make_range();
  range.take(3_MiB, 512);
  std::vector<FreeExtent> extents;
  range.add_free_extents(7_MiB, 9_MiB, kFirst, extents);
  ASSERT_EQ(extents.size(), 2u);
  EXPECT_EQ(extents[0].victim.begin, 0u);
  EXPECT_EQ(extents[1].victim.begin, 4_MiB);
  EXPECT_EQ(extents[0].victim.run, 3_MiB);
}

TEST(AddressRangeTest, OldAddressesRetireUntilTheirFencePasses) {
  AddressRange range = make_range();
  range.unmap(2_MiB, 50, 100);
  range.validate();
  EXPECT_EQ(range.get_retiring_bytes(), 2_MiB);
  EXPECT_GE(range.find_place(6_MiB, kFirst, PlaceTie::kLowestAddress).begin, 4_MiB);
  range.advance(100);
  EXPECT_EQ(range.get_retiring_bytes(), 0u);
  EXPECT_EQ(range.find_place(6_MiB, kFirst, PlaceTie::kLowestAddress).begin, 0u);
  range.validate();
}

}  // namespace
}  // namespace quarry::policy_model
