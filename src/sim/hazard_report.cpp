// SPDX-License-Identifier: Apache-2.0
#include "sim/hazard_report.hpp"

#include <fmt/core.h>

namespace quarry::sim {
namespace {

std::string format_use(const MemoryUse& use) {
  const std::string range =
      fmt::format("[{:#x}, +{}) at {} ns", use.range.address, use.range.bytes, use.time_ns);
  if (use.stream_id == StreamId{}) return range;  // not work: the driver call itself
  return fmt::format("device {} stream {:#x} (id {}) sequence {} lifetime {:#x} {}",
                     use.stream.device, static_cast<std::uint64_t>(use.stream.handle),
                     static_cast<std::uint64_t>(use.stream_id), use.sequence,
                     static_cast<std::uint64_t>(use.lifetime), range);
}

}  // namespace

std::string_view get_name(HazardKind kind) {
  switch (kind) {
    case HazardKind::kHandedOutTwice:
      return "handed out twice";
    case HazardKind::kUnordered:
      return "handed out before an earlier use is done";
    case HazardKind::kNotBacked:
      return "handed out without accessible memory behind it";
    case HazardKind::kAccessUnmapped:
      return "access to unmapped memory";
    case HazardKind::kUnmappedUnderUse:
      return "unmapped under use";
    case HazardKind::kFreedWhileLive:
      return "freed while in somebody's hands";
    case HazardKind::kUseAfterEnd:
      return "used after its lifetime";
    case HazardKind::kGraphMemory:
      return "a graph uses memory that is now another's";
    case HazardKind::kRegisteredMemory:
      return "unmapped or freed while registered";
  }
  return "unknown hazard";
}

std::string_view get_name(MisuseKind kind) {
  switch (kind) {
    case MisuseKind::kDestroyedStream:
      return "call with a destroyed stream";
    case MisuseKind::kUnknownNode:
      return "a node of no active capture";
    case MisuseKind::kDestroyedEvent:
      return "call with a destroyed event";
    case MisuseKind::kCallbackThread:
      return "call from a driver callback";
    case MisuseKind::kDeadlock:
      return "wait for work that nothing ends";
  }
  return "unknown misuse";
}

std::string format_hazard(HazardKind kind, const MemoryUse& earlier, const MemoryUse& later) {
  const bool has_earlier = earlier.stream_id != StreamId{} || earlier.range.bytes != 0;
  if (!has_earlier) return fmt::format("{}: {}", get_name(kind), format_use(later));
  return fmt::format("{}: earlier {}; later {}", get_name(kind), format_use(earlier),
                     format_use(later));
}

}  // namespace quarry::sim
