// SPDX-License-Identifier: Apache-2.0
#include "sim/sim_capture.hpp"

#include <algorithm>
#include <utility>

namespace quarry::sim {
namespace {

constexpr int kNodeIndexBits = 32;  // of a GraphNode, from 1; the capture's number is above

}  // namespace

bool CaptureTable::is_any_active_on(DeviceId device) const {
  return std::any_of(active_.begin(), active_.end(),
                     [device](const auto& entry) { return entry.second.device == device; });
}

Capture* CaptureTable::find(CaptureNumber number) {
  const auto found = active_.find(number);
  return found == active_.end() ? nullptr : &found->second;
}

bool CaptureTable::has_blocking_capture(DeviceId device) const {
  return std::any_of(active_.begin(), active_.end(), [device](const auto& entry) {
    return entry.second.device == device && entry.second.has_blocking_stream;
  });
}

void CaptureTable::begin(StreamIndex stream, CaptureMode mode, ThreadId thread) {
  const CaptureNumber number = ++last_number_;
  Capture& capture = active_[number];
  capture.number = number;
  capture.mode = mode;
  capture.thread = thread;
  capture.origin = stream;
  capture.device = streams_.at(stream).ref.device;
  add_stream(capture, stream);
}

void CaptureTable::add_stream(Capture& capture, StreamIndex index) {
  Stream& stream = streams_.at(index);
  stream.capture = capture.number;
  stream.capture_timeline = timelines_.add(stream.ref, stream.id, true);
  stream.frontier.clear();
  capture.has_blocking_stream |= stream.kind == StreamKind::kBlocking;
  capture.streams.push_back(index);
}

void CaptureTable::add_node(Capture& capture, Stream& stream) {
  capture.predecessors.push_back(std::move(stream.frontier));
  const std::uint64_t index = capture.predecessors.size();
  stream.frontier = {GraphNode{(std::uint64_t{capture.number} << kNodeIndexBits) | index}};
}

const std::vector<GraphNode>* CaptureTable::find_predecessors(GraphNode node) {
  const auto value = static_cast<std::uint64_t>(node);
  const Capture* const capture = find(static_cast<CaptureNumber>(value >> kNodeIndexBits));
  if (capture == nullptr || capture->is_lost) return nullptr;
  const std::uint64_t index = value & ((std::uint64_t{1} << kNodeIndexBits) - 1);
  if (index == 0 || index > capture->predecessors.size()) return nullptr;
  return &capture->predecessors[index - 1];
}

DriverResult<GraphId> CaptureTable::end(StreamIndex stream) {
  const auto found = active_.find(streams_.at(stream).capture);
  Capture& capture = found->second;
  DriverCode code = DriverCode::kSuccess;
  if (capture.is_lost) {
    code = DriverCode::kCaptureInvalidated;
  } else if (!is_joined(capture)) {
    code = DriverCode::kCaptureUnjoined;
  }
  for (const StreamIndex index : capture.streams) {
    Stream& member = streams_.at(index);
    if (member.capture != capture.number) continue;
    member.capture = 0;
    // What was captured has not run: from here on only launches of the graph count as uses.
    timelines_.host_sees_all(member.capture_timeline);
    timelines_.retire(member.capture_timeline);
  }
  const auto graph = static_cast<GraphId>(capture.number);
  if (code == DriverCode::kSuccess) {
    graphs_[graph] =
        Graph{capture.number, std::move(capture.uses), std::move(capture.objects), {}};
  }
  active_.erase(found);
  if (code != DriverCode::kSuccess) return code;
  return graph;
}

void CaptureTable::forget_device(DeviceId device) {
  std::erase_if(active_, [device](const auto& entry) { return entry.second.device == device; });
}

void CaptureTable::lose(Capture& capture, Culprit culprit) {
  if (capture.is_lost) return;
  capture.is_lost = true;
  lost_.push_back({streams_.at(capture.origin).ref, capture.mode, culprit.code,
                   culprit.entry.value_or(DriverEntry{}), !culprit.entry.has_value()});
}

void CaptureTable::lose_all(DeviceId device, Culprit culprit) {
  for (auto& [number, capture] : active_) {
    if (capture.device == device) lose(capture, culprit);
  }
}

void CaptureTable::lose_blocking(DeviceId device, Culprit culprit) {
  for (auto& [number, capture] : active_) {
    if (capture.device == device && capture.has_blocking_stream) lose(capture, culprit);
  }
}

bool CaptureTable::lose_to_unsafe_call(ThreadId thread, CaptureMode mode, Culprit culprit) {
  if (mode == CaptureMode::kRelaxed) return false;
  bool is_refused = false;
  for (auto& [number, capture] : active_) {
    const bool is_own = capture.thread == thread && capture.mode != CaptureMode::kRelaxed;
    const bool is_global = mode == CaptureMode::kGlobal && capture.mode == CaptureMode::kGlobal;
    if (!is_own && !is_global) continue;
    lose(capture, culprit);
    is_refused = true;
  }
  return is_refused;
}

Graph* CaptureTable::find_graph(GraphId graph) {
  const auto found = graphs_.find(graph);
  return found == graphs_.end() ? nullptr : &found->second;
}

bool CaptureTable::is_joined(const Capture& capture) {
  const TimelineIndex origin = streams_.at(capture.origin).capture_timeline;
  return std::all_of(capture.streams.begin(), capture.streams.end(),
                     [this, origin](StreamIndex index) {
                       const TimelineIndex member = streams_.at(index).capture_timeline;
                       return timelines_.covers(origin, member, timelines_.sequence(member));
                     });
}

}  // namespace quarry::sim
