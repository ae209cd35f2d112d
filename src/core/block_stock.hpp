// SPDX-License-Identifier: Apache-2.0
// Host memory for Block records. A BlockSource owns all of a device's; a BlockStock is a lane's
// small stock of unused ones, which it gets and returns by the batch. So records that are used by
// one thread lie beside each other, and not beside those of another thread: neighbours in a cache
// line would slow both.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "base/mutex.hpp"
#include "core/block.hpp"

namespace quarry {

// Thread-safe.
class BlockSource {
 public:
  static constexpr std::size_t kBatch = 32;

  BlockSource() = default;
  BlockSource(const BlockSource&) = delete;
  BlockSource& operator=(const BlockSource&) = delete;

  // kBatch unused records, linked by Block::next. Throws std::bad_alloc, with nothing changed.
  Block* take_batch();
  void give_back_batch(Block* batch) noexcept;

  std::size_t outside_count() const noexcept;  // records that are not here
  std::size_t host_bytes() const noexcept;

 private:
  struct Batch {
    alignas(64) Block blocks[kBatch];
  };
  mutable SpinLock lock_;
  std::vector<std::unique_ptr<Batch>> made_ QUARRY_GUARDED_BY(lock_);
  // Each the head of a batch; has room for all that were made.
  std::vector<Block*> unused_ QUARRY_GUARDED_BY(lock_);
};

// Guarded by whoever guards the stock.
class BlockStock {
 public:
  BlockStock() = default;
  BlockStock(const BlockStock&) = delete;
  BlockStock& operator=(const BlockStock&) = delete;

  void set_source(BlockSource& source) noexcept { source_ = &source; }

  // A record of a free block, whose address, size, segment, owner and neighbours are anything.
  // Throws std::bad_alloc, with nothing changed.
  Block* take() {
    if (first_ == nullptr) [[unlikely]]
      refill();
    Block* const block = first_;
    first_ = block->next;
    --count_;
    return block;
  }
  // Of a free block, or as Block{} makes it: so that nothing is left to clear.
  void give_back(Block* block) noexcept {
    QUARRY_ASSERT(block->is_free() && block->foreign_uses == nullptr);
    QUARRY_ASSERT_EQ(block->requested_bytes, Bytes{0});
    block->next = first_;
    first_ = block;
    if (++count_ == 2 * BlockSource::kBatch) [[unlikely]]
      return_batch();
  }
  std::size_t unused_count() const noexcept { return count_; }

  // Of a neighbour that may be null: no branch, which nobody could foresee.
  void set_previous(Block* block, Block* previous) noexcept {
    *(block != nullptr ? &block->previous : &no_link_) = previous;
  }

 private:
  void refill();
  void return_batch() noexcept;

  BlockSource* source_ = nullptr;
  Block* first_ = nullptr;  // linked by Block::next
  std::size_t count_ = 0;
  Block* no_link_ = nullptr;  // written, never read
};

}  // namespace quarry
