// SPDX-License-Identifier: Apache-2.0
// Replays one trace through one allocator on a simulated device: what the recorded program asked
// for, at the trace's own times, and the figures that come out. Owns the device and the allocator.
// Reads no files and prints nothing. Not thread-safe.
//
// Time is the trace's. The program's GPU work is modelled by its edges: work on a block's stream
// is submitted at its allocation and at its free, work on a recorded stream at the record_stream
// (which the program has ordered after the block's own stream) and at the free. Each ends
// `gpu_lag_us` after the row that submits it.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/status.hpp"
#include "core/allocator.hpp"
#include "core/config.hpp"
#include "sim/sim_driver.hpp"
#include "tools/segment_comparison.hpp"
#include "trace/trace_checker.hpp"

namespace quarry::tools {

struct ReplayOptions {
  Config config;
  Bytes device_memory_bytes = sim::SimOptions{}.physical_bytes;
  std::uint64_t gpu_lag_us = 0;  // at most kMaxGpuLagUs
  bool oracle = true;            // look for hazards
  bool validate = false;         // prove the allocator's invariants every kValidateEvents
  bool compare_segments = false;
};

inline constexpr std::uint64_t kValidateEvents = 1000;
// Added to the latest time of a trace, this still fits into 64 bits of nanoseconds.
inline constexpr std::uint64_t kMaxGpuLagUs =
    std::numeric_limits<std::uint64_t>::max() / sim::kNsPerUs / 2;

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
  std::uint64_t driver_time_ns = 0;    // modelled
  std::uint64_t loop_ns = 0;           // host time inside Replayer::replay
  bool has_recorded_segments = false;  // with compare_segments, as the two below
  std::uint64_t equal_segments = 0;
  std::string segment_difference;  // empty: the sequences are equal, if there is a recorded one

  // Allocations, frees and record_streams per second of the replay loop.
  double calculate_events_per_second() const noexcept;
};

class Replayer {
 public:
  static Result<std::unique_ptr<Replayer>> create(const ReplayOptions& options);
  ~Replayer();

  // Events that follow those of the calls before. On a failure (a row that makes no sense, an
  // error of the allocator other than out-of-memory) the replay is over, and the offending event
  // is the latest of event_count().
  Status replay(std::span<const TraceEvent> events);
  std::uint64_t event_count() const noexcept { return checker_.totals().events; }

  // The figures at the end of the trace; then frees what lives and tears everything down. Once.
  // Fails if the allocator misused the driver or did not give all memory back.
  Result<ReplayResult> finish();

 private:
  // What is known of a living allocation, by slot. Kept when the slot is free, so that the
  // vector's memory is used again.
  struct Holding {
    Address address = 0;  // 0: out of memory, or 0 bytes
    StreamRef stream;
    sim::LifetimeId lifetime = sim::LifetimeId::kNone;
    bool is_out_of_memory = false;
    std::vector<StreamRef> recorded;
  };

  explicit Replayer(const ReplayOptions& options);

  Status replay_event(const TraceEvent& event);
  Status replay_alloc(const TraceEvent& event, TraceSlot slot);
  Status replay_free(Holding& holding);
  Status replay_record(const TraceEvent& event, Holding& holding);
  StreamRef find_stream(std::uint64_t number);
  void advance_time(std::uint64_t time_us);
  void submit_work(StreamRef stream, sim::LifetimeId lifetime);
  Status free_all();

  ReplayOptions options_;
  SimDriver driver_;
  std::unique_ptr<Allocator> allocator_;
  TraceChecker checker_;
  std::vector<Holding> holdings_;  // by slot
  std::unordered_map<std::uint64_t, StreamRef> streams_;
  std::uint64_t latest_stream_ = kNoTraceStream;  // a cache of the latest find_stream
  StreamRef latest_stream_ref_;
  std::uint64_t latest_time_us_ = 0;
  std::uint64_t next_validation_ = kValidateEvents;
  bool submits_work_;  // false: all work ends at once and nobody looks at it
  SegmentComparison segments_;
  ReplayResult result_;
};

}  // namespace quarry::tools
