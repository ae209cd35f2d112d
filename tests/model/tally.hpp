// SPDX-License-Identifier: Apache-2.0
// Counts of what a run came across: a test that met none of something has not tested it. A value.
#pragma once

#include <cstdint>

namespace quarry::model {

struct Tally {
  std::uint64_t operations = 0;
  std::uint64_t driver_calls = 0;
  std::uint64_t allocations = 0;
  std::uint64_t ooms = 0;
  std::uint64_t deferred_frees = 0;  // of blocks with recorded streams
  std::uint64_t captures = 0;
  std::uint64_t retired_streams = 0;
  std::uint64_t parked_blocks = 0;
  std::uint64_t parked_by_others = 0;  // than the main thread
  std::uint64_t ended_threads = 0;
  std::uint64_t pins = 0;
  std::uint64_t peer_uses = 0;
  // Private pools and graphs.
  std::uint64_t private_allocations = 0;
  std::uint64_t borrowed_blocks = 0;
  std::uint64_t refused_segments = 0;  // by functions of the user
  std::uint64_t pools_released_with_blocks = 0;
  std::uint64_t captures_into_pools = 0;
  std::uint64_t captured_allocations = 0;
  std::uint64_t captured_reuses = 0;  // of blocks that were given back in the same capture
  std::uint64_t captured_inputs = 0;
  std::uint64_t forked_streams = 0;
  std::uint64_t lost_captures = 0;  // by the user
  std::uint64_t freed_after_captures = 0;
  std::uint64_t graphs = 0;
  std::uint64_t launches = 0;
  std::uint64_t launches_in_flight = 0;  // while others of the pool were, too
  std::uint64_t moved_replays = 0;       // because the stream went, with launches
  std::uint64_t pools_released_with_launches = 0;

  Tally& operator+=(const Tally& other) {
    operations += other.operations;
    driver_calls += other.driver_calls;
    allocations += other.allocations;
    ooms += other.ooms;
    deferred_frees += other.deferred_frees;
    captures += other.captures;
    retired_streams += other.retired_streams;
    parked_blocks += other.parked_blocks;
    parked_by_others += other.parked_by_others;
    ended_threads += other.ended_threads;
    pins += other.pins;
    peer_uses += other.peer_uses;
    private_allocations += other.private_allocations;
    borrowed_blocks += other.borrowed_blocks;
    refused_segments += other.refused_segments;
    pools_released_with_blocks += other.pools_released_with_blocks;
    captures_into_pools += other.captures_into_pools;
    captured_allocations += other.captured_allocations;
    captured_reuses += other.captured_reuses;
    captured_inputs += other.captured_inputs;
    forked_streams += other.forked_streams;
    lost_captures += other.lost_captures;
    freed_after_captures += other.freed_after_captures;
    graphs += other.graphs;
    launches += other.launches;
    launches_in_flight += other.launches_in_flight;
    moved_replays += other.moved_replays;
    pools_released_with_launches += other.pools_released_with_launches;
    return *this;
  }
};

}  // namespace quarry::model
