// SPDX-License-Identifier: Apache-2.0
#include "core/block_pool.hpp"

#include <bit>

namespace quarry {

const BlockPool::StreamIndex* BlockPool::find_index(const Stream& stream) const noexcept {
  return stream.index < by_stream_.size() ? by_stream_[stream.index].get() : nullptr;
}

void BlockPool::set_ordered(bool is_ordered) noexcept {
  const bool must_sort = is_ordered && !is_ordered_;
  is_ordered_ = is_ordered;
  if (!must_sort) return;
  for (const auto& index : by_stream_) {
    if (index == nullptr) continue;
    for (const auto& page : index->pages) {
      if (page == nullptr) continue;
      for (BlockTree& bin : page->bins)
        bin.sort();
    }
  }
}

void BlockPool::prepare(const Stream& stream) {
  if (stream.index >= by_stream_.size()) by_stream_.resize(stream.index + 1);
  if (by_stream_[stream.index] == nullptr) {
    by_stream_[stream.index] = std::make_unique<StreamIndex>();
  }
}

void BlockPool::insert(Block& block) {
  const std::size_t stream = block.owner->index;
  if (find_index(*block.owner) == nullptr) prepare(*block.owner);
  StreamIndex& index = *by_stream_[stream];
  block.age_base = searches_;
  if (block.size > kBinnedMax) {
    index.larger.insert(block);
    return;
  }
  const std::size_t bin = block.size / kBinStep;
  std::unique_ptr<Page>& page = index.pages[bin / kPageBins];
  if (page == nullptr) page = std::make_unique<Page>();
  BlockTree& blocks = page->bins[bin % kPageBins];
  is_ordered_ ? blocks.insert(block) : blocks.push(block);
  page->non_empty |= 1ull << (bin % kPageBins);
  index.non_empty_pages |= 1ull << (bin / kPageBins);
}

void BlockPool::remove(Block& block) noexcept {
  StreamIndex& index = *by_stream_[block.owner->index];
  if (block.size > kBinnedMax) {
    index.larger.remove(block);
    return;
  }
  const std::size_t bin = block.size / kBinStep;
  Page& page = *index.pages[bin / kPageBins];
  page.bins[bin % kPageBins].remove(block);
  if (page.bins[bin % kPageBins].is_empty()) page.non_empty &= ~(1ull << (bin % kPageBins));
  if (page.non_empty == 0) index.non_empty_pages &= ~(1ull << (bin / kPageBins));
}

Block* BlockPool::find_binned(const StreamIndex& index, Bytes size) noexcept {
  const std::size_t bin = size / kBinStep;
  const std::size_t first_page = bin / kPageBins;
  if (const Page* page = index.pages[first_page].get(); page != nullptr) {
    const std::uint64_t fitting = page->non_empty >> (bin % kPageBins);
    if (fitting != 0) return page->bins[bin % kPageBins + std::countr_zero(fitting)].get_first();
  }
  const std::uint64_t later = index.non_empty_pages & ~((2ull << first_page) - 1);
  if (later == 0) return nullptr;
  const Page& page = *index.pages[std::countr_zero(later)];
  return page.bins[std::countr_zero(page.non_empty)].get_first();
}

Block* BlockPool::find_at_least(const Stream& stream, Bytes size) const noexcept {
  const StreamIndex* index = find_index(stream);
  if (index == nullptr) return nullptr;
  if (size <= kBinnedMax) {
    if (Block* block = find_binned(*index, round_up(size, kBinStep))) return block;
  }
  return index->larger.find_at_least(size);
}

Block* BlockPool::find_next(const Block& block) const noexcept {
  if (Block* next = BlockTree::get_next(block)) return next;
  return block.size > kBinnedMax ? nullptr : find_at_least(*block.owner, block.size + kBinStep);
}

Block* BlockPool::find_largest(const Stream& stream) const noexcept {
  const StreamIndex* index = find_index(stream);
  if (index == nullptr) return nullptr;
  if (Block* block = index->larger.get_last()) return block;
  if (index->non_empty_pages == 0) return nullptr;
  const Page& page = *index->pages[63 - std::countl_zero(index->non_empty_pages)];
  const BlockTree& bin = page.bins[63 - std::countl_zero(page.non_empty)];
  // The last of an unordered bin is far away, and no larger.
  return is_ordered_ ? bin.get_last() : bin.get_first();
}

}  // namespace quarry
