// SPDX-License-Identifier: Apache-2.0
// A reuse domain: the segments that it owns and the index of their free blocks. Memory is never
// exchanged between pools, but for what PoolOptions::use_on_oom lends. Each device has the default
// pool and the private ones of graphs and users (pools.cpp).
#pragma once

#include "core/block_pool.hpp"
#include "core/segment.hpp"

namespace quarry {

struct MemPool {
  BlockPool small;  // requests up to 1 MiB
  BlockPool large;
  Segment* first_segment = nullptr;  // in order of creation
  Segment* last_segment = nullptr;

  BlockPool& get_blocks(StatFamily family) noexcept {
    return family == StatFamily::kSmall ? small : large;
  }
  const BlockPool& get_blocks(StatFamily family) const noexcept {
    return family == StatFamily::kSmall ? small : large;
  }

  void add(Segment& segment) noexcept;
  void remove(Segment& segment) noexcept;
};

inline BlockPool& Segment::get_free_blocks() const noexcept {
  return pool->get_blocks(family);
}

inline void MemPool::add(Segment& segment) noexcept {
  segment.pool = this;
  segment.previous = last_segment;
  segment.next = nullptr;
  (last_segment != nullptr ? last_segment->next : first_segment) = &segment;
  last_segment = &segment;
}

inline void MemPool::remove(Segment& segment) noexcept {
  (segment.previous != nullptr ? segment.previous->next : first_segment) = segment.next;
  (segment.next != nullptr ? segment.next->previous : last_segment) = segment.previous;
}

}  // namespace quarry
