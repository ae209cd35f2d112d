// SPDX-License-Identifier: Apache-2.0
// The rules of a trace's meaning.
#include "trace/trace_checker.hpp"

#include <algorithm>
#include <limits>

namespace quarry {
namespace {

// 0 bytes stand for a row that gives none.
bool has_other_bytes(const TraceEvent& event, const LiveIds::Entry& entry) {
  return event.bytes != 0 && event.bytes != entry.bytes;
}

bool has_other_stream(const TraceEvent& event, const LiveIds::Entry& entry) {
  return event.stream != kNoTraceStream && event.stream != entry.stream;
}

}  // namespace

TraceFault TraceChecker::check_alloc(const TraceEvent& event, TraceSlot& slot) {
  if (event.bytes >= kMaxTraceRequest) return TraceFault::kTooLarge;
  const Bytes rounded = round_up(event.bytes, kTraceGranularity);
  if (rounded > std::numeric_limits<Bytes>::max() - totals_.live_bytes) {
    return TraceFault::kTooMuch;
  }
  const LiveIds::Entry* const entry = live_.insert(event.id, event.bytes, event.stream);
  if (entry == nullptr) return TraceFault::kIdLives;
  ever_used_.insert(event.id);
  slot = entry->slot;
  ++totals_.allocs;
  totals_.live_bytes += rounded;
  totals_.peak_bytes = std::max(totals_.peak_bytes, totals_.live_bytes);
  return TraceFault::kNone;
}

TraceFault TraceChecker::check_free(const TraceEvent& event, TraceSlot& slot) {
  const LiveIds::Entry* const entry = live_.find(event.id);
  if (entry == nullptr) {
    return ever_used_.contains(event.id) ? TraceFault::kFreeTwice : TraceFault::kFreeUnknown;
  }
  if (has_other_bytes(event, *entry)) return TraceFault::kOtherBytes;
  if (has_other_stream(event, *entry)) return TraceFault::kOtherStream;
  slot = entry->slot;
  ++totals_.frees;
  totals_.live_bytes -= round_up(entry->bytes, kTraceGranularity);
  live_.erase(entry);
  return TraceFault::kNone;
}

TraceFault TraceChecker::check_record(const TraceEvent& event, TraceSlot& slot) {
  const LiveIds::Entry* const entry = live_.find(event.id);
  if (entry == nullptr) {
    return ever_used_.contains(event.id) ? TraceFault::kRecordFreed : TraceFault::kRecordUnknown;
  }
  if (has_other_bytes(event, *entry)) return TraceFault::kOtherBytes;
  slot = entry->slot;
  ++totals_.records;
  return TraceFault::kNone;
}

std::string explain(TraceFault fault, const TraceEvent& event) {
  const std::string id = std::to_string(event.id);
  const std::string bytes = std::to_string(event.bytes);
  switch (fault) {
    case TraceFault::kNone:
      return {};
    case TraceFault::kIdLives:
      return "allocation of id " + id + ", which is allocated already";
    case TraceFault::kTooLarge:
      return "allocation of id " + id + " with " + bytes + " bytes; a request is below " +
             std::to_string(kMaxTraceRequest) + " (1 EiB)";
    case TraceFault::kTooMuch:
      return "allocation of id " + id + " with " + bytes +
             " bytes makes the living requests exceed 64 bits";
    case TraceFault::kFreeUnknown:
      return "free of id " + id + ", which was never allocated";
    case TraceFault::kFreeTwice:
      return "free of id " + id + ", which was freed already";
    case TraceFault::kRecordUnknown:
      return "record_stream of id " + id + ", which was never allocated";
    case TraceFault::kRecordFreed:
      return "record_stream of id " + id + ", which was freed already";
    case TraceFault::kOtherBytes:
      return (event.op == TraceOp::kFree ? "free of id " : "record_stream of id ") + id +
             " with bytes " + bytes + ", which is not what its allocation asked for";
    case TraceFault::kOtherStream:
      return "free of id " + id + " with stream " + std::to_string(event.stream) +
             ", which is not that of its allocation";
  }
  return "unknown fault";
}

}  // namespace quarry
