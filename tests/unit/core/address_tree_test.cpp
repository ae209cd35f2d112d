// SPDX-License-Identifier: Apache-2.0
#include "core/address_tree.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "tests/unit/core/free_blocks.hpp"

namespace quarry::test {
namespace {

// The tree's order, written down once more.
using Key = std::pair<std::uint64_t, Address>;
Key get_key(const Block& block) {
  return {block.segment->sequence, block.address};
}

class AddressTreeTest : public testing::Test {
 protected:
  Block& insert(Bytes size, Address address, std::size_t sequence = 0) {
    Block& block = blocks_.make(size, sequence, address);
    tree_.insert(block);
    model_.emplace(get_key(block), &block);
    return block;
  }
  void remove(Block& block) {
    tree_.remove(block);
    model_.erase(get_key(block));
  }
  Block* expect_first(Bytes size) const {
    const auto found = std::ranges::find_if(
        model_, [size](const auto& entry) { return entry.second->size >= size; });
    return found == model_.end() ? nullptr : found->second;
  }
  Block* expect_next(const Block& block, Bytes size) const {
    const auto found =
        std::find_if(model_.upper_bound(get_key(block)), model_.end(),
                     [size](const auto& entry) { return entry.second->size >= size; });
    return found == model_.end() ? nullptr : found->second;
  }
  // The first of the largest.
  Block* expect_largest() const {
    const auto is_smaller = [](const auto& a, const auto& b) {
      return a.second->size < b.second->size;
    };
    const auto found = std::ranges::max_element(model_, is_smaller);
    return found == model_.end() ? nullptr : found->second;
  }
  std::vector<Block*> walk(Bytes size) const {
    std::vector<Block*> found;
    for (Block* b = tree_.find_first(size); b != nullptr; b = AddressTree::find_next(*b, size))
      found.push_back(b);
    return found;
  }

  FreeBlocks blocks_;
  AddressTree tree_;
  std::map<Key, Block*> model_;
};

TEST_F(AddressTreeTest, AnEmptyTreeFindsNothing) {
  EXPECT_TRUE(tree_.is_empty());
  EXPECT_EQ(tree_.find_first(1), nullptr);
  EXPECT_EQ(tree_.find_largest(), nullptr);
  EXPECT_TRUE(tree_.is_consistent());
}

TEST_F(AddressTreeTest, TheLowestAddressThatIsLargeEnoughComesFirst) {
  Block& high = insert(4_MiB, 9_GiB);
  Block& low = insert(8_MiB, 3_GiB);
  Block& lowest = insert(2_MiB, 1_GiB);
  EXPECT_EQ(tree_.find_first(1), &lowest);
  EXPECT_EQ(tree_.find_first(2_MiB), &lowest);
  EXPECT_EQ(tree_.find_first(2_MiB + 1), &low) << "though the higher one fits better";
  EXPECT_EQ(tree_.find_first(8_MiB + 1), nullptr);
  EXPECT_EQ(AddressTree::find_next(lowest, 3_MiB), &low);
  EXPECT_EQ(AddressTree::find_next(low, 3_MiB), &high);
  EXPECT_EQ(AddressTree::find_next(high, 1), nullptr);
}

// Ranges are chained, and the driver gives addresses as it likes.
TEST_F(AddressTreeTest, TheOlderSegmentComesFirstWhateverItsAddress) {
  Block& of_younger = insert(4_MiB, 1_GiB, 5);
  Block& of_older = insert(4_MiB, 9_GiB, 2);
  EXPECT_EQ(tree_.find_first(4_MiB), &of_older);
  EXPECT_EQ(AddressTree::find_next(of_older, 4_MiB), &of_younger);
}

TEST_F(AddressTreeTest, OfEquallyLargeOnesTheFirstIsTheLargest) {
  insert(4_MiB, 1_GiB);
  Block& first = insert(8_MiB, 2_GiB);
  Block& second = insert(8_MiB, 3_GiB);
  EXPECT_EQ(tree_.find_largest(), &first);
  remove(first);
  EXPECT_EQ(tree_.find_largest(), &second);
}

TEST_F(AddressTreeTest, ARemovedBlockIsNotFoundAndMayComeBackLarger) {
  Block& block = insert(4_MiB, 1_GiB);
  remove(block);
  EXPECT_TRUE(tree_.is_empty());
  block.size = 6_MiB;
  tree_.insert(block);
  EXPECT_EQ(tree_.find_first(6_MiB), &block);
  EXPECT_EQ(tree_.find_largest(), &block);
}

// Addresses that rise, as a range grows, and that fall: the worst of a tree without balance.
TEST_F(AddressTreeTest, ManyInOrderAndAgainstItAreAllWalked) {
  constexpr Address kCount = 20'000;
  for (Address i = 0; i < kCount; ++i)
    insert(2_MiB, 1_GiB + i * 4_MiB, 0);
  for (Address i = kCount; i > 0; --i)
    insert(2_MiB, 1_GiB + i * 4_MiB, 1);
  EXPECT_TRUE(tree_.is_consistent());
  std::vector<Block*> expected;
  for (const auto& [key, block] : model_)
    expected.push_back(block);
  EXPECT_EQ(walk(2_MiB), expected);
}

TEST_F(AddressTreeTest, RandomOperationsEqualAnOrderedMap) {
  std::mt19937 random(17);
  std::vector<Block*> inside;
  const auto pick_size = [&random]() -> Bytes { return 512 * (1 + random() % 64); };
  for (int step = 0; step < 8000; ++step) {
    // Grows to some 500 blocks, shrinks to few, and so on.
    const bool is_growing = step / 1000 % 2 == 0;
    if (inside.empty() || (random() % 4 == 0) != is_growing) {
      const Address address = (static_cast<Address>(step) + random() % 1000 * 100'000) * 512;
      inside.push_back(&insert(pick_size(), address, random() % 3));
    } else {
      std::swap(inside[random() % inside.size()], inside.back());
      remove(*inside.back());
      inside.pop_back();
    }
    const Bytes size = pick_size();
    ASSERT_EQ(tree_.find_first(size), expect_first(size));
    ASSERT_EQ(tree_.find_largest(), expect_largest());
    ASSERT_EQ(tree_.is_empty(), inside.empty());
    if (inside.empty()) continue;
    const Block& any = *inside[random() % inside.size()];
    ASSERT_EQ(AddressTree::find_next(any, size), expect_next(any, size));
    if (step % 16 == 0) {
      ASSERT_TRUE(tree_.is_consistent());
    }
  }
}

TEST_F(AddressTreeTest, AWrongSizeIsInconsistent) {
  Block& block = insert(4_MiB, 1_GiB);
  insert(2_MiB, 2_GiB);
  insert(2_MiB, 3_GiB);
  EXPECT_TRUE(tree_.is_consistent());
  block.size = 8_MiB;
  EXPECT_FALSE(tree_.is_consistent()) << "nobody told the tree";
  block.size = 4_MiB;
  block.address = 4_GiB;
  EXPECT_FALSE(tree_.is_consistent()) << "out of order";
}

}  // namespace
}  // namespace quarry::test
