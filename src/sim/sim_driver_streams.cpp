// SPDX-License-Identifier: Apache-2.0
// The Driver side, second half: events, streams and captures. The order of the checks decides
// which code a call gives and which captures it loses; tests/conformance/driver holds the table.
#include <utility>

#include "sim/sim_driver.hpp"
#include "sim/sim_state.hpp"

namespace quarry {

using sim::StreamIndex;

DriverResult<EventHandle> SimDriver::create_event(DeviceId device) noexcept {
  MutexLock lock(state_->mutex);
  const DriverEntry entry = DriverEntry::kCreateEvent;
  if (const DriverCode code = state_->enter(entry); code != DriverCode::kSuccess) return code;
  if (!state_->is_device(device)) return DriverCode::kInvalidDevice;
  state_->charge(entry);
  return state_->events.create(device);
}

DriverCode SimDriver::destroy_event(EventHandle handle) noexcept {
  MutexLock lock(state_->mutex);
  const DriverEntry entry = DriverEntry::kDestroyEvent;
  if (const DriverCode code = state_->enter(entry); code != DriverCode::kSuccess) return code;
  if (state_->find_event(handle, entry) == nullptr) return DriverCode::kInvalidHandle;
  state_->events.destroy(handle);
  state_->charge(entry);
  return DriverCode::kSuccess;
}

DriverCode SimDriver::record_event(EventHandle handle, StreamRef ref) noexcept {
  MutexLock lock(state_->mutex);
  const DriverEntry entry = DriverEntry::kRecordEvent;
  if (const DriverCode code = state_->enter(entry); code != DriverCode::kSuccess) return code;
  StreamIndex index{};
  DriverCode code = state_->find_stream(ref, entry, index);
  if (code != DriverCode::kSuccess) return code;
  sim::Event* event = state_->find_event(handle, entry);
  if (event == nullptr || event->device != ref.device) return DriverCode::kInvalidHandle;
  sim::Stream& stream = state_->streams.at(index);
  code = state_->check_capture_of(stream, entry);
  if (code != DriverCode::kSuccess) return code;
  event->capture = stream.capture;
  event->marks.clear();
  event->frontier.clear();
  if (stream.capture != 0) {
    event->frontier = stream.frontier;
    event->marks.push_back({index, state_->timelines.position(stream.capture_timeline), 0});
  } else {
    event->marks.push_back(state_->streams.mark(index));
  }
  state_->charge(entry);
  return code;
}

DriverCode SimDriver::record_context_event(EventHandle handle, DeviceId device) noexcept {
  MutexLock lock(state_->mutex);
  const DriverEntry entry = DriverEntry::kRecordContextEvent;
  if (const DriverCode code = state_->enter(entry); code != DriverCode::kSuccess) return code;
  if (!state_->is_device(device)) return DriverCode::kInvalidDevice;
  if (!state_->options.has_context_events) return DriverCode::kNotSupported;
  sim::Event* event = state_->find_event(handle, entry);
  if (event == nullptr || event->device != device) return DriverCode::kInvalidHandle;
  const DriverCode lost = DriverCode::kCaptureUnsupported;
  if (state_->captures.is_any_active_on(device)) {
    state_->captures.lose_all(device, {entry, lost});
    return lost;
  }
  event->capture = 0;
  event->marks.clear();
  state_->streams.mark_device(device, event->marks);
  state_->charge(entry, {.count = state_->streams.busy_count(device)});
  return DriverCode::kSuccess;
}

DriverCode SimDriver::query_event(EventHandle handle) noexcept {
  MutexLock lock(state_->mutex);
  const DriverEntry entry = DriverEntry::kQueryEvent;
  if (const DriverCode code = state_->enter(entry); code != DriverCode::kSuccess) return code;
  sim::Event* event = state_->find_event(handle, entry);
  if (event == nullptr) return DriverCode::kInvalidHandle;
  DriverCode code = state_->check_event(*event, entry);
  if (code == DriverCode::kSuccess) code = state_->check_unsafe(entry);
  if (code != DriverCode::kSuccess) return code;
  for (const sim::Mark& mark : event->marks) {
    if (state_->streams.has_passed(mark)) continue;
    state_->charge(entry, {.has_failed = true});
    return DriverCode::kNotReady;
  }
  for (const sim::Mark& mark : event->marks)
    state_->timelines.host_sees(mark.position);
  event->marks.clear();  // a passed event stays passed until it is recorded again
  state_->charge(entry);
  return DriverCode::kSuccess;
}

DriverCode SimDriver::synchronize_event(EventHandle handle) noexcept {
  const FiringLock lock(*state_);
  const DriverEntry entry = DriverEntry::kSynchronizeEvent;
  if (const DriverCode code = state_->enter(entry); code != DriverCode::kSuccess) return code;
  sim::Event* event = state_->find_event(handle, entry);
  if (event == nullptr) return DriverCode::kInvalidHandle;
  DriverCode code = state_->check_event(*event, entry);
  if (code == DriverCode::kSuccess) code = state_->check_unsafe(entry);
  if (code != DriverCode::kSuccess) return code;
  if (!state_->wait_on_host(event->marks)) {
    state_->note_misuse(sim::MisuseKind::kDeadlock, entry, "behind endless work");
    return DriverCode::kUnknown;
  }
  event->marks.clear();
  state_->charge(entry);
  return DriverCode::kSuccess;
}

DriverCode SimDriver::wait_event(StreamRef ref, EventHandle handle) noexcept {
  MutexLock lock(state_->mutex);
  const DriverEntry entry = DriverEntry::kWaitEvent;
  if (const DriverCode code = state_->enter(entry); code != DriverCode::kSuccess) return code;
  StreamIndex index{};
  DriverCode code = state_->find_stream(ref, entry, index);
  if (code != DriverCode::kSuccess) return code;
  const sim::Event* event = state_->find_event(handle, entry);
  if (event == nullptr) return DriverCode::kInvalidHandle;
  sim::Stream& stream = state_->streams.at(index);
  code = state_->check_capture_of(stream, entry);
  if (code != DriverCode::kSuccess) return code;
  if (stream.capture != 0 || event->capture != 0) {
    code = state_->wait_in_capture(stream, *event, entry);
  } else {
    state_->streams.wait(index, event->marks);
  }
  if (code == DriverCode::kSuccess) state_->charge(entry);
  return code;
}

DriverResult<CaptureStatus> SimDriver::get_capture_status(StreamRef ref) noexcept {
  MutexLock lock(state_->mutex);
  const auto info = state_->get_capture_info(ref, DriverEntry::kGetCaptureStatus);
  if (!info.is_ok()) return info.code;
  return info.value.status;
}

DriverResult<CaptureInfo> SimDriver::get_capture_info(StreamRef ref) noexcept {
  MutexLock lock(state_->mutex);
  return state_->get_capture_info(ref, DriverEntry::kGetCaptureInfo);
}

DriverCode SimDriver::call_when_graph_is_gone(StreamRef ref, GraphGoneCallback callback,
                                              void* user) noexcept {
  MutexLock lock(state_->mutex);
  sim::Capture* capture = nullptr;
  const DriverCode code =
      state_->find_active_capture(ref, DriverEntry::kCallWhenGraphIsGone, capture);
  if (code == DriverCode::kSuccess) {
    capture->objects.push_back(state_->objects.create(callback, user));
  }
  return code;
}

DriverCode SimDriver::get_capture_frontier(StreamRef ref, std::vector<GraphNode>& nodes) noexcept {
  MutexLock lock(state_->mutex);
  const DriverEntry entry = DriverEntry::kGetCaptureFrontier;
  sim::Capture* capture = nullptr;
  DriverCode code = state_->find_active_capture(ref, entry, capture);
  StreamIndex index{};
  if (code == DriverCode::kSuccess) code = state_->find_stream(ref, entry, index);
  if (code != DriverCode::kSuccess) return code;
  const std::vector<GraphNode>& frontier = state_->streams.at(index).frontier;
  nodes.insert(nodes.end(), frontier.begin(), frontier.end());
  return code;
}

DriverCode SimDriver::get_predecessors(GraphNode node, std::vector<GraphNode>& nodes) noexcept {
  MutexLock lock(state_->mutex);
  const DriverEntry entry = DriverEntry::kGetPredecessors;
  if (const DriverCode code = state_->enter(entry); code != DriverCode::kSuccess) return code;
  const std::vector<GraphNode>* const found = state_->captures.find_predecessors(node);
  if (found == nullptr) {
    state_->note_misuse(sim::MisuseKind::kUnknownNode, entry,
                        "node " + std::to_string(static_cast<std::uint64_t>(node)));
    return DriverCode::kInvalidValue;
  }
  nodes.insert(nodes.end(), found->begin(), found->end());
  state_->charge(entry);
  return DriverCode::kSuccess;
}

DriverResult<StreamId> SimDriver::get_stream_id(StreamRef ref) noexcept {
  MutexLock lock(state_->mutex);
  const DriverEntry entry = DriverEntry::kGetStreamId;
  if (const DriverCode code = state_->enter(entry); code != DriverCode::kSuccess) return code;
  StreamIndex index{};
  const DriverCode code = state_->find_stream(ref, entry, index);
  if (code != DriverCode::kSuccess) return code;
  const sim::Stream& stream = state_->streams.at(index);
  if (stream.capture != 0) {
    const DriverCode lost = DriverCode::kCaptureUnsupported;
    state_->captures.lose(*state_->captures.find(stream.capture), {entry, lost});
    return lost;
  }
  state_->charge(entry);
  return stream.id;
}

DriverResult<CaptureMode> SimDriver::exchange_capture_mode(CaptureMode mode) noexcept {
  MutexLock lock(state_->mutex);
  const DriverEntry entry = DriverEntry::kExchangeCaptureMode;
  if (const DriverCode code = state_->enter(entry); code != DriverCode::kSuccess) return code;
  state_->charge(entry);
  return std::exchange(state_->this_thread().mode, mode);
}

}  // namespace quarry
