// SPDX-License-Identifier: Apache-2.0
// The free blocks of one size family, indexed by stream. Sizes up to a limit have a bin each
// (free_bins.hpp) and are found by best fit; larger ones are in an ordered tree, of plain segments
// by size and of expandable ones by address. Points to blocks, never owns them. Guarded by the
// device.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/address_tree.hpp"
#include "core/block.hpp"
#include "core/block_tree.hpp"
#include "core/free_bins.hpp"
#include "core/stream_table.hpp"

namespace quarry {

class BlockPool {
 public:
  // Sizes up to `binned_max`, at most FreeBins::kSizeMax, have bins.
  explicit BlockPool(Bytes binned_max = 1_MiB) noexcept : binned_max_(binned_max) {}

  // Whether blocks of one size that has a bin are found by their segment's age and address, as
  // PyTorch does, or the one that was freed last, which is faster and just as good. Becoming
  // ordered sorts what is there.
  void set_ordered(bool is_ordered) noexcept;
  // Makes the index of a stream: afterwards insert and remove of its blocks change nothing else.
  void prepare(const Stream& stream);
  // Under block.owner, which decides who finds it. The block's age counts from now.
  void insert(Block& block);
  void remove(Block& block) noexcept;

  // The smallest block of `stream` with a bin of at least `size` bytes; else the lowest of those
  // in expandable segments; else best fit, the oldest segment's first among equals. Null if none.
  Block* find_at_least(const Stream& stream, Bytes size) const noexcept;
  // The next in that order that has at least `size` bytes, of the same owner; null if none.
  Block* find_next(const Block& block, Bytes size) const noexcept;
  // The largest of the stream, of equals in plain segments the last in order; null if none.
  Block* find_largest(const Stream& stream) const noexcept;
  // Calls visit(Block&) for those of `stream` in expandable segments, too large for bins, of at
  // least `size` bytes (not 0), by address.
  template <class Visit>
  void for_each_in_ranges(const Stream& stream, Bytes size, Visit visit) const;
  // The next smaller block of the same stream in a plain segment, as long as they are too large
  // for bins; `block` is.
  static Block* get_next_smaller(const Block& block) noexcept {
    return BlockTree::get_previous(block);
  }

  // For lanes, where nothing is ordered and a family has no larger sizes: the bins of a stream
  // that was prepared.
  FreeBins& get_bins(const Stream& stream) noexcept { return by_stream_[stream.index]->bins; }

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
  // For validate().
  bool is_consistent(const Stream& stream) const noexcept;

 private:
  struct StreamIndex {
    FreeBins bins;           // of sizes up to binned_max_
    BlockTree larger;        // of plain segments
    AddressTree by_address;  // likewise larger, of expandable ones
  };

  StreamIndex* find_index(const Stream& stream) const noexcept {
    return stream.index < by_stream_.size() ? by_stream_[stream.index].get() : nullptr;
  }

  const Bytes binned_max_;
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
  index->bins.for_each_bin(visit_tree);
  visit_tree(index->larger);
  for_each_in_ranges(stream, 1, visit);
}

template <class Visit>
void BlockPool::for_each_in_ranges(const Stream& stream, Bytes size, Visit visit) const {
  const StreamIndex* index = find_index(stream);
  if (index == nullptr) return;
  for (Block* block = index->by_address.find_first(size); block != nullptr;
       block = AddressTree::find_next(*block, size))
    visit(*block);
}

}  // namespace quarry
