// SPDX-License-Identifier: Apache-2.0
#include "core/segment.hpp"

#include "core/stream_table.hpp"

namespace quarry {

Block* split(Block& block, Bytes head_bytes, BlockStock& blocks) {
  QUARRY_ASSERT(head_bytes > 0 && head_bytes < block.size);
  Block* const tail = blocks.take();
  tail->address = block.address + head_bytes;
  tail->size = block.size - head_bytes;
  tail->segment = block.segment;
  tail->owner = block.owner;
  ++tail->owner->references;
  tail->previous = &block;
  tail->next = block.next;
  if (block.next != nullptr) block.next->previous = tail;
  block.next = tail;
  block.size = head_bytes;
  return tail;
}

void absorb_next(Block& block, BlockStock& blocks) noexcept {
  Block* const tail = block.next;
  QUARRY_ASSERT_EQ(block.end(), tail->address);
  --tail->owner->references;
  block.size += tail->size;
  block.next = tail->next;
  if (block.next != nullptr) block.next->previous = &block;
  blocks.give_back(tail);
}

}  // namespace quarry
