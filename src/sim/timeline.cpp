// SPDX-License-Identifier: Apache-2.0
#include "sim/timeline.hpp"

#include <algorithm>

namespace quarry::sim {
namespace {

bool comes_before(const ClockEntry& entry, TimelineIndex timeline) {
  return entry.timeline < timeline;
}

}  // namespace

TimelineIndex Timelines::add(StreamRef stream, StreamId id, bool is_captured) {
  timelines_.push_back({stream, id, is_captured, 0, 0, nullptr, kSmallClock});
  return static_cast<TimelineIndex>(timelines_.size() - 1);
}

Position Timelines::position(TimelineIndex timeline) const {
  const Timeline& t = at(timeline);
  return {timeline, t.sequence, t.clock};
}

void Timelines::join(TimelineIndex into, const Position& from) {
  Timeline& target = at(into);
  ++target.sequence;
  if (into == from.timeline || !(tracks_order_ || target.is_captured)) return;
  // Knowing this position implies knowing its clock.
  if (covers(into, from.timeline, from.sequence)) return;
  VectorClock& clock = make_writable_clock(target);
  merge_entry(clock, into, {from.timeline, from.sequence});
  if (!from.clock) return;
  for (const ClockEntry& entry : *from.clock)
    merge_entry(clock, into, entry);
}

bool Timelines::covers(TimelineIndex observer, TimelineIndex timeline,
                       std::uint64_t sequence) const {
  if (observer == timeline || host_saw(timeline, sequence)) return true;
  return find(at(observer).clock.get(), timeline) >= sequence;
}

void Timelines::host_sees(const Position& position) {
  Timeline& own = at(position.timeline);
  own.host_seen = std::max(own.host_seen, position.sequence);
  if (!position.clock) return;
  for (const ClockEntry& entry : *position.clock) {
    Timeline& other = at(entry.timeline);
    other.host_seen = std::max(other.host_seen, entry.sequence);
  }
}

std::uint64_t Timelines::find(const VectorClock* clock, TimelineIndex timeline) {
  if (clock == nullptr) return 0;
  const auto entry = std::lower_bound(clock->begin(), clock->end(), timeline, comes_before);
  return entry != clock->end() && entry->timeline == timeline ? entry->sequence : 0;
}

VectorClock& Timelines::make_writable_clock(Timeline& timeline) {
  // Events share the clock as it was when they were recorded, so it is copied before it changes.
  if (!timeline.clock) timeline.clock = std::make_shared<VectorClock>();
  if (timeline.clock.use_count() > 1) {
    timeline.clock = std::make_shared<VectorClock>(*timeline.clock);
    prune(*timeline.clock);
  } else if (timeline.clock->size() >= timeline.prune_at) {
    prune(*timeline.clock);
    timeline.prune_at = std::max(kSmallClock, 2 * timeline.clock->size());
  }
  return *timeline.clock;
}

void Timelines::prune(VectorClock& clock) const {
  std::erase_if(clock, [this](const ClockEntry& e) { return host_saw(e.timeline, e.sequence); });
}

void Timelines::merge_entry(VectorClock& clock, TimelineIndex self, ClockEntry entry) {
  if (entry.timeline == self || host_saw(entry.timeline, entry.sequence)) return;
  const auto at = std::lower_bound(clock.begin(), clock.end(), entry.timeline, comes_before);
  if (at != clock.end() && at->timeline == entry.timeline) {
    at->sequence = std::max(at->sequence, entry.sequence);
  } else {
    clock.insert(at, entry);
  }
}

}  // namespace quarry::sim
