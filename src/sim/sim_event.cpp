// SPDX-License-Identifier: Apache-2.0
#include "sim/sim_event.hpp"

#include <algorithm>

namespace quarry::sim {

EventHandle EventTable::create(DeviceId device) {
  if (free_slots_.empty()) {
    free_slots_.push_back(static_cast<std::uint32_t>(events_.size()));
    events_.emplace_back();
  }
  const std::uint32_t slot = free_slots_.back();
  free_slots_.pop_back();
  Event& event = events_[slot];
  ++event.generation;
  event.is_live = true;
  event.device = device;
  return static_cast<EventHandle>((std::uint64_t{event.generation} << 32) | (slot + 1));
}

Event* EventTable::find(EventHandle handle) {
  const auto value = static_cast<std::uint64_t>(handle);
  const std::uint64_t slot = (value & 0xffff'ffffu) - 1;
  if (slot >= events_.size()) return nullptr;
  Event& event = events_[slot];
  return event.is_live && event.generation == value >> 32 ? &event : nullptr;
}

void EventTable::destroy(EventHandle handle) {
  destroy_slot(static_cast<std::uint32_t>(static_cast<std::uint64_t>(handle) & 0xffff'ffffu) - 1);
}

void EventTable::reset_device(DeviceId device) {
  for (std::uint32_t slot = 0; slot < events_.size(); ++slot) {
    if (events_[slot].is_live && events_[slot].device == device) destroy_slot(slot);
  }
}

std::uint64_t EventTable::live_count(DeviceId device) const {
  return static_cast<std::uint64_t>(std::count_if(
      events_.begin(), events_.end(),
      [device](const Event& event) { return event.is_live && event.device == device; }));
}

void EventTable::destroy_slot(std::uint32_t slot) {
  Event& event = events_[slot];
  event.is_live = false;
  event.marks.clear();
  event.capture = 0;
  free_slots_.push_back(slot);
}

}  // namespace quarry::sim
