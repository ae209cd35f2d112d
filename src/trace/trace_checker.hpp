// SPDX-License-Identifier: Apache-2.0
// Checks that each event of a trace makes sense after those before it, gives every living
// allocation a slot, and keeps the figures that are properties of the trace itself. Knows no
// allocator. Memory grows with the allocations that live at once, and with gaps between ids that
// were ever used. Not thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "trace/id_set.hpp"
#include "trace/live_ids.hpp"
#include "trace/trace_event.hpp"

namespace quarry {

enum class TraceFault {
  kNone,
  kIdLives,        // an allocation under an id that lives already
  kTooLarge,       // a request of kMaxTraceRequest or more
  kTooMuch,        // more bytes live than 64 bits can count
  kFreeUnknown,    // a free of an id that was never allocated
  kFreeTwice,      // a free of an id that was freed already
  kRecordUnknown,  // a record_stream of an id that was never allocated
  kRecordFreed,    // a record_stream of an id that was freed already
  kOtherBytes,     // a free or record_stream whose bytes are not those of the allocation
  kOtherStream,    // a free whose stream is not that of the allocation
};

// Requests from here on (1 EiB) are no program's: PyTorch refuses them before its allocator runs.
inline constexpr Bytes kMaxTraceRequest = Bytes{1} << 60;
// Live requests are counted in multiples of this, as PyTorch rounds them.
inline constexpr Bytes kTraceGranularity = 512;

struct TraceTotals {
  std::uint64_t events = 0;
  std::uint64_t allocs = 0;
  std::uint64_t frees = 0;
  std::uint64_t records = 0;
  Bytes live_bytes = 0;  // requests of living allocations, each rounded up to kTraceGranularity
  Bytes peak_bytes = 0;  // the highest live_bytes
};

class TraceChecker {
 public:
  // Accepts `event` and sets `slot` to that of its allocation (untouched by segment rows), or
  // changes nothing and says what is wrong. The slot of an allocation that was freed is given to
  // the next one.
  TraceFault check(const TraceEvent& event, TraceSlot& slot) {
    ++totals_.events;
    switch (event.op) {
      case TraceOp::kAlloc:
        return check_alloc(event, slot);
      case TraceOp::kFree:
        return check_free(event, slot);
      case TraceOp::kRecordStream:
        return check_record(event, slot);
      case TraceOp::kSegmentAlloc:
      case TraceOp::kSegmentFree:
        break;
    }
    return TraceFault::kNone;
  }

  const TraceTotals& totals() const noexcept { return totals_; }
  std::size_t live_count() const noexcept { return live_.size(); }
  // All slots given so far are below.
  TraceSlot slot_count() const noexcept { return live_.slot_count(); }

 private:
  TraceFault check_alloc(const TraceEvent& event, TraceSlot& slot);
  TraceFault check_free(const TraceEvent& event, TraceSlot& slot);
  TraceFault check_record(const TraceEvent& event, TraceSlot& slot);

  LiveIds live_;  // entries hold the allocation's own bytes and stream
  IdSet ever_used_;
  TraceTotals totals_;
};

// One sentence that names the id, for people.
std::string explain(TraceFault fault, const TraceEvent& event);

}  // namespace quarry
