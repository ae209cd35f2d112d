// SPDX-License-Identifier: Apache-2.0
#include "sim/sim_state.hpp"

#include <algorithm>
#include <atomic>
#include <utility>

namespace quarry {

namespace sim {

ThreadId get_this_thread() noexcept {
  static std::atomic<std::uint64_t> count{0};
  thread_local const auto id = static_cast<ThreadId>(count.fetch_add(1));
  return id;
}

}  // namespace sim

using sim::MisuseKind;
using sim::StreamTable;

SimState::Thread& SimState::this_thread() {
  const auto index = static_cast<std::size_t>(sim::get_this_thread());
  if (index >= threads.size()) threads.resize(index + 1);
  return threads[index];
}

DriverCode SimState::enter(DriverEntry entry, Bytes size) {
  ledger.count(entry);
  if (this_thread().is_callback) {
    note_misuse(MisuseKind::kCallbackThread, entry, "");
    return DriverCode::kNotPermitted;
  }
  return faults.is_empty() ? DriverCode::kSuccess : faults.decide(entry, size);
}

void SimState::charge(DriverEntry entry, const sim::CallSize& size) {
  const std::uint64_t ns = sim::calculate_cost_ns(entry, size);
  ledger.charge(entry, ns);
  if (options.calls_take_time) clock.advance_by(ns);
}

void SimState::note_misuse(MisuseKind kind, std::optional<DriverEntry> entry, std::string what) {
  std::string text = entry ? std::string(get_name(*entry)) : std::string("the user");
  text.append(": ").append(sim::get_name(kind));
  if (!what.empty()) text.append(", ").append(what);
  misuses.push_back({kind, entry.value_or(DriverEntry{}), std::move(text)});
}

DriverCode SimState::find_stream(StreamRef ref, std::optional<DriverEntry> entry,
                                 sim::StreamIndex& stream) {
  if (!is_device(ref.device)) return DriverCode::kInvalidDevice;
  switch (streams.find(ref, sim::get_this_thread(), stream)) {
    case StreamTable::Found::kOk:
      return DriverCode::kSuccess;
    case StreamTable::Found::kUnknown:
      return DriverCode::kInvalidHandle;
    case StreamTable::Found::kDestroyed:
      break;
  }
  note_misuse(MisuseKind::kDestroyedStream, entry,
              "handle " + std::to_string(static_cast<std::uint64_t>(ref.handle)));
  return DriverCode::kInvalidHandle;
}

sim::Event* SimState::find_event(EventHandle handle, DriverEntry entry) {
  sim::Event* event = events.find(handle);
  if (event == nullptr) {
    note_misuse(MisuseKind::kDestroyedEvent, entry,
                "handle " + std::to_string(static_cast<std::uint64_t>(handle)));
  }
  return event;
}

DriverCode SimState::check_unsafe(DriverEntry entry) {
  if (!captures.is_any_active()) return DriverCode::kSuccess;
  const DriverCode code = DriverCode::kCaptureUnsupported;
  const bool is_refused =
      captures.lose_to_unsafe_call(sim::get_this_thread(), this_thread().mode, {entry, code});
  return is_refused ? code : DriverCode::kSuccess;
}

DriverResult<CaptureInfo> SimState::get_capture_info(StreamRef ref, DriverEntry entry) {
  DriverCode code = enter(entry);
  if (code != DriverCode::kSuccess) return code;
  sim::StreamIndex index{};
  code = find_stream(ref, entry, index);
  if (code != DriverCode::kSuccess) return code;
  charge(entry);
  if (!captures.is_any_active()) return CaptureInfo{};
  const sim::Stream& stream = streams.at(index);
  if (stream.is_legacy && captures.has_blocking_capture(ref.device)) {
    return DriverCode::kCaptureImplicit;
  }
  if (stream.capture == 0) return CaptureInfo{};
  if (captures.find(stream.capture)->is_lost) return CaptureInfo{CaptureStatus::kInvalidated, {}};
  return CaptureInfo{CaptureStatus::kActive, static_cast<CaptureId>(stream.capture)};
}

DriverCode SimState::find_active_capture(StreamRef ref, DriverEntry entry,
                                         sim::Capture*& capture) {
  const auto info = get_capture_info(ref, entry);
  if (!info.is_ok()) return info.code;
  if (info.value.status == CaptureStatus::kNone) return DriverCode::kInvalidValue;
  if (info.value.status == CaptureStatus::kInvalidated) return DriverCode::kCaptureInvalidated;
  capture = captures.find(static_cast<sim::CaptureNumber>(info.value.id));
  return DriverCode::kSuccess;
}

DriverCode SimState::check_capture_of(sim::Stream& stream, std::optional<DriverEntry> entry) {
  if (!captures.is_any_active()) return DriverCode::kSuccess;
  if (stream.capture != 0) {
    return captures.find(stream.capture)->is_lost ? DriverCode::kCaptureInvalidated
                                                  : DriverCode::kSuccess;
  }
  if (!stream.is_legacy || !captures.has_blocking_capture(stream.ref.device)) {
    return DriverCode::kSuccess;
  }
  captures.lose_blocking(stream.ref.device, {entry, DriverCode::kCaptureImplicit});
  return DriverCode::kCaptureImplicit;
}

DriverCode SimState::check_event(const sim::Event& event, DriverEntry entry) {
  if (event.capture == 0) return DriverCode::kSuccess;
  if (sim::Capture* capture = captures.find(event.capture)) {
    captures.lose(*capture, {entry, DriverCode::kCapturedEvent});
  }
  return DriverCode::kCapturedEvent;
}

DriverCode SimState::wait_in_capture(sim::Stream& stream, const sim::Event& event,
                                     DriverEntry entry) {
  sim::Capture* of_event = captures.find(event.capture);
  if (stream.capture == 0) {
    if (of_event == nullptr) return DriverCode::kCapturedEvent;
    if (of_event->is_lost) return DriverCode::kCaptureInvalidated;
    if (stream.is_legacy) {
      captures.lose(*of_event, {entry, DriverCode::kCaptureImplicit});
      return DriverCode::kCaptureImplicit;
    }
    captures.add_stream(*of_event, stream.index);
  } else if (stream.capture != event.capture) {
    if (event.capture == 0 && event.marks.empty()) return DriverCode::kSuccess;
    const DriverCode code =
        of_event != nullptr ? DriverCode::kCaptureMerge : DriverCode::kCaptureIsolation;
    captures.lose(*captures.find(stream.capture), {entry, code});
    if (of_event != nullptr) captures.lose(*of_event, {entry, code});
    return code;
  }
  for (const sim::Mark& mark : event.marks)
    timelines.join(stream.capture_timeline, mark.position);
  for (const GraphNode node : event.frontier) {
    const bool is_known =
        std::find(stream.frontier.begin(), stream.frontier.end(), node) != stream.frontier.end();
    if (!is_known) stream.frontier.push_back(node);
  }
  return DriverCode::kSuccess;
}

void SimState::drop_freed() {
  if (!options.oracle) return;
  for (const sim::PhysicalId physical : freed)
    oracle.note_physical_free(physical);
}

sim::Actor SimState::actor_of(const sim::Stream& stream) const {
  if (stream.capture != 0) return {stream.capture_timeline, stream.capture};
  return {stream.timeline, 0};
}

DriverCode SimState::submit(StreamRef ref, sim::WorkTime time, sim::StreamIndex& index) {
  DriverCode code = find_stream(ref, std::nullopt, index);
  if (code != DriverCode::kSuccess) return code;
  sim::Stream& stream = streams.at(index);
  code = check_capture_of(stream, std::nullopt);
  if (code != DriverCode::kSuccess) return code;
  if (stream.capture != 0) {
    timelines.act(stream.capture_timeline);
    captures.add_node(*captures.find(stream.capture), stream);
  } else {
    streams.submit(index, time);
  }
  return code;
}

DriverCode SimState::launch(sim::Graph& graph, StreamRef ref, sim::WorkTime time) {
  sim::StreamIndex index{};
  DriverCode code = find_stream(ref, std::nullopt, index);
  if (code != DriverCode::kSuccess) return code;
  sim::Stream& stream = streams.at(index);
  code = check_capture_of(stream, std::nullopt);
  if (code != DriverCode::kSuccess) return code;
  // An executable's launches run one after the other, whatever their streams.
  if (stream.capture == 0 && graph.last_launch) streams.wait(index, {&*graph.last_launch, 1});
  code = submit(ref, time, index);
  if (code != DriverCode::kSuccess) return code;
  sim::Capture* const outer = captures.find(stream.capture);
  if (outer != nullptr) {
    outer->uses.insert(outer->uses.end(), graph.uses.begin(), graph.uses.end());
    outer->objects.insert(outer->objects.end(), graph.objects.begin(), graph.objects.end());
  } else {
    graph.last_launch = streams.mark(index);
    objects.add_launch(graph.objects, *graph.last_launch);
  }
  if (!options.oracle) return code;
  for (const sim::GraphUse& use : graph.uses)
    oracle.use_captured(use, graph.capture, actor_of(stream));
  return code;
}

void SimState::note_use(sim::Stream& stream, const sim::GraphUse& use) {
  if (!options.oracle) return;
  if (stream.capture != 0) captures.find(stream.capture)->uses.push_back(use);
  if (use.lifetime != sim::LifetimeId::kNone) {
    oracle.use(use.lifetime, actor_of(stream));
  } else {
    oracle.use(use.range, actor_of(stream));
  }
}

void SimState::run_callback(const sim::DueCallback& due) {
  bool was_callback = false;
  {
    MutexLock lock(mutex);
    was_callback = std::exchange(this_thread().is_callback, true);
  }
  due.callback(due.user);
  MutexLock lock(mutex);
  this_thread().is_callback = was_callback;
}

bool SimState::wait_on_host(const std::vector<sim::Mark>& marks) {
  for (const sim::Mark& mark : marks) {
    if (!streams.wait_for(mark)) return false;
  }
  for (const sim::Mark& mark : marks)
    timelines.host_sees(mark.position);
  return true;
}

}  // namespace quarry
