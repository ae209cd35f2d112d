// SPDX-License-Identifier: Apache-2.0
// Events: what each was recorded on, and handles that notice when they are used after destruction.
#pragma once

#include <vector>

#include "sim/sim_stream.hpp"

namespace quarry::sim {

struct Event {
  std::uint32_t generation = 0;
  bool is_live = false;
  DeviceId device = 0;
  std::vector<Mark> marks;    // of the last record; empty: never recorded, which counts as passed
  CaptureNumber capture = 0;  // recorded on a stream of this capture; the event belongs to it
  std::vector<GraphNode> frontier;  // of that stream then
};

class EventTable {
 public:
  EventHandle create(DeviceId device);
  // Null for a handle that is no event, or was destroyed.
  Event* find(EventHandle handle);
  void destroy(EventHandle handle);
  void reset_device(DeviceId device);
  std::uint64_t live_count(DeviceId device) const;

 private:
  void destroy_slot(std::uint32_t slot);

  std::vector<Event> events_;
  std::vector<std::uint32_t> free_slots_;
};

}  // namespace quarry::sim
