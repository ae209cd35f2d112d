// SPDX-License-Identifier: Apache-2.0
// Free blocks made by hand, outside any segment's list, for tests of the indices over them. Owns
// the blocks and their segments.
#pragma once

#include <deque>
#include <tuple>
#include <vector>

#include "core/block.hpp"
#include "core/segment.hpp"
#include "core/stream_table.hpp"

namespace quarry::test {

class FreeBlocks {
 public:
  // The segment with this number in the order of creation.
  Segment& segment(std::size_t sequence) {
    while (segments_.size() <= sequence) {
      segments_.emplace_back().sequence = segments_.size() - 1;
    }
    return segments_[sequence];
  }
  Block& make(Bytes size, std::size_t sequence = 0, Address address = 0x1000) {
    Block& block = blocks_.emplace_back();
    block.size = size;
    block.segment = &segment(sequence);
    block.address = address;
    return block;
  }
  Block& make(Bytes size, Stream& owner, std::size_t sequence = 0, Address address = 0x1000) {
    Block& block = make(size, sequence, address);
    block.owner = &owner;
    return block;
  }

 private:
  std::deque<Segment> segments_;
  std::deque<Block> blocks_;
};

// Best fit's order, written down once more.
inline auto get_order(const Block& block) {
  return std::make_tuple(block.size, block.segment->sequence, block.address);
}
struct InOrder {
  bool operator()(const Block* a, const Block* b) const { return get_order(*a) < get_order(*b); }
};

}  // namespace quarry::test
