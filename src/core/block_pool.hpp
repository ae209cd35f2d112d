// SPDX-License-Identifier: Apache-2.0
// The free blocks of one size family, indexed by stream for best fit. Sizes up to 1 MiB have a bin
// each and a bitmap of bins that are not empty, so that churn of many sizes costs two bit scans;
// all larger sizes share an ordered tree. Points to blocks, never owns them. Guarded by the
// device.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/block.hpp"
#include "core/block_tree.hpp"
#include "core/stream_table.hpp"

namespace quarry {

class BlockPool {
 public:
  // Whether blocks of one size up to 1 MiB are found by their segment's age and address, as
  // PyTorch does, or the one that was freed last, which is faster and just as good. Becoming
  // ordered sorts what is there.
  void set_ordered(bool is_ordered) noexcept;
  // Makes the index of a stream: afterwards insert and remove of its blocks change nothing else.
  void prepare(const Stream& stream);
  // Under block.owner, which decides who finds it. The block's age counts from now.
  void insert(Block& block);
  void remove(Block& block) noexcept;

  // Best fit: the smallest block of `stream` of at least `size` bytes, the oldest segment's first
  // among equals; null if none.
  Block* find_at_least(const Stream& stream, Bytes size) const noexcept;
  // The next in that order, of the same owner; null if none.
  Block* find_next(const Block& block) const noexcept;
  // The largest of the stream, the last in order among equals; null if none.
  Block* find_largest(const Stream& stream) const noexcept;
  // The next smaller block of the same stream; `block` is larger than 1 MiB and so is the result.
  static Block* get_next_smaller(const Block& block) noexcept {
    return BlockTree::get_previous(block);
  }

  // Ages of free blocks are counted in requests of their family.
  void count_search() noexcept { ++searches_; }
  // Requests that magazines served: they age what lies here as much as a search does.
  void count_served(std::int64_t requests) noexcept {
    searches_ += static_cast<std::uint32_t>(requests);
  }
  std::uint32_t get_age(const Block& block) const noexcept { return searches_ - block.age_base; }

  // Calls visit(Block&) for each free block of `stream` by rising size; visit changes no pool.
  template <class Visit>
  void for_each(const Stream& stream, Visit visit) const;

 private:
  static constexpr Bytes kBinStep = 512;
  static constexpr Bytes kBinnedMax = 1_MiB;
  static constexpr std::size_t kPageBins = 64;
  static constexpr std::size_t kPages = kBinnedMax / kBinStep / kPageBins + 1;

  // 64 neighbouring sizes. Made when first needed.
  struct Page {
    std::uint64_t non_empty = 0;  // bit i: bins[i] has blocks
    std::array<BlockTree, kPageBins> bins;
  };
  struct StreamIndex {
    std::uint64_t non_empty_pages = 0;
    std::array<std::unique_ptr<Page>, kPages> pages;
    BlockTree larger;
  };
  static_assert(kPages <= 64);

  const StreamIndex* find_index(const Stream& stream) const noexcept;
  static Block* find_binned(const StreamIndex& index, Bytes size) noexcept;

  std::vector<std::unique_ptr<StreamIndex>> by_stream_;  // at Stream::index
  std::uint32_t searches_ = 0;
  bool is_ordered_ = true;
};

template <class Visit>
void BlockPool::for_each(const Stream& stream, Visit visit) const {
  const StreamIndex* index = find_index(stream);
  if (index == nullptr) return;
  const auto visit_tree = [&visit](const BlockTree& tree) {
    for (Block* block = tree.get_first(); block != nullptr; block = BlockTree::get_next(*block)) {
      visit(*block);
    }
  };
  for (const auto& page : index->pages) {
    if (page == nullptr || page->non_empty == 0) continue;
    for (const BlockTree& bin : page->bins)
      visit_tree(bin);
  }
  visit_tree(index->larger);
}

}  // namespace quarry
