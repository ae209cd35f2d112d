// SPDX-License-Identifier: Apache-2.0
// Who is ordered before whom: one timeline for each stream (and one more for each stream of a
// capture), each with a sparse vector clock, and what the host has seen. This is order that the
// driver guarantees; virtual time plays no part in it, because having been lucky is not order.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "driver/driver_types.hpp"

namespace quarry::sim {

enum class TimelineIndex : std::uint32_t {};

struct ClockEntry {
  TimelineIndex timeline{};
  std::uint64_t sequence = 0;
};
// Sorted by timeline. Leaves out what the host has seen: that is ordered before everything new.
using VectorClock = std::vector<ClockEntry>;

// A point of a timeline: everything up to `sequence`, and what that was ordered after.
struct Position {
  TimelineIndex timeline{};
  std::uint64_t sequence = 0;
  std::shared_ptr<const VectorClock> clock;  // null: nothing of other timelines
};

class Timelines {
 public:
  // With `tracks_order` off only sequences and what the host saw directly are kept, except for
  // timelines of captures, where order decides what end_capture returns.
  explicit Timelines(bool tracks_order) : tracks_order_(tracks_order) {}

  TimelineIndex add(StreamRef stream, StreamId id, bool is_captured);
  // What follows needs no order any more; uses that name the timeline stay valid.
  void retire(TimelineIndex timeline) { at(timeline).clock.reset(); }

  StreamRef stream(TimelineIndex timeline) const { return at(timeline).stream; }
  StreamId stream_id(TimelineIndex timeline) const { return at(timeline).id; }
  std::uint64_t sequence(TimelineIndex timeline) const { return at(timeline).sequence; }

  // One more action. Returns its sequence.
  std::uint64_t act(TimelineIndex timeline) { return ++at(timeline).sequence; }
  Position position(TimelineIndex timeline) const;
  // What is done on `into` from now on comes after `from`.
  void join(TimelineIndex into, const Position& from);
  // True if new work of `observer` is ordered after that action.
  bool covers(TimelineIndex observer, TimelineIndex timeline, std::uint64_t sequence) const;

  void host_sees(const Position& position);
  void host_sees_all(TimelineIndex timeline) { host_sees(position(timeline)); }
  bool host_saw(TimelineIndex timeline, std::uint64_t sequence) const {
    return at(timeline).host_seen >= sequence;
  }
  bool host_saw_all(TimelineIndex timeline) const {
    return at(timeline).host_seen >= at(timeline).sequence;
  }

 private:
  struct Timeline {
    StreamRef stream;
    StreamId id{};
    bool is_captured = false;
    std::uint64_t sequence = 0;
    std::uint64_t host_seen = 0;  // everything up to here is done, and the host knows
    std::shared_ptr<VectorClock> clock;
    std::size_t prune_at = kSmallClock;  // size at which to forget what the host has seen
  };
  static constexpr std::size_t kSmallClock = 16;

  void prune(VectorClock& clock) const;
  Timeline& at(TimelineIndex i) { return timelines_[static_cast<std::uint32_t>(i)]; }
  const Timeline& at(TimelineIndex i) const { return timelines_[static_cast<std::uint32_t>(i)]; }
  static std::uint64_t find(const VectorClock* clock, TimelineIndex timeline);
  VectorClock& make_writable_clock(Timeline& timeline);
  void merge_entry(VectorClock& clock, TimelineIndex self, ClockEntry entry);

  const bool tracks_order_;
  std::vector<Timeline> timelines_;
};

}  // namespace quarry::sim
