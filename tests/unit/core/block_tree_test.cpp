// SPDX-License-Identifier: Apache-2.0
#include "core/block_tree.hpp"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "tests/unit/core/free_blocks.hpp"

namespace quarry::test {
namespace {

using Model = std::set<Block*, InOrder>;

void expect_equal(const BlockTree& tree, const Model& model) {
  EXPECT_EQ(tree.is_empty(), model.empty());
  EXPECT_EQ(tree.get_first(), model.empty() ? nullptr : *model.begin());
  EXPECT_EQ(tree.get_last(), model.empty() ? nullptr : *model.rbegin());
  const Block* block = tree.get_first();
  for (const Block* expected : model) {
    ASSERT_EQ(block, expected);
    block = BlockTree::get_next(*block);
  }
  EXPECT_EQ(block, nullptr);
  block = tree.get_last();
  for (auto expected = model.rbegin(); expected != model.rend(); ++expected) {
    ASSERT_EQ(block, *expected);
    block = BlockTree::get_previous(*block);
  }
  EXPECT_EQ(block, nullptr);
}

Block* find_in(const Model& model, Bytes size) {
  for (Block* block : model) {
    if (block->size >= size) return block;
  }
  return nullptr;
}

// Edges from the root to the block.
int count_depth(const Block& block) {
  int depth = 0;
  for (const Block* b = &block; b->parent != nullptr; b = b->parent)
    ++depth;
  return depth;
}

TEST(BlockTreeTest, AnEmptyTreeHasNothing) {
  const BlockTree tree;
  expect_equal(tree, {});
  EXPECT_EQ(tree.find_at_least(0), nullptr);
}

TEST(BlockTreeTest, OrderIsSizeThenSegmentThenAddress) {
  FreeBlocks blocks;
  Block& small = blocks.make(2_MiB, 9, 0x9000);
  Block& old_segment = blocks.make(4_MiB, 1, 0x8000);  // a high address in an old segment
  Block& new_segment = blocks.make(4_MiB, 2, 0x1000);
  Block& same_segment = blocks.make(4_MiB, 2, 0x2000);
  BlockTree tree;
  for (Block* block : {&same_segment, &new_segment, &old_segment, &small})
    tree.insert(*block);
  expect_equal(tree, {&small, &old_segment, &new_segment, &same_segment});
  EXPECT_EQ(tree.get_first(), &small);
  EXPECT_EQ(BlockTree::get_next(small), &old_segment);
  EXPECT_EQ(BlockTree::get_next(old_segment), &new_segment);
  EXPECT_EQ(tree.get_last(), &same_segment);
}

TEST(BlockTreeTest, FindGivesTheFirstThatIsLargeEnough) {
  FreeBlocks blocks;
  BlockTree tree;
  for (const Bytes size : {2_MiB, 4_MiB, 4_MiB, 8_MiB})
    tree.insert(blocks.make(size, 0, 0x1000 * size));
  EXPECT_EQ(tree.find_at_least(1)->size, 2_MiB);
  EXPECT_EQ(tree.find_at_least(2_MiB)->size, 2_MiB);
  EXPECT_EQ(tree.find_at_least(2_MiB + 1)->size, 4_MiB);
  EXPECT_EQ(tree.find_at_least(8_MiB)->size, 8_MiB);
  EXPECT_EQ(tree.find_at_least(8_MiB + 1), nullptr);
}

TEST(BlockTreeTest, RandomInsertsAndRemovesEqualAnOrderedSet) {
  for (const unsigned seed : {1u, 2u, 3u}) {
    std::mt19937 random(seed);
    FreeBlocks blocks;
    std::vector<Block*> outside;
    for (Address i = 0; i < 300; ++i) {
      outside.push_back(&blocks.make(512 * (random() % 20 + 1), random() % 4, 512 * (i + 1)));
    }
    BlockTree tree;
    Model model;
    for (int step = 0; step < 4000; ++step) {
      const bool inserts = !outside.empty() && (model.empty() || random() % 2 == 0);
      if (inserts) {
        std::swap(outside[random() % outside.size()], outside.back());
        tree.insert(*outside.back());
        model.insert(outside.back());
        outside.pop_back();
      } else {
        Block* const block = *std::next(model.begin(), random() % model.size());
        tree.remove(*block);
        model.erase(block);
        outside.push_back(block);
      }
      const Bytes size = random() % 11000;
      ASSERT_EQ(tree.find_at_least(size), find_in(model, size)) << "seed " << seed;
      if (step % 100 == 0) expect_equal(tree, model);
    }
    expect_equal(tree, model);
  }
}

// Blocks of one segment come in rising order all the time; the tree must not become a list.
TEST(BlockTreeTest, InsertionInOrderKeepsTheTreeShallow) {
  FreeBlocks blocks;
  BlockTree tree;
  constexpr int kBlocks = 1 << 14;
  for (Address i = 1; i <= kBlocks; ++i)
    tree.insert(blocks.make(2_MiB, 0, i * 2_MiB));
  int deepest = 0;
  for (Block* block = tree.get_first(); block != nullptr; block = BlockTree::get_next(*block)) {
    deepest = std::max(deepest, count_depth(*block));
  }
  EXPECT_LT(deepest, 4 * 14);
}

}  // namespace
}  // namespace quarry::test
