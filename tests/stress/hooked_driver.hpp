// SPDX-License-Identifier: Apache-2.0
// A Driver that passes every call on and then, after those that may be slow, lets a test act: in
// the moment when the allocator has let go of its lock. Set the hook before other threads call.
#pragma once

#include <functional>
#include <utility>

#include "driver/driver.hpp"

namespace quarry::stress {

class HookedDriver final : public Driver {
 public:
  using Hook = std::function<void(DriverEntry)>;

  explicit HookedDriver(Driver& driver) : driver_(driver) {}
  // Called after allocate, free and synchronize_event, on the calling thread.
  void set_hook(Hook hook) { hook_ = std::move(hook); }

  enum class RecordMoment { kBefore, kAfter };
  // Called around each record_event.
  void set_record_hook(std::function<void(RecordMoment, StreamRef)> hook) {
    record_hook_ = std::move(hook);
  }

  DriverResult<int> get_device_count() noexcept override { return driver_.get_device_count(); }
  DriverResult<DeviceProperties> get_device_properties(DeviceId device) noexcept override {
    return driver_.get_device_properties(device);
  }
  DriverResult<MemoryInfo> get_memory_info(DeviceId device) noexcept override {
    return driver_.get_memory_info(device);
  }
  DriverCode enable_peer_access(DeviceId device, DeviceId peer) noexcept override {
    return driver_.enable_peer_access(device, peer);
  }
  DriverResult<Address> allocate(DeviceId device, Bytes bytes) noexcept override {
    return after(DriverEntry::kAllocate, driver_.allocate(device, bytes));
  }
  DriverCode free(DeviceId device, Address address) noexcept override {
    return after(DriverEntry::kFree, driver_.free(device, address));
  }
  DriverResult<Address> reserve_addresses(Bytes bytes, Bytes alignment) noexcept override {
    return driver_.reserve_addresses(bytes, alignment);
  }
  DriverCode free_addresses(Address address, Bytes bytes) noexcept override {
    return driver_.free_addresses(address, bytes);
  }
  DriverResult<ExtentHandle> create_extent(DeviceId device, Bytes bytes,
                                           ExtentKind kind) noexcept override {
    return driver_.create_extent(device, bytes, kind);
  }
  DriverCode release_extent(ExtentHandle extent) noexcept override {
    return driver_.release_extent(extent);
  }
  DriverCode map(Address address, Bytes bytes, ExtentHandle extent) noexcept override {
    return driver_.map(address, bytes, extent);
  }
  DriverCode unmap(Address address, Bytes bytes) noexcept override {
    return driver_.unmap(address, bytes);
  }
  DriverCode set_access(Address address, Bytes bytes,
                        std::span<const DeviceId> devices) noexcept override {
    return driver_.set_access(address, bytes, devices);
  }
  DriverResult<EventHandle> create_event(DeviceId device) noexcept override {
    return driver_.create_event(device);
  }
  DriverCode destroy_event(EventHandle event) noexcept override {
    return driver_.destroy_event(event);
  }
  DriverCode record_event(EventHandle event, StreamRef stream) noexcept override {
    if (record_hook_) record_hook_(RecordMoment::kBefore, stream);
    const DriverCode code = driver_.record_event(event, stream);
    if (record_hook_) record_hook_(RecordMoment::kAfter, stream);
    return code;
  }
  DriverCode record_context_event(EventHandle event, DeviceId device) noexcept override {
    return driver_.record_context_event(event, device);
  }
  DriverCode query_event(EventHandle event) noexcept override {
    return driver_.query_event(event);
  }
  DriverCode synchronize_event(EventHandle event) noexcept override {
    return after(DriverEntry::kSynchronizeEvent, driver_.synchronize_event(event));
  }
  DriverCode wait_event(StreamRef stream, EventHandle event) noexcept override {
    return driver_.wait_event(stream, event);
  }
  DriverResult<CaptureStatus> get_capture_status(StreamRef stream) noexcept override {
    return driver_.get_capture_status(stream);
  }
  DriverResult<StreamId> get_stream_id(StreamRef stream) noexcept override {
    return driver_.get_stream_id(stream);
  }
  DriverResult<CaptureMode> exchange_capture_mode(CaptureMode mode) noexcept override {
    return driver_.exchange_capture_mode(mode);
  }

 private:
  template <class Result>
  Result after(DriverEntry entry, Result result) {
    const Hook hook = hook_;  // it may set another one
    if (hook) hook(entry);
    return result;
  }

  Driver& driver_;
  Hook hook_;
  std::function<void(RecordMoment, StreamRef)> record_hook_;
};

}  // namespace quarry::stress
