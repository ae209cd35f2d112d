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
    return *this;
  }
};

}  // namespace quarry::model
