// SPDX-License-Identifier: Apache-2.0
#include "core/free_bins.hpp"

namespace quarry {

void FreeBins::set_ordered(bool is_ordered) noexcept {
  for_each_bin([is_ordered](BlockTree& bin) { is_ordered ? bin.sort() : bin.flatten(); });
}

bool FreeBins::is_consistent() const noexcept {
  bool is_right = true;
  for (std::size_t page = 0; page < kPages; ++page) {
    std::uint64_t expected = 0;
    for (std::size_t i = 0; pages_[page] != nullptr && i < kPageBins; ++i) {
      const BlockTree& bin = (*pages_[page])[i];
      if (bin.is_empty()) continue;
      expected |= std::uint64_t{1} << i;
      const Bytes size = (page * kPageBins + i + 1) * kStep;
      for (const Block* block = bin.get_first(); block != nullptr;
           block = BlockTree::get_next(*block))
        is_right &= block->size == size;
    }
    is_right &= non_empty_[page] == expected;
    is_right &= ((non_empty_pages_ >> page) & 1) == (expected != 0 ? 1u : 0u);
  }
  return is_right;
}

}  // namespace quarry
