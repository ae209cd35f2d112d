// SPDX-License-Identifier: Apache-2.0
// The figures of one replay. A plain value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/bytes.hpp"
#include "trace/trace_checker.hpp"

namespace quarry::tools {

// What kernels that touch every block have found.
struct TouchResult {
  Bytes touched_bytes = 0;  // written and read, all blocks together
  std::uint64_t wrong_words = 0;
  std::uint64_t first_wrong_alloc = 0;  // its place among the trace's allocations, from 0
};

struct ReplayResult {
  TraceTotals trace;
  Bytes peak_allocated_bytes = 0;  // whole blocks, as PyTorch counts
  Bytes peak_active_bytes = 0;
  Bytes peak_reserved_bytes = 0;
  std::uint64_t ooms = 0;            // requests that the allocator could not serve
  std::uint64_t rows_after_oom = 0;  // frees and record_streams of such a request
  std::uint64_t empty_requests = 0;  // allocations of 0 bytes, which get no memory
  std::uint64_t hazards = 0;
  std::string first_hazard;  // empty: none
  std::uint64_t driver_calls = 0;
  std::uint64_t driver_time_ns = 0;    // modelled; measured on the real driver
  std::uint64_t loop_ns = 0;           // host time inside Replayer::replay
  Bytes device_memory_bytes = 0;       // of the device, simulated or real
  std::optional<TouchResult> touch;    // blocks were touched
  bool has_recorded_segments = false;  // with compare_segments, as the two below
  std::uint64_t equal_segments = 0;
  std::string segment_difference;  // empty: the sequences are equal, if there is a recorded one

  // Allocations, frees and record_streams per second of the replay loop.
  double calculate_events_per_second() const noexcept;
};

}  // namespace quarry::tools
