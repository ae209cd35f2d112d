// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/sim/mutant_driver.hpp"

#include <algorithm>

namespace quarry {

std::string_view get_name(Lie lie) {
  switch (lie) {
    case Lie::kNone:
      return "none";
    case Lie::kQueryAlwaysPassed:
      return "query_always_passed";
    case Lie::kFreshQueryPassed:
      return "fresh_query_passed";
    case Lie::kRecordDropped:
      return "record_dropped";
    case Lie::kRecordOnIdleStream:
      return "record_on_idle_stream";
    case Lie::kWaitDropped:
      return "wait_dropped";
    case Lie::kSynchronizeDropped:
      return "synchronize_dropped";
    case Lie::kGraphGoneAtOnce:
      return "graph_gone_at_once";
    case Lie::kMoveUnmapsOld:
      return "move_unmaps_old";
    case Lie::kNeverCapturing:
      return "never_capturing";
    case Lie::kSameCapture:
      return "same_capture";
  }
  return "unknown";
}

bool MutantDriver::lies(Lie lie) noexcept {
  if (lie != lie_ || !is_lying_.load()) return false;
  lie_count_.fetch_add(1);
  return true;
}

DriverCode MutantDriver::record_event(EventHandle event, StreamRef stream) noexcept {
  recorded_last_.store(event);
  if (lies(Lie::kRecordDropped)) return DriverCode::kSuccess;
  if (lies(Lie::kRecordOnIdleStream)) return next().record_event(event, idle_stream_);
  return next().record_event(event, stream);
}

DriverCode MutantDriver::record_context_event(EventHandle event, DeviceId device) noexcept {
  if (lies(Lie::kRecordDropped)) return DriverCode::kSuccess;
  return next().record_context_event(event, device);
}

DriverCode MutantDriver::query_event(EventHandle event) noexcept {
  if (lies(Lie::kQueryAlwaysPassed)) return DriverCode::kSuccess;
  const bool is_fresh = event == recorded_last_.load();
  if (is_fresh && lies(Lie::kFreshQueryPassed)) return DriverCode::kSuccess;
  return next().query_event(event);
}

DriverCode MutantDriver::synchronize_event(EventHandle event) noexcept {
  if (lies(Lie::kSynchronizeDropped)) return DriverCode::kSuccess;
  return next().synchronize_event(event);
}

DriverCode MutantDriver::map(Address address, Bytes bytes, ExtentHandle extent) noexcept {
  if (lie_ != Lie::kMoveUnmapsOld) return next().map(address, bytes, extent);
  const std::lock_guard lock(mappings_mutex_);
  const auto old = std::find_if(mappings_.begin(), mappings_.end(),
                                [extent](const auto& entry) { return entry.second == extent; });
  if (old != mappings_.end() && lies(Lie::kMoveUnmapsOld)) {
    static_cast<void>(next().unmap(old->first, bytes));
    gone_[old->first] = bytes;
    mappings_.erase(old);
  }
  const DriverCode code = next().map(address, bytes, extent);
  if (code == DriverCode::kSuccess) mappings_[address] = extent;
  return code;
}

DriverCode MutantDriver::unmap(Address address, Bytes bytes) noexcept {
  const std::lock_guard lock(mappings_mutex_);
  if (gone_.erase(address) > 0) return DriverCode::kSuccess;
  mappings_.erase(address);
  return next().unmap(address, bytes);
}

DriverCode MutantDriver::wait_event(StreamRef stream, EventHandle event) noexcept {
  if (lies(Lie::kWaitDropped)) return DriverCode::kSuccess;
  return next().wait_event(stream, event);
}

DriverCode MutantDriver::call_when_graph_is_gone(StreamRef stream, GraphGoneCallback callback,
                                                 void* user) noexcept {
  if (!lies(Lie::kGraphGoneAtOnce)) return next().call_when_graph_is_gone(stream, callback, user);
  callback(user);
  return DriverCode::kSuccess;
}

DriverResult<CaptureInfo> MutantDriver::get_capture_info(StreamRef stream) noexcept {
  if (lies(Lie::kNeverCapturing)) return CaptureInfo{};
  const auto info = next().get_capture_info(stream);
  const bool is_active = info.is_ok() && info.value.status == CaptureStatus::kActive;
  if (!is_active || !lies(Lie::kSameCapture)) return info;
  return CaptureInfo{CaptureStatus::kActive, static_cast<CaptureId>(1)};
}

}  // namespace quarry
