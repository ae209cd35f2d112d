// SPDX-License-Identifier: Apache-2.0
#include "core/block_stock.hpp"

#include <utility>

namespace quarry {

Block* BlockSource::take_batch() {
  const SpinLockHold hold(lock_);
  if (unused_.empty()) {
    unused_.reserve(made_.size() + 1);  // so that give_back_batch never allocates
    made_.push_back(std::make_unique<Batch>());
    Batch& batch = *made_.back();
    for (std::size_t i = 1; i < kBatch; ++i)
      batch.blocks[i - 1].next = &batch.blocks[i];
    unused_.push_back(&batch.blocks[0]);
  }
  Block* const batch = unused_.back();
  unused_.pop_back();
  return batch;
}

void BlockSource::give_back_batch(Block* batch) noexcept {
  const SpinLockHold hold(lock_);
  unused_.push_back(batch);
}

std::size_t BlockSource::outside_count() const noexcept {
  const SpinLockHold hold(lock_);
  return (made_.size() - unused_.size()) * kBatch;
}

std::size_t BlockSource::host_bytes() const noexcept {
  const SpinLockHold hold(lock_);
  return made_.size() * (sizeof(Batch) + 2 * sizeof(Block*));
}

void BlockStock::refill() {
  first_ = source_->take_batch();
  count_ = BlockSource::kBatch;
}

// Half of what is here.
void BlockStock::return_batch() noexcept {
  Block* const batch = first_;
  Block* last = batch;
  for (std::size_t i = 1; i < BlockSource::kBatch; ++i)
    last = last->next;
  first_ = std::exchange(last->next, nullptr);
  count_ -= BlockSource::kBatch;
  source_->give_back_batch(batch);
}

}  // namespace quarry
