// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/sim/mutant_driver.hpp"

namespace quarry {

std::string_view get_name(Lie lie) {
  switch (lie) {
    case Lie::kNone:
      return "none";
    case Lie::kQueryAlwaysPassed:
      return "query_always_passed";
    case Lie::kRecordDropped:
      return "record_dropped";
    case Lie::kRecordOnIdleStream:
      return "record_on_idle_stream";
    case Lie::kWaitDropped:
      return "wait_dropped";
    case Lie::kSynchronizeDropped:
      return "synchronize_dropped";
  }
  return "unknown";
}

bool MutantDriver::lies(Lie lie) noexcept {
  if (lie != lie_) return false;
  lie_count_.fetch_add(1);
  return true;
}

DriverCode MutantDriver::record_event(EventHandle event, StreamRef stream) noexcept {
  if (lies(Lie::kRecordDropped)) return DriverCode::kSuccess;
  if (lies(Lie::kRecordOnIdleStream)) return truth_.record_event(event, idle_stream_);
  return truth_.record_event(event, stream);
}

DriverCode MutantDriver::record_context_event(EventHandle event, DeviceId device) noexcept {
  if (lies(Lie::kRecordDropped)) return DriverCode::kSuccess;
  return truth_.record_context_event(event, device);
}

DriverCode MutantDriver::query_event(EventHandle event) noexcept {
  if (lies(Lie::kQueryAlwaysPassed)) return DriverCode::kSuccess;
  return truth_.query_event(event);
}

DriverCode MutantDriver::synchronize_event(EventHandle event) noexcept {
  if (lies(Lie::kSynchronizeDropped)) return DriverCode::kSuccess;
  return truth_.synchronize_event(event);
}

DriverCode MutantDriver::wait_event(StreamRef stream, EventHandle event) noexcept {
  if (lies(Lie::kWaitDropped)) return DriverCode::kSuccess;
  return truth_.wait_event(stream, event);
}

// --- Passed on as they are ---

DriverResult<int> MutantDriver::get_device_count() noexcept {
  return truth_.get_device_count();
}

DriverResult<DeviceProperties> MutantDriver::get_device_properties(DeviceId device) noexcept {
  return truth_.get_device_properties(device);
}

DriverResult<MemoryInfo> MutantDriver::get_memory_info(DeviceId device) noexcept {
  return truth_.get_memory_info(device);
}

DriverCode MutantDriver::enable_peer_access(DeviceId device, DeviceId peer) noexcept {
  return truth_.enable_peer_access(device, peer);
}

DriverResult<Address> MutantDriver::allocate(DeviceId device, Bytes bytes) noexcept {
  return truth_.allocate(device, bytes);
}

DriverCode MutantDriver::free(DeviceId device, Address address) noexcept {
  return truth_.free(device, address);
}

DriverResult<Address> MutantDriver::reserve_addresses(Bytes bytes, Bytes alignment) noexcept {
  return truth_.reserve_addresses(bytes, alignment);
}

DriverCode MutantDriver::free_addresses(Address address, Bytes bytes) noexcept {
  return truth_.free_addresses(address, bytes);
}

DriverResult<ExtentHandle> MutantDriver::create_extent(DeviceId device, Bytes bytes,
                                                       ExtentKind kind) noexcept {
  return truth_.create_extent(device, bytes, kind);
}

DriverCode MutantDriver::release_extent(ExtentHandle extent) noexcept {
  return truth_.release_extent(extent);
}

DriverCode MutantDriver::map(Address address, Bytes bytes, ExtentHandle extent) noexcept {
  return truth_.map(address, bytes, extent);
}

DriverCode MutantDriver::unmap(Address address, Bytes bytes) noexcept {
  return truth_.unmap(address, bytes);
}

DriverCode MutantDriver::set_access(Address address, Bytes bytes,
                                    std::span<const DeviceId> devices) noexcept {
  return truth_.set_access(address, bytes, devices);
}

DriverResult<EventHandle> MutantDriver::create_event(DeviceId device) noexcept {
  return truth_.create_event(device);
}

DriverCode MutantDriver::destroy_event(EventHandle event) noexcept {
  return truth_.destroy_event(event);
}

DriverResult<CaptureStatus> MutantDriver::get_capture_status(StreamRef stream) noexcept {
  return truth_.get_capture_status(stream);
}

DriverResult<StreamId> MutantDriver::get_stream_id(StreamRef stream) noexcept {
  return truth_.get_stream_id(stream);
}

DriverResult<CaptureMode> MutantDriver::exchange_capture_mode(CaptureMode mode) noexcept {
  return truth_.exchange_capture_mode(mode);
}

}  // namespace quarry
