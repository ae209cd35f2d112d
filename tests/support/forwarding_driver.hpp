// SPDX-License-Identifier: Apache-2.0
// A Driver that passes every call on to another one: the base of the test drivers that watch, hold
// up, falsify or fail calls. It changes nothing by itself. Borrows the driver it passes calls to;
// as thread-safe as that one and the two hooks.
#pragma once

#include "driver/driver.hpp"

namespace quarry::test {

class ForwardingDriver : public Driver {
 public:
  explicit ForwardingDriver(Driver& next) : next_(next) {}

  DriverResult<int> get_device_count() noexcept override {
    return pass(DriverEntry::kGetDeviceCount, [&] { return next_.get_device_count(); });
  }
  DriverResult<DeviceProperties> get_device_properties(DeviceId device) noexcept override {
    return pass(DriverEntry::kGetDeviceProperties,
                [&] { return next_.get_device_properties(device); });
  }
  DriverResult<MemoryInfo> get_memory_info(DeviceId device) noexcept override {
    return pass(DriverEntry::kGetMemoryInfo, [&] { return next_.get_memory_info(device); });
  }
  DriverCode enable_peer_access(DeviceId device, DeviceId peer) noexcept override {
    return pass(DriverEntry::kEnablePeerAccess,
                [&] { return next_.enable_peer_access(device, peer); });
  }
  DriverResult<Address> allocate(DeviceId device, Bytes bytes) noexcept override {
    return pass(DriverEntry::kAllocate, [&] { return next_.allocate(device, bytes); });
  }
  DriverCode free(DeviceId device, Address address) noexcept override {
    return pass(DriverEntry::kFree, [&] { return next_.free(device, address); });
  }
  DriverResult<Address> reserve_addresses(Bytes bytes, Bytes alignment) noexcept override {
    return pass(DriverEntry::kReserveAddresses,
                [&] { return next_.reserve_addresses(bytes, alignment); });
  }
  DriverCode free_addresses(Address address, Bytes bytes) noexcept override {
    return pass(DriverEntry::kFreeAddresses, [&] { return next_.free_addresses(address, bytes); });
  }
  DriverResult<ExtentHandle> create_extent(DeviceId device, Bytes bytes,
                                           ExtentKind kind) noexcept override {
    return pass(DriverEntry::kCreateExtent,
                [&] { return next_.create_extent(device, bytes, kind); });
  }
  DriverCode release_extent(ExtentHandle extent) noexcept override {
    return pass(DriverEntry::kReleaseExtent, [&] { return next_.release_extent(extent); });
  }
  DriverCode map(Address address, Bytes bytes, ExtentHandle extent) noexcept override {
    return pass(DriverEntry::kMap, [&] { return next_.map(address, bytes, extent); });
  }
  DriverCode unmap(Address address, Bytes bytes) noexcept override {
    return pass(DriverEntry::kUnmap, [&] { return next_.unmap(address, bytes); });
  }
  DriverCode set_access(Address address, Bytes bytes,
                        std::span<const DeviceId> devices) noexcept override {
    return pass(DriverEntry::kSetAccess,
                [&] { return next_.set_access(address, bytes, devices); });
  }
  DriverCode revoke_access(Address address, Bytes bytes, DeviceId device) noexcept override {
    return pass(DriverEntry::kRevokeAccess,
                [&] { return next_.revoke_access(address, bytes, device); });
  }
  DriverResult<EventHandle> create_event(DeviceId device) noexcept override {
    return pass(DriverEntry::kCreateEvent, [&] { return next_.create_event(device); });
  }
  DriverCode destroy_event(EventHandle event) noexcept override {
    return pass(DriverEntry::kDestroyEvent, [&] { return next_.destroy_event(event); });
  }
  DriverCode record_event(EventHandle event, StreamRef stream) noexcept override {
    return pass(DriverEntry::kRecordEvent, [&] { return next_.record_event(event, stream); });
  }
  DriverCode record_context_event(EventHandle event, DeviceId device) noexcept override {
    return pass(DriverEntry::kRecordContextEvent,
                [&] { return next_.record_context_event(event, device); });
  }
  DriverCode query_event(EventHandle event) noexcept override {
    return pass(DriverEntry::kQueryEvent, [&] { return next_.query_event(event); });
  }
  DriverCode synchronize_event(EventHandle event) noexcept override {
    return pass(DriverEntry::kSynchronizeEvent, [&] { return next_.synchronize_event(event); });
  }
  DriverCode wait_event(StreamRef stream, EventHandle event) noexcept override {
    return pass(DriverEntry::kWaitEvent, [&] { return next_.wait_event(stream, event); });
  }
  DriverResult<CaptureStatus> get_capture_status(StreamRef stream) noexcept override {
    return pass(DriverEntry::kGetCaptureStatus, [&] { return next_.get_capture_status(stream); });
  }
  DriverResult<CaptureInfo> get_capture_info(StreamRef stream) noexcept override {
    return pass(DriverEntry::kGetCaptureInfo, [&] { return next_.get_capture_info(stream); });
  }
  DriverCode call_when_graph_is_gone(StreamRef stream, GraphGoneCallback callback,
                                     void* user) noexcept override {
    return pass(DriverEntry::kCallWhenGraphIsGone,
                [&] { return next_.call_when_graph_is_gone(stream, callback, user); });
  }
  DriverCode get_capture_frontier(StreamRef stream,
                                  std::vector<GraphNode>& nodes) noexcept override {
    return pass(DriverEntry::kGetCaptureFrontier,
                [&] { return next_.get_capture_frontier(stream, nodes); });
  }
  DriverCode get_predecessors(GraphNode node, std::vector<GraphNode>& nodes) noexcept override {
    return pass(DriverEntry::kGetPredecessors,
                [&] { return next_.get_predecessors(node, nodes); });
  }
  DriverResult<StreamId> get_stream_id(StreamRef stream) noexcept override {
    return pass(DriverEntry::kGetStreamId, [&] { return next_.get_stream_id(stream); });
  }
  DriverResult<CaptureMode> exchange_capture_mode(CaptureMode mode) noexcept override {
    return pass(DriverEntry::kExchangeCaptureMode,
                [&] { return next_.exchange_capture_mode(mode); });
  }
  std::uint64_t read_clock_ns() noexcept override { return next_.read_clock_ns(); }

 protected:
  // Before each call. Anything but kSuccess is the answer, and the call is not passed on.
  virtual DriverCode before(DriverEntry) noexcept { return DriverCode::kSuccess; }
  // After each call that was passed on.
  virtual void after(DriverEntry) noexcept {}

  Driver& next() noexcept { return next_; }

 private:
  template <class Call>
  auto pass(DriverEntry entry, Call call) noexcept -> decltype(call()) {
    if (const DriverCode answer = before(entry); answer != DriverCode::kSuccess) return answer;
    const auto result = call();
    after(entry);
    return result;
  }

  Driver& next_;
};

}  // namespace quarry::test
