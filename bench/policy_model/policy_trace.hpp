// SPDX-License-Identifier: Apache-2.0
// A whole trace in memory, checked, for models that replay it many times. Knows no allocator.
#pragma once

#include <string>
#include <vector>

#include "base/status.hpp"
#include "trace/trace_checker.hpp"

namespace quarry::policy_model {

struct PolicyEvent {
  std::uint64_t time_us = 0;  // never less than that of the event before
  TraceOp op = TraceOp::kAlloc;
  TraceSlot slot = 0;        // of the allocation; below PolicyTrace::slot_count
  Bytes bytes = 0;           // kAlloc only: rounded up to kTraceGranularity
  std::uint32_t stream = 0;  // kAlloc, kRecordStream: below PolicyTrace::stream_count
};

struct PolicyTrace {
  std::string name;
  std::vector<PolicyEvent> events;  // segment rows left out
  TraceTotals totals;
  TraceSlot slot_count = 0;
  std::uint32_t stream_count = 0;
  std::uint64_t span_us = 0;  // from the first event to the last
};

// Streams are told apart up to this many.
inline constexpr std::uint32_t kMaxStreams = 64;

// Fails where the file cannot be read, makes no sense, or has more than kMaxStreams streams.
Result<PolicyTrace> read_policy_trace(const std::string& path);

}  // namespace quarry::policy_model
