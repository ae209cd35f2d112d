// SPDX-License-Identifier: Apache-2.0
// The free blocks of one stream and family, of sizes up to 2 MiB: a bin for each size and a bitmap
// of those that are not empty, so that best fit is two bit scans. What a request or a free does
// here is inline, and avoids branches that a churn of random sizes makes unforeseeable. Points to
// blocks, never owns them. Guarded as the blocks are.
//
// Bins are either all ordered (BlockTree's order) or all lists, the last that came first; the
// BlockPool knows which, and changes them from one to the other.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <memory>

#include "core/block.hpp"
#include "core/block_tree.hpp"

namespace quarry {

class FreeBins {
 public:
  static constexpr Bytes kStep = 512;
  static constexpr Bytes kSizeMax = 2_MiB;

  // The first of the smallest bin with blocks of at least `size` bytes, which is a multiple of
  // kStep and at most kSizeMax; null if none.
  Block* find_at_least(Bytes size) const noexcept;
  // The bin of the largest blocks; null if all are empty.
  const BlockTree* find_largest() const noexcept;

  // Of lists. May throw std::bad_alloc, with nothing changed.
  void insert(Block& block) {
    find_or_make_bin(block.size).push(block, no_link_);
    mark(get_number(block.size));
  }
  void remove(Block& block) noexcept {
    BlockTree& bin = get_bin(block.size);
    bin.unlink(block, no_link_);
    clear_if(bin.is_empty(), get_number(block.size));
  }
  // Of ordered bins.
  void insert_ordered(Block& block) {
    find_or_make_bin(block.size).insert(block);
    mark(get_number(block.size));
  }
  void remove_ordered(Block& block) noexcept {
    BlockTree& bin = get_bin(block.size);
    bin.remove(block);
    clear_if(bin.is_empty(), get_number(block.size));
  }
  void set_ordered(bool is_ordered) noexcept;
  // For validate(): whether the bitmap says of each bin whether it has blocks, all of one size.
  bool is_consistent() const noexcept;

  // Calls visit(BlockTree&) for each bin that was ever used, by rising size.
  template <class Visit>
  void for_each_bin(Visit visit) const {
    for (const auto& page : pages_) {
      if (page == nullptr) continue;
      for (BlockTree& bin : *page)
        visit(bin);
    }
  }

 private:
  // 64 neighbouring sizes. Made when first needed.
  static constexpr std::size_t kPageBins = 64;
  using Page = std::array<BlockTree, kPageBins>;
  static constexpr std::size_t kPages = kSizeMax / kStep / kPageBins;
  static_assert(kPages <= 64, "non_empty_pages_ has a bit for each");

  static constexpr std::size_t get_number(Bytes size) noexcept { return size / kStep - 1; }
  BlockTree& get_bin(Bytes size) const noexcept { return at(get_number(size)); }
  BlockTree& at(std::size_t number) const noexcept {
    return (*pages_[number / kPageBins])[number % kPageBins];
  }
  BlockTree& find_or_make_bin(Bytes size) {
    std::unique_ptr<Page>& page = pages_[get_number(size) / kPageBins];
    if (page == nullptr) [[unlikely]]
      page = std::make_unique<Page>();
    return (*page)[get_number(size) % kPageBins];
  }
  void mark(std::size_t number) noexcept {
    non_empty_[number / kPageBins] |= std::uint64_t{1} << (number % kPageBins);
    non_empty_pages_ |= std::uint64_t{1} << (number / kPageBins);
  }
  void clear_if(bool is_empty, std::size_t number) noexcept {
    std::uint64_t& page = non_empty_[number / kPageBins];
    const std::uint64_t left = page & ~(std::uint64_t{is_empty} << (number % kPageBins));
    page = left;
    non_empty_pages_ &= ~(std::uint64_t{left == 0} << (number / kPageBins));
  }

  std::uint64_t non_empty_pages_ = 0;              // bit i: non_empty_[i] is not 0
  std::array<std::uint64_t, kPages> non_empty_{};  // bit j of i: bin j of page i has blocks
  std::array<std::unique_ptr<Page>, kPages> pages_;
  Block* no_link_ = nullptr;  // written, never read
};

inline Block* FreeBins::find_at_least(Bytes size) const noexcept {
  const std::size_t number = get_number(size);
  std::size_t page = number / kPageBins;
  std::uint64_t fitting = non_empty_[page] & (~std::uint64_t{0} << (number % kPageBins));
  if (fitting == 0) {
    const std::uint64_t later = non_empty_pages_ & ~((std::uint64_t{2} << page) - 1);
    if (later == 0) return nullptr;
    page = static_cast<std::size_t>(std::countr_zero(later));
    fitting = non_empty_[page];
  }
  return (*pages_[page])[static_cast<std::size_t>(std::countr_zero(fitting))].get_first();
}

inline const BlockTree* FreeBins::find_largest() const noexcept {
  if (non_empty_pages_ == 0) return nullptr;
  const auto page = static_cast<std::size_t>(63 - std::countl_zero(non_empty_pages_));
  return &(*pages_[page])[static_cast<std::size_t>(63 - std::countl_zero(non_empty_[page]))];
}

}  // namespace quarry
