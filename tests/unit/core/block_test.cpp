// SPDX-License-Identifier: Apache-2.0
#include "core/block.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <set>

#include "core/mem_pool.hpp"
#include "core/object_pool.hpp"
#include "core/segment.hpp"
#include "core/stream_table.hpp"

namespace quarry {
namespace {

TEST(BlockTest, EveryStateHasANameOfItsOwn) {
  std::set<std::string_view> names;
  for (const BlockState state :
       {BlockState::kFree, BlockState::kAllocated, BlockState::kPending, BlockState::kRetiring}) {
    names.insert(get_name(state));
  }
  EXPECT_EQ(names, (std::set<std::string_view>{"free", "allocated", "pending", "retiring"}));
}

TEST(BlockTest, AllocatedAndPendingAreActive) {
  Block block;
  EXPECT_TRUE(block.is_free());
  EXPECT_FALSE(block.is_active());
  block.become_allocated();
  EXPECT_TRUE(block.is_active());
  block.become_pending();
  EXPECT_TRUE(block.is_active());
  block.become_free();
  EXPECT_TRUE(block.is_free());
  block.become_retiring();
  EXPECT_FALSE(block.is_active());
  EXPECT_FALSE(block.is_free());
  block.return_from_retiring();
  EXPECT_TRUE(block.is_free());
}

// What each state may become; every other transition ends the process.
TEST(BlockDeathTest, OnlyTheTransitionsThatExistAreMade) {
  const auto bring = [](Block& block, BlockState state) {
    if (state == BlockState::kRetiring) block.become_retiring();
    if (state == BlockState::kAllocated || state == BlockState::kPending) block.become_allocated();
    if (state == BlockState::kPending) block.become_pending();
  };
  struct Transition {
    BlockState from;
    void (Block::*change)() noexcept;
  };
  for (const BlockState state :
       {BlockState::kFree, BlockState::kAllocated, BlockState::kPending, BlockState::kRetiring}) {
    for (const Transition& transition :
         {Transition{BlockState::kFree, &Block::become_allocated},
          Transition{BlockState::kAllocated, &Block::become_pending},
          Transition{BlockState::kFree, &Block::become_retiring},
          Transition{BlockState::kRetiring, &Block::return_from_retiring}}) {
      Block block;
      bring(block, state);
      if (state == transition.from) {
        (block.*transition.change)();
        EXPECT_NE(block.state(), state);
      } else {
        EXPECT_DEATH((block.*transition.change)(), "invariant does not hold");
      }
    }
  }
}

#ifndef NDEBUG
TEST(BlockDeathTest, ABlockThatWaitsForAFenceDoesNotBecomeFree) {
  Block block;
  block.become_allocated();
  block.become_pending();
  block.pending_fences = 1;
  EXPECT_DEATH(block.become_free(), "pending_fences");
}
#endif

class SegmentTest : public testing::Test {
 protected:
  SegmentTest() : stream_(streams_.find_or_add(StreamHandle::kLegacy)) {
    blocks_.set_source(source_);
    Block* const whole = std::construct_at(blocks_.take());
    whole->address = 0x10000000;
    whole->size = 2_MiB;
    whole->segment = &segment_;
    whole->owner = &stream_;
    stream_.references = 1;
    segment_.address = whole->address;
    segment_.size = whole->size;
    segment_.first = whole;
  }
  // Sizes by address; checks every link on the way.
  std::vector<Bytes> sizes() const {
    std::vector<Bytes> sizes;
    const Block* previous = nullptr;
    Address expected = segment_.address;
    for (const Block* block = segment_.first; block != nullptr; block = block->next) {
      EXPECT_EQ(block->previous, previous);
      EXPECT_EQ(block->address, expected);
      EXPECT_EQ(block->segment, &segment_);
      EXPECT_EQ(block->owner, &stream_);
      expected = block->end();
      sizes.push_back(block->size);
      previous = block;
    }
    return sizes;
  }

  std::size_t live_count() const { return source_.outside_count() - blocks_.unused_count(); }

