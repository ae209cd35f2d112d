// SPDX-License-Identifier: Apache-2.0
#include "core/block_pool.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "tests/unit/core/free_blocks.hpp"

namespace quarry::test {
namespace {

class BlockPoolTest : public testing::Test {
 protected:
  Block& insert(Bytes size, Stream& stream, std::size_t sequence = 0, Address address = 0x1000) {
    Block& block = blocks_.make(size, stream, sequence, address);
    pool_.insert(block);
    return block;
  }

  StreamTable streams_{0};
  Stream& one_ = streams_.find_or_add(StreamHandle::kLegacy);
  Stream& two_ = streams_.find_or_add(StreamHandle{0x77});
  FreeBlocks blocks_;
  BlockPool pool_;
};

TEST_F(BlockPoolTest, AnEmptyPoolFindsNothing) {
  EXPECT_EQ(pool_.find_at_least(one_, 1), nullptr);
  EXPECT_EQ(pool_.find_at_least(one_, 1_GiB), nullptr);
  EXPECT_EQ(pool_.find_largest(one_), nullptr);
}

// The edges of the bins: the first, both sides of a page of 64, the last, and the tree behind.
TEST_F(BlockPoolTest, EverySizeIsFoundExactlyFromItselfDown) {
  for (const Bytes size : {Bytes{512}, Bytes{1024}, Bytes{63 * 512}, Bytes{64 * 512},
                           Bytes{65 * 512}, 1_MiB - 512, 1_MiB, 1_MiB + 512, 2_MiB, 10_GiB}) {
    Block& block = insert(size, one_);
    EXPECT_EQ(pool_.find_at_least(one_, size), &block) << size;
    EXPECT_EQ(pool_.find_at_least(one_, 512), &block) << size;
    EXPECT_EQ(pool_.find_at_least(one_, size - 511), &block) << size;
    EXPECT_EQ(pool_.find_at_least(one_, size + 1), nullptr) << size;
    EXPECT_EQ(pool_.find_at_least(one_, size + 512), nullptr) << size;
    EXPECT_EQ(pool_.find_largest(one_), &block) << size;
    pool_.remove(block);
    EXPECT_EQ(pool_.find_at_least(one_, 512), nullptr) << size;
    EXPECT_EQ(pool_.find_largest(one_), nullptr) << size;
  }
}

// What a request for the oversize blocks asks for when the split limit was lifted meanwhile.
TEST_F(BlockPoolTest, ASizeThatCannotBeRoundedUpFindsNothing) {
  insert(512, one_);
  insert(10_GiB, one_);
  EXPECT_EQ(pool_.find_at_least(one_, kUnlimited), nullptr);
  EXPECT_EQ(pool_.find_at_least(one_, kUnlimited - 510), nullptr);
}

TEST_F(BlockPoolTest, TheSmallestThatFitsIsFoundAcrossThePagesAndTheTree) {
  Block& half = insert(512_KiB, one_);
  Block& one_mib = insert(1_MiB, one_);
  Block& larger = insert(1_MiB + 512, one_);
  EXPECT_EQ(pool_.find_at_least(one_, 512), &half);
  EXPECT_EQ(pool_.find_at_least(one_, 512_KiB), &half);
  EXPECT_EQ(pool_.find_at_least(one_, 512_KiB + 512), &one_mib);
  EXPECT_EQ(pool_.find_at_least(one_, 1_MiB + 512), &larger);
  pool_.remove(one_mib);
  EXPECT_EQ(pool_.find_at_least(one_, 512_KiB + 512), &larger);
}

TEST_F(BlockPoolTest, AmongEqualsTheOldestSegmentThenTheLowestAddressComesFirst) {
  for (const Bytes size : {512_KiB, 4_MiB}) {
    Block& young = insert(size, one_, 7, 0x1000);
    Block& high = insert(size, one_, 3, 0x9000);
    Block& low = insert(size, one_, 3, 0x5000);
    EXPECT_EQ(pool_.find_at_least(one_, size), &low);
    pool_.remove(low);
    EXPECT_EQ(pool_.find_at_least(one_, size), &high);
    pool_.remove(high);
    EXPECT_EQ(pool_.find_at_least(one_, size), &young);
    pool_.remove(young);
  }
}

TEST_F(BlockPoolTest, AStreamNeverFindsTheBlocksOfAnother) {
  Block& of_two = insert(4096, two_);
  EXPECT_EQ(pool_.find_at_least(one_, 512), nullptr);
  EXPECT_EQ(pool_.find_largest(one_), nullptr);
  EXPECT_EQ(pool_.find_at_least(two_, 512), &of_two);
  Block& of_one = insert(8192, one_);
  EXPECT_EQ(pool_.find_at_least(one_, 512), &of_one);
  EXPECT_EQ(pool_.find_largest(two_), &of_two);
}

TEST_F(BlockPoolTest, NextSmallerWalksDownAndEndsAtTheTreesFirst) {
  Block& a = insert(2_MiB, one_);
  Block& b = insert(4_MiB, one_);
  Block& c = insert(8_MiB, one_);
  insert(1_MiB, one_);
  EXPECT_EQ(pool_.find_largest(one_), &c);
  EXPECT_EQ(BlockPool::get_next_smaller(c), &b);
  EXPECT_EQ(BlockPool::get_next_smaller(b), &a);
  EXPECT_EQ(BlockPool::get_next_smaller(a), nullptr);
}

TEST_F(BlockPoolTest, AgeCountsSearchesSinceTheInsertion) {
  Block& block = insert(2_MiB, one_);
  EXPECT_EQ(pool_.get_age(block), 0u);
  pool_.count_search();
  pool_.count_search();
  EXPECT_EQ(pool_.get_age(block), 2u);
  pool_.remove(block);
  pool_.insert(block);
  EXPECT_EQ(pool_.get_age(block), 0u);
}

// A model of plain sets, one a stream, over sizes on both sides of every edge.
TEST_F(BlockPoolTest, RandomOperationsEqualOneOrderedSetAStream) {
  std::mt19937 random(7);
  std::map<Stream*, std::set<Block*, InOrder>> model;
  std::vector<Block*> inside;
  const auto pick_size = [&random]() -> Bytes {
    const Bytes edges[] = {512, 64 * 512, 1_MiB, 1_MiB + 512, 3_MiB};
    const Bytes steps = 1 + random() % 2100;
    return random() % 2 == 0 ? edges[random() % 5] : 512 * steps;
  };
  for (Address step = 1; step <= 6000; ++step) {
    if (inside.empty() || random() % 5 < 3) {
      Stream& owner = random() % 2 == 0 ? one_ : two_;
      Block& block = insert(pick_size(), owner, random() % 3, step * 512);
      model[&owner].insert(&block);
      inside.push_back(&block);
    } else {
      std::swap(inside[random() % inside.size()], inside.back());
      pool_.remove(*inside.back());
      model[inside.back()->owner].erase(inside.back());
      inside.pop_back();
    }
    for (Stream* stream : {&one_, &two_}) {
      const auto& expected = model[stream];
      const Bytes size = pick_size() - random() % 512;
      const auto fit = std::find_if(expected.begin(), expected.end(),
                                    [size](const Block* b) { return b->size >= size; });
      ASSERT_EQ(pool_.find_at_least(*stream, size), fit == expected.end() ? nullptr : *fit);
      ASSERT_EQ(pool_.find_largest(*stream), expected.empty() ? nullptr : *expected.rbegin());
    }
  }
  for (Stream* stream : {&one_, &two_}) {
    std::vector<Block*> visited;
    pool_.for_each(*stream, [&visited](Block& block) { visited.push_back(&block); });
    EXPECT_EQ(visited, std::vector<Block*>(model[stream].begin(), model[stream].end()));
  }
}

// The bins of a pool that has them up to their own limit.
TEST_F(BlockPoolTest, BinsMayReachToTwoMebibytesAndNeedNoTree) {
  for (const bool is_ordered : {true, false}) {
    BlockPool pool{FreeBins::kSizeMax};
    pool.set_ordered(is_ordered);
    std::vector<Block*> inside;
    for (Bytes size = 512; size <= 2_MiB; size += 512) {
      inside.push_back(&blocks_.make(size, one_));
      pool.insert(*inside.back());
    }
    EXPECT_EQ(pool.find_largest(one_), inside.back());
    std::shuffle(inside.begin(), inside.end(), std::mt19937(5));
    std::set<Block*, InOrder> model(inside.begin(), inside.end());
    for (Block* const block : inside) {
      ASSERT_EQ(pool.find_at_least(one_, block->size), block);
      pool.remove(*block);
      model.erase(block);
      const auto next = model.upper_bound(block);
      ASSERT_EQ(pool.find_at_least(one_, block->size), next == model.end() ? nullptr : *next);
    }
    EXPECT_EQ(pool.find_largest(one_), nullptr);
  }
}

TEST_F(BlockPoolTest, AnUnorderedBinGivesEveryBlockAndTheLastThatCameFirst) {
  pool_.set_ordered(false);
  std::set<const Block*> expected;
  for (Address address = 512; address <= 100 * 512; address += 512)
    expected.insert(&insert(4096, one_, address % 3, address));
  Block& last = insert(4096, one_, 0, 101 * 512);
  expected.insert(&last);
  EXPECT_EQ(pool_.find_at_least(one_, 4096), &last);
  EXPECT_EQ(pool_.find_largest(one_), &last);
  std::set<const Block*> found;
  for (const Block* b = pool_.find_at_least(one_, 1); b != nullptr; b = pool_.find_next(*b, 1))
    EXPECT_TRUE(found.insert(b).second);
  EXPECT_EQ(found, expected);
}

// Back and forth, with blocks of either time in one bin.
TEST_F(BlockPoolTest, BinsThatBecomeOrderedAreSorted) {
  std::mt19937 random(11);
  std::set<Block*, InOrder> model;
  for (int round = 0; round < 12; ++round) {
    pool_.set_ordered(round % 2 == 0);
    for (Address i = 0; i < 200; ++i) {
      const Bytes size = 512 * (1 + random() % 3);
      const Address address = (random() % 1000 * 1000 + 200 * round + i) * 512;
      model.insert(&insert(size, one_, random() % 3, address));
    }
    for (int i = 0; i < 120; ++i) {
      const auto victim = std::next(model.begin(), static_cast<long>(random() % model.size()));
      pool_.remove(**victim);
      model.erase(victim);
    }
    if (round % 2 != 0) continue;
    std::vector<Block*> found;
    for (Block* b = pool_.find_at_least(one_, 1); b != nullptr; b = pool_.find_next(*b, 1))
      found.push_back(b);
    EXPECT_EQ(found, std::vector<Block*>(model.begin(), model.end()));
    EXPECT_EQ(pool_.find_largest(one_), *model.rbegin());
  }
}

}  // namespace
}  // namespace quarry::test
