// SPDX-License-Identifier: Apache-2.0
#include "core/block_pool.hpp"

namespace quarry {

void BlockPool::set_ordered(bool is_ordered) noexcept {
  if (is_ordered == is_ordered_) return;
  is_ordered_ = is_ordered;
  for (const auto& index : by_stream_) {
    if (index != nullptr) index->bins.set_ordered(is_ordered);
  }
}

void BlockPool::prepare(const Stream& stream) {
  if (stream.index >= by_stream_.size()) by_stream_.resize(stream.index + 1);
  if (by_stream_[stream.index] == nullptr) {
    by_stream_[stream.index] = std::make_unique<StreamIndex>();
  }
}

void BlockPool::insert(Block& block) {
  if (find_index(*block.owner) == nullptr) prepare(*block.owner);
  StreamIndex& index = *by_stream_[block.owner->index];
  block.age_base = searches_;
  if (block.size > binned_max_) {
    block.segment->is_expandable() ? index.by_address.insert(block) : index.larger.insert(block);
  } else {
    is_ordered_ ? index.bins.insert_ordered(block) : index.bins.insert(block);
  }
}

void BlockPool::remove(Block& block) noexcept {
  StreamIndex& index = *by_stream_[block.owner->index];
  if (block.size > binned_max_) {
    block.segment->is_expandable() ? index.by_address.remove(block) : index.larger.remove(block);
  } else {
    is_ordered_ ? index.bins.remove_ordered(block) : index.bins.remove(block);
  }
}

Block* BlockPool::find_at_least(const Stream& stream, Bytes size) const noexcept {
  const StreamIndex* index = find_index(stream);
  if (index == nullptr) return nullptr;
  if (size <= binned_max_) {
    const Bytes rounded = round_up(size, FreeBins::kStep);
    if (Block* block = index->bins.find_at_least(rounded)) return block;
  }
  if (Block* block = index->by_address.find_first(size)) return block;
  return index->larger.find_at_least(size);
}

Block* BlockPool::find_next(const Block& block, Bytes size) const noexcept {
  if (block.size <= binned_max_) {
    if (Block* next = BlockTree::get_next(block)) return next;
    return find_at_least(*block.owner, block.size + FreeBins::kStep);
  }
  if (!block.segment->is_expandable()) return BlockTree::get_next(block);
  if (Block* next = AddressTree::find_next(block, size)) return next;
  return find_index(*block.owner)->larger.find_at_least(size);
}

Block* BlockPool::find_largest(const Stream& stream) const noexcept {
  const StreamIndex* index = find_index(stream);
  if (index == nullptr) return nullptr;
  Block* const plain = index->larger.get_last();
  Block* const other = index->by_address.find_largest();
  if (plain != nullptr && (other == nullptr || plain->size >= other->size)) return plain;
  if (other != nullptr) return other;
  const BlockTree* const bin = index->bins.find_largest();
  if (bin == nullptr) return nullptr;
  // The last of an unordered bin is far away, and no larger.
  return is_ordered_ ? bin->get_last() : bin->get_first();
}

bool BlockPool::is_consistent(const Stream& stream) const noexcept {
  const StreamIndex* index = find_index(stream);
  return index == nullptr || (index->bins.is_consistent() && index->by_address.is_consistent());
}

}  // namespace quarry
