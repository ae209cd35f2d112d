// SPDX-License-Identifier: Apache-2.0
// Replays one trace through one allocator: what the recorded program asked for, and the figures
// that come out. Owns the device (simulated or real, with the program's work on it) and the
// allocator. Reads no files and prints nothing. Not thread-safe.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <unordered_map>
#include <variant>
#include <vector>

#include "api/environment.hpp"
#include "base/status.hpp"
#include "core/allocator.hpp"
#include "core/config.hpp"
#include "tools/real_work.hpp"
#include "tools/replay_block.hpp"
#include "tools/replay_result.hpp"
#include "tools/segment_comparison.hpp"
#include "tools/simulated_work.hpp"
#include "trace/trace_checker.hpp"

namespace quarry::tools {

struct ReplayOptions {
  Config config;
  bool validate = false;  // prove the allocator's invariants every kValidateEvents
  bool compare_segments = false;
  DriverKind driver = DriverKind::kSim;
  // Simulated device only.
  Bytes device_memory_bytes = sim::SimOptions{}.physical_bytes;
  std::uint64_t gpu_lag_us = 0;  // at most kMaxGpuLagUs
  bool oracle = true;            // look for hazards
  // Real device only.
  RealWork::Options real;
};

inline constexpr std::uint64_t kValidateEvents = 1000;
// Added to the latest time of a trace, this still fits into 64 bits of nanoseconds.
inline constexpr std::uint64_t kMaxGpuLagUs =
    std::numeric_limits<std::uint64_t>::max() / sim::kNsPerUs / 2;

// The device of a replay.
using ReplayWork = std::variant<std::unique_ptr<SimulatedWork>, std::unique_ptr<RealWork>>;

// As the options say. kNotSupported where a real device is asked for and cannot be had.
Result<ReplayWork> make_replay_work(const ReplayOptions& options);

class Replayer {
 public:
  static Result<std::unique_ptr<Replayer>> create(const ReplayOptions& options);
  // On a device that the caller has made, whatever ReplayOptions::driver says.
  static Result<std::unique_ptr<Replayer>> create(const ReplayOptions& options, ReplayWork work);
  ~Replayer();

  // Events that follow those of the calls before. On a failure (a row that makes no sense, an
  // error of the allocator other than out-of-memory, an error of the device) the replay is over,
  // and the offending event is the latest of event_count().
  Status replay(std::span<const TraceEvent> events);
  std::uint64_t event_count() const noexcept { return checker_.totals().events; }

  // The figures at the end of the trace; then frees what lives and tears everything down. Once.
  // Fails if the allocator misused the driver or did not give all memory back.
  Result<ReplayResult> finish();

 private:
  Replayer(const ReplayOptions& options, ReplayWork work);

  // Calls `call` with the SimulatedWork or the RealWork.
  template <class Call>
  auto with_work(Call call) {
    return std::visit([&call](auto& work) { return call(*work); }, work_);
  }

  Status replay_event(const TraceEvent& event);
  Status replay_alloc(const TraceEvent& event, TraceSlot slot);
  Status replay_free(ReplayBlock& block);
  Status replay_record(const TraceEvent& event, ReplayBlock& block);
  Status find_stream(std::uint64_t number, StreamRef& stream);
  void advance_time(std::uint64_t time_us);
  Status free_all();

  ReplayOptions options_;
  ReplayWork work_;
  std::unique_ptr<Allocator> allocator_;
  TraceChecker checker_;
  std::vector<ReplayBlock> blocks_;  // by slot
  std::unordered_map<std::uint64_t, StreamRef> streams_;
  std::uint64_t latest_stream_ = kNoTraceStream;  // a cache of the latest find_stream
  StreamRef latest_stream_ref_;
  std::uint64_t latest_time_us_ = 0;
  std::uint64_t next_validation_ = kValidateEvents;
  SegmentComparison segments_;
  ReplayResult result_;
};

}  // namespace quarry::tools
