// SPDX-License-Identifier: Apache-2.0
// A reuse domain: the segments that it owns and the index of their free blocks. Memory is never
// exchanged between pools, but for what PoolOptions::use_on_oom lends. Each device has the default
// pool and the private ones of graphs and users (pools.cpp).
//
// Who may take a free block of a private pool is, as everywhere, said by its owner. Memory that a
// capture was given is a domain of its own, since the graph uses it whenever it is launched: its
// owners are captured streams (stream_table.hpp), and requests outside of captures never get it.
#pragma once

#include <utility>
#include <vector>

#include "core/block_pool.hpp"
#include "core/pool_options.hpp"
#include "core/segment.hpp"
#include "core/size_policy.hpp"

namespace quarry {

struct MemPool {
  MemPool() = default;  // the default pool
  MemPool(PoolId of, PoolOptions with) : id(of), options(std::move(with)) {}
  MemPool(const MemPool&) = delete;
  MemPool& operator=(const MemPool&) = delete;

  const PoolId id{};
  PoolOptions options;
  std::uint64_t serial = 0;  // tells it from an earlier pool of this id
  // The graphs and users that hold it. At 0 vacant segments go back, and with the last the pool.
  int use_count = 0;
  // From a first hold to the last release; numbered by the device, each higher than those before.
  std::uint64_t tenure = 0;
  int requests = 0;         // under way
  Bytes growing_bytes = 0;  // asked of the driver or the backend, not yet reserved

  BlockPool small{kSmallSegment};  // requests up to 1 MiB, in segments of 2 MiB
  BlockPool large;
  // Free blocks of outdated segments, which no request may have.
  BlockPool outdated_small{kSmallSegment};
  BlockPool outdated_large;
  Segment* first_segment = nullptr;  // in order of creation
  Segment* last_segment = nullptr;

  // Owns the captured memory that every capture may take: what the host has seen done outside of
  // captures. Null until a capture is served; the pool holds a reference on it and on the next.
  Stream* captured_idle = nullptr;
  std::vector<Stream*> captured_streams;
  PoolStats stats;  // kept for private pools

  bool is_default() const noexcept { return id.is_default(); }
  BlockPool& get_blocks(StatFamily family) noexcept {
    return family == StatFamily::kSmall ? small : large;
  }
  const BlockPool& get_blocks(StatFamily family) const noexcept {
    return family == StatFamily::kSmall ? small : large;
  }

  BlockPool& get_outdated_blocks(StatFamily family) noexcept {
    return family == StatFamily::kSmall ? outdated_small : outdated_large;
  }

  void add(Segment& segment) noexcept;
  void remove(Segment& segment) noexcept;
};

inline BlockPool& Segment::get_free_blocks() const noexcept {
  return is_outdated ? pool->get_outdated_blocks(family) : pool->get_blocks(family);
}

inline void MemPool::add(Segment& segment) noexcept {
  segment.pool = this;
  segment.is_private = !is_default();
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
