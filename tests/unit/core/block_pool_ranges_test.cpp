// SPDX-License-Identifier: Apache-2.0
// BlockPool with blocks of expandable segments: those too large for bins are found by address, and
// before any of a plain segment.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

#include "core/block_pool.hpp"
#include "core/extent_range.hpp"
#include "tests/unit/core/free_blocks.hpp"

namespace quarry::test {
namespace {

constexpr std::size_t kPlain = 0, kRange = 1, kLaterRange = 2;

class BlockPoolRangesTest : public testing::Test {
 protected:
  BlockPoolRangesTest() {
    blocks_.segment(kLaterRange);
    blocks_.segment(kRange).range = blocks_.segment(kLaterRange).range = &range_;
  }
  Block& insert(Bytes size, std::size_t segment, Address address) {
    Block& block = blocks_.make(size, one_, segment, address);
    pool_.insert(block);
    return block;
  }
  std::vector<Block*> list_in_ranges(const Stream& stream, Bytes size) const {
    std::vector<Block*> found;
    pool_.for_each_in_ranges(stream, size, [&](Block& block) { found.push_back(&block); });
    return found;
  }
  using Found = std::vector<Block*>;

  StreamTable streams_{0};
  Stream& one_ = streams_.find_or_add(StreamHandle::kLegacy);
  Stream& two_ = streams_.find_or_add(StreamHandle{0x77});
  ExtentRange range_;
  FreeBlocks blocks_;
  BlockPool pool_;
};

TEST_F(BlockPoolRangesTest, TheLowestAddressComesFirstAndPlainOnesLast) {
  Block& plain = insert(4_MiB, kPlain, 1_GiB);
  Block& high = insert(5_MiB, kRange, 9_GiB);
  Block& low = insert(64_MiB, kRange, 8_GiB);
  EXPECT_EQ(pool_.find_at_least(one_, 4_MiB), &low) << "though others fit better";
  EXPECT_EQ(pool_.find_next(low, 4_MiB), &high);
  EXPECT_EQ(pool_.find_next(high, 4_MiB), &plain);
  EXPECT_EQ(pool_.find_next(plain, 4_MiB), nullptr);
  EXPECT_EQ(pool_.find_next(low, 6_MiB), nullptr);
  pool_.remove(low);
  EXPECT_EQ(pool_.find_at_least(one_, 6_MiB), nullptr);
  EXPECT_EQ(pool_.find_at_least(one_, 4_MiB), &high);
}

TEST_F(BlockPoolRangesTest, WhatHasABinIsFoundBySizeInEitherKind) {
  Block& in_range = insert(512_KiB, kRange, 1_GiB);
  Block& in_plain = insert(768_KiB, kPlain, 2_GiB);
  Block& large = insert(2_MiB, kRange, 3_GiB);
  EXPECT_EQ(pool_.find_at_least(one_, 512), &in_range);
  EXPECT_EQ(pool_.find_next(in_range, 512_KiB), &in_plain);
  EXPECT_EQ(pool_.find_next(in_plain, 512_KiB), &large) << "after the last bin the tree";
  EXPECT_EQ(list_in_ranges(one_, 1), Found{&large}) << "bins are not listed";
}

TEST_F(BlockPoolRangesTest, TheLargestIsFoundInEitherTree) {
  insert(512_KiB, kRange, 1_GiB);
  Block& plain = insert(4_MiB, kPlain, 2_GiB);
  EXPECT_EQ(pool_.find_largest(one_), &plain);
  Block& in_range = insert(6_MiB, kRange, 3_GiB);
  EXPECT_EQ(pool_.find_largest(one_), &in_range);
  Block& larger = insert(8_MiB, kPlain, 4_GiB);
  EXPECT_EQ(pool_.find_largest(one_), &larger);
}

TEST_F(BlockPoolRangesTest, AStreamsOwnAreListedByAddressFromASizeUp) {
  Block& later = insert(4_MiB, kLaterRange, 1_GiB);
  Block& high = insert(8_MiB, kRange, 3_GiB);
  Block& low = insert(2_MiB, kRange, 2_GiB);
  insert(16_MiB, kPlain, 5_GiB);
  Block& of_two = blocks_.make(4_MiB, two_, kRange, 4_GiB);
  pool_.insert(of_two);
  EXPECT_EQ(list_in_ranges(one_, 1), (Found{&low, &high, &later}));
  EXPECT_EQ(list_in_ranges(one_, 4_MiB), (Found{&high, &later}));
  EXPECT_EQ(list_in_ranges(two_, 1), Found{&of_two});
  EXPECT_TRUE(pool_.is_consistent(one_));
}

TEST_F(BlockPoolRangesTest, EveryFreeBlockIsVisitedOnce) {
  std::mt19937 random(3);
  std::map<Block*, int> visits;
  for (Address i = 1; i <= 300; ++i) {
    const Bytes size = 512 * (1 + random() % 4096);
    visits[&insert(size, random() % 3, i * 4_MiB)] = 0;
  }
  pool_.for_each(one_, [&](Block& block) { ++visits.at(&block); });
  for (const auto& [block, count] : visits)
    EXPECT_EQ(count, 1) << block->size;
}

}  // namespace
}  // namespace quarry::test
