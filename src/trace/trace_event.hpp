// SPDX-License-Identifier: Apache-2.0
// One row of an allocation trace: what a program asked of its allocator, and when. A plain value
// of fixed size, the common form of every trace format; it says nothing about how a row is written
// down (docs/trace-format.md) nor whether it makes sense after the rows before it (TraceChecker).
#pragma once

#include <cstdint>
#include <limits>

#include "base/bytes.hpp"

namespace quarry {

// The numbers are the op codes of the native format; never renumber. Codes 6 to 14 are kept for
// later ops (captures, pools, completed work), 15 for an extension of the code itself.
enum class TraceOp : std::uint8_t {
  kAlloc = 1,         // `bytes` as the program asked, on `stream`
  kFree = 2,          // the program gave `id` back
  kRecordStream = 3,  // the program used `id` on `stream` too
  kSegmentAlloc = 4,  // the recording allocator obtained a segment; a replay does nothing
  kSegmentFree = 5,   // the recording allocator returned a segment; likewise
};

// The stream of a row that names none. Only frees may leave it out: the block's own is meant.
inline constexpr std::uint64_t kNoTraceStream = std::numeric_limits<std::uint64_t>::max();

struct TraceEvent {
  std::uint64_t time_us = 0;  // since the first event; may step back where threads were merged
  std::uint64_t id = 0;       // names an allocation while it lives; 0 on segment rows
  Bytes bytes = 0;            // 0 where the row has none
  std::uint64_t stream = 0;   // a number of the trace, not a handle
  TraceOp op = TraceOp::kAlloc;

  friend bool operator==(const TraceEvent&, const TraceEvent&) = default;
};

}  // namespace quarry
