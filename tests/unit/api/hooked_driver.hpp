// SPDX-License-Identifier: Apache-2.0
// A Driver that calls a hook before it passes each call on: to hold a thread inside the driver at
// a chosen moment, or to forbid calls. Owns the driver that it passes calls to.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "driver/driver.hpp"

namespace quarry::testing_support {

class HookedDriver final : public Driver {
 public:
  using Hook = std::function<void(DriverEntry)>;
  HookedDriver(std::unique_ptr<Driver> next, Hook hook)
      : next_(std::move(next)), hook_(std::move(hook)) {}

  DriverResult<int> get_device_count() noexcept override {
    return after(DriverEntry::kGetDeviceCount).get_device_count();
  }
  DriverResult<DeviceProperties> get_device_properties(DeviceId device) noexcept override {
    return after(DriverEntry::kGetDeviceProperties).get_device_properties(device);
  }
  DriverResult<MemoryInfo> get_memory_info(DeviceId device) noexcept override {
    return after(DriverEntry::kGetMemoryInfo).get_memory_info(device);
  }
  DriverCode enable_peer_access(DeviceId device, DeviceId peer) noexcept override {
    return after(DriverEntry::kEnablePeerAccess).enable_peer_access(device, peer);
  }
  DriverResult<Address> allocate(DeviceId device, Bytes bytes) noexcept override {
    return after(DriverEntry::kAllocate).allocate(device, bytes);
  }
  DriverCode free(DeviceId device, Address address) noexcept override {
    return after(DriverEntry::kFree).free(device, address);
  }
  DriverResult<Address> reserve_addresses(Bytes bytes, Bytes alignment) noexcept override {
    return after(DriverEntry::kReserveAddresses).reserve_addresses(bytes, alignment);
  }
  DriverCode free_addresses(Address address, Bytes bytes) noexcept override {
    return after(DriverEntry::kFreeAddresses).free_addresses(address, bytes);
  }
  DriverResult<ExtentHandle> create_extent(DeviceId device, Bytes bytes,
                                           ExtentKind kind) noexcept override {
    return after(DriverEntry::kCreateExtent).create_extent(device, bytes, kind);
  }
  DriverCode release_extent(ExtentHandle extent) noexcept override {
    return after(DriverEntry::kReleaseExtent).release_extent(extent);
  }
  DriverCode map(Address address, Bytes bytes, ExtentHandle extent) noexcept override {
    return after(DriverEntry::kMap).map(address, bytes, extent);
  }
  DriverCode unmap(Address address, Bytes bytes) noexcept override {
    return after(DriverEntry::kUnmap).unmap(address, bytes);
  }
  DriverCode set_access(Address address, Bytes bytes,
                        std::span<const DeviceId> devices) noexcept override {
    return after(DriverEntry::kSetAccess).set_access(address, bytes, devices);
  }
  DriverResult<EventHandle> create_event(DeviceId device) noexcept override {
    return after(DriverEntry::kCreateEvent).create_event(device);
  }
  DriverCode destroy_event(EventHandle event) noexcept override {
    return after(DriverEntry::kDestroyEvent).destroy_event(event);
  }
  DriverCode record_event(EventHandle event, StreamRef stream) noexcept override {
    return after(DriverEntry::kRecordEvent).record_event(event, stream);
  }
  DriverCode record_context_event(EventHandle event, DeviceId device) noexcept override {
    return after(DriverEntry::kRecordContextEvent).record_context_event(event, device);
  }
  DriverCode query_event(EventHandle event) noexcept override {
    return after(DriverEntry::kQueryEvent).query_event(event);
  }
  DriverCode synchronize_event(EventHandle event) noexcept override {
    return after(DriverEntry::kSynchronizeEvent).synchronize_event(event);
  }
  DriverCode wait_event(StreamRef stream, EventHandle event) noexcept override {
    return after(DriverEntry::kWaitEvent).wait_event(stream, event);
  }
  DriverResult<CaptureStatus> get_capture_status(StreamRef stream) noexcept override {
    return after(DriverEntry::kGetCaptureStatus).get_capture_status(stream);
  }
  DriverResult<StreamId> get_stream_id(StreamRef stream) noexcept override {
    return after(DriverEntry::kGetStreamId).get_stream_id(stream);
  }
  DriverResult<CaptureMode> exchange_capture_mode(CaptureMode mode) noexcept override {
    return after(DriverEntry::kExchangeCaptureMode).exchange_capture_mode(mode);
  }

 private:
  Driver& after(DriverEntry entry) {
    hook_(entry);
    return *next_;
  }

  std::unique_ptr<Driver> next_;
  Hook hook_;
};

}  // namespace quarry::testing_support