  StreamTable streams_{0};
  Stream& stream_;
  BlockSource source_;
  BlockStock blocks_;
  Segment segment_;
};

TEST_F(SegmentTest, ASplitLeavesTheHeadInPlaceAndLinksTheRest) {
  Block* const tail = split(*segment_.first, 512, blocks_);
  EXPECT_EQ(sizes(), (std::vector<Bytes>{512, 2_MiB - 512}));
  EXPECT_TRUE(tail->is_free());
  EXPECT_TRUE(tail->is_split());
  EXPECT_TRUE(segment_.first->is_split());
  EXPECT_EQ(stream_.references, 2u);
  EXPECT_EQ(live_count(), 2u);
}

TEST_F(SegmentTest, ASplitInTheMiddleKeepsBothNeighbours) {
  Block* const second = split(*segment_.first, 1_MiB, blocks_);
  split(*segment_.first, 1024, blocks_);
  split(*second, 4096, blocks_);
  EXPECT_EQ(sizes(), (std::vector<Bytes>{1024, 1_MiB - 1024, 4096, 1_MiB - 4096}));
  EXPECT_EQ(stream_.references, 4u);
}

TEST_F(SegmentTest, AbsorbingEveryPieceRestoresTheWhole) {
  Block* const second = split(*segment_.first, 1_MiB, blocks_);
  split(*segment_.first, 1024, blocks_);
  split(*second, 4096, blocks_);
  absorb_next(*segment_.first->next, blocks_);
  EXPECT_EQ(sizes(), (std::vector<Bytes>{1024, 1_MiB - 1024 + 4096, 1_MiB - 4096}));
  absorb_next(*segment_.first, blocks_);
  absorb_next(*segment_.first, blocks_);
  EXPECT_EQ(sizes(), std::vector<Bytes>{2_MiB});
  EXPECT_FALSE(segment_.first->is_split());
  EXPECT_EQ(stream_.references, 1u);
  EXPECT_EQ(live_count(), 1u);
}

TEST(MemPoolTest, SegmentsKeepTheOrderOfCreationThroughRemovals) {
  MemPool pool;
  Segment segments[4];
  for (int i = 0; i < 4; ++i) {
    segments[i].sequence = static_cast<std::uint64_t>(i);
    pool.add(segments[i]);
  }
  const auto sequences = [&pool] {
    std::vector<std::uint64_t> forward, backward;
    for (Segment* s = pool.first_segment; s != nullptr; s = s->next)
      forward.push_back(s->sequence);
    for (Segment* s = pool.last_segment; s != nullptr; s = s->previous)
      backward.insert(backward.begin(), s->sequence);
    EXPECT_EQ(forward, backward);
    return forward;
  };
  EXPECT_EQ(sequences(), (std::vector<std::uint64_t>{0, 1, 2, 3}));
  pool.remove(segments[1]);
  EXPECT_EQ(sequences(), (std::vector<std::uint64_t>{0, 2, 3}));
  pool.remove(segments[0]);
  pool.remove(segments[3]);
  EXPECT_EQ(sequences(), std::vector<std::uint64_t>{2});
  pool.add(segments[1]);
  EXPECT_EQ(sequences(), (std::vector<std::uint64_t>{2, 1}));
  pool.remove(segments[2]);
  pool.remove(segments[1]);
  EXPECT_EQ(sequences(), std::vector<std::uint64_t>{});
}

TEST(ObjectPoolTest, ObjectsAreDistinctCountedAndAsNew) {
  ObjectPool<Block> pool;
  std::set<Block*> taken;
  for (int i = 0; i < 200; ++i) {
    Block* const block = pool.take();
    EXPECT_TRUE(taken.insert(block).second);
    EXPECT_EQ(block->size, 0u);
    block->size = 512;
    block->become_allocated();
  }
  EXPECT_EQ(pool.live_count(), 200u);
  for (Block* block : taken)
    pool.give_back(block);
  EXPECT_EQ(pool.live_count(), 0u);

  const std::size_t host_bytes = pool.host_bytes();
  for (int i = 0; i < 200; ++i) {
    Block* const block = pool.take();
    EXPECT_EQ(taken.count(block), 1u) << "memory of the pool is used again";
    EXPECT_EQ(block->size, 0u);
    EXPECT_TRUE(block->is_free());
  }
  EXPECT_EQ(pool.host_bytes(), host_bytes);
}

TEST(ObjectPoolTest, AnObjectThatOwnsMemoryKeepsIt) {
  ObjectPool<std::vector<int>> pool;
  std::vector<int>* const first = pool.take();
  EXPECT_TRUE(first->empty());
  first->reserve(1000);
  pool.give_back(first);
  EXPECT_EQ(pool.take(), first);
  EXPECT_GE(first->capacity(), 1000u);
}

TEST(ObjectPoolTest, GivingBackNeverAllocates) {
  ObjectPool<Segment> pool;
  std::vector<Segment*> taken;
  for (int i = 0; i < 1000; ++i)
    taken.push_back(pool.take());
  const std::size_t host_bytes = pool.host_bytes();
  EXPECT_GE(host_bytes, 1000 * sizeof(Segment));
  for (Segment* segment : taken)
    pool.give_back(segment);
  EXPECT_EQ(pool.host_bytes(), host_bytes);
}

}  // namespace
}  // namespace quarry
