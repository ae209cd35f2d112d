// SPDX-License-Identifier: Apache-2.0
#include "tools/counting_driver.hpp"

#include <chrono>

namespace quarry::tools {

template <class Call>
auto CountingDriver::count(Call call) noexcept {
  const auto start = std::chrono::steady_clock::now();
  const auto result = call();
  const std::chrono::nanoseconds spent = std::chrono::steady_clock::now() - start;
  ++calls_;
  ns_ += static_cast<std::uint64_t>(spent.count());
  return result;
}

DriverResult<Address> CountingDriver::allocate(DeviceId device, Bytes bytes) noexcept {
  if (observer_) observer_(bytes);
  const auto address = count([&] { return driver_->allocate(device, bytes); });
  if (!address.is_ok()) return address;
  plain_.emplace(address.value, bytes);
  held_bytes_ += bytes;
  return address;
}

DriverCode CountingDriver::free(DeviceId device, Address address) noexcept {
  const DriverCode code = count([&] { return driver_->free(device, address); });
  const auto place = plain_.find(address);
  if (code != DriverCode::kSuccess || place == plain_.end()) return code;
  held_bytes_ -= place->second;
  plain_.erase(place);
  return code;
}

DriverResult<EventHandle> CountingDriver::create_event(DeviceId device) noexcept {
  const auto event = count([&] { return driver_->create_event(device); });
  held_events_ += event.is_ok() ? 1 : 0;
  return event;
}

DriverCode CountingDriver::destroy_event(EventHandle event) noexcept {
  const DriverCode code = count([&] { return driver_->destroy_event(event); });
  held_events_ -= code == DriverCode::kSuccess ? 1 : 0;
  return code;
}

// What only passes through.

DriverResult<int> CountingDriver::get_device_count() noexcept {
  return count([&] { return driver_->get_device_count(); });
}
DriverResult<DeviceProperties> CountingDriver::get_device_properties(DeviceId device) noexcept {
  return count([&] { return driver_->get_device_properties(device); });
}
DriverResult<MemoryInfo> CountingDriver::get_memory_info(DeviceId device) noexcept {
  return count([&] { return driver_->get_memory_info(device); });
}
DriverCode CountingDriver::enable_peer_access(DeviceId device, DeviceId peer) noexcept {
  return count([&] { return driver_->enable_peer_access(device, peer); });
}
DriverResult<Address> CountingDriver::reserve_addresses(Bytes bytes, Bytes alignment) noexcept {
  return count([&] { return driver_->reserve_addresses(bytes, alignment); });
}
DriverCode CountingDriver::free_addresses(Address address, Bytes bytes) noexcept {
  return count([&] { return driver_->free_addresses(address, bytes); });
}
DriverResult<ExtentHandle> CountingDriver::create_extent(DeviceId device, Bytes bytes,
                                                         ExtentKind kind) noexcept {
  return count([&] { return driver_->create_extent(device, bytes, kind); });
}
DriverCode CountingDriver::release_extent(ExtentHandle extent) noexcept {
  return count([&] { return driver_->release_extent(extent); });
}
DriverCode CountingDriver::map(Address address, Bytes bytes, ExtentHandle extent) noexcept {
  return count([&] { return driver_->map(address, bytes, extent); });
}
DriverCode CountingDriver::unmap(Address address, Bytes bytes) noexcept {
  return count([&] { return driver_->unmap(address, bytes); });
}
DriverCode CountingDriver::set_access(Address address, Bytes bytes,
                                      std::span<const DeviceId> devices) noexcept {
  return count([&] { return driver_->set_access(address, bytes, devices); });
}

DriverCode CountingDriver::revoke_access(Address address, Bytes bytes, DeviceId device) noexcept {
  return count([&] { return driver_->revoke_access(address, bytes, device); });
}
DriverCode CountingDriver::record_event(EventHandle event, StreamRef stream) noexcept {
  return count([&] { return driver_->record_event(event, stream); });
}
DriverCode CountingDriver::record_context_event(EventHandle event, DeviceId device) noexcept {
  return count([&] { return driver_->record_context_event(event, device); });
}
DriverCode CountingDriver::query_event(EventHandle event) noexcept {
  return count([&] { return driver_->query_event(event); });
}
DriverCode CountingDriver::synchronize_event(EventHandle event) noexcept {
  return count([&] { return driver_->synchronize_event(event); });
}
DriverCode CountingDriver::wait_event(StreamRef stream, EventHandle event) noexcept {
  return count([&] { return driver_->wait_event(stream, event); });
}
DriverResult<CaptureStatus> CountingDriver::get_capture_status(StreamRef stream) noexcept {
  return count([&] { return driver_->get_capture_status(stream); });
}
DriverResult<CaptureInfo> CountingDriver::get_capture_info(StreamRef stream) noexcept {
  return count([&] { return driver_->get_capture_info(stream); });
}
DriverCode CountingDriver::call_when_graph_is_gone(StreamRef stream, GraphGoneCallback callback,
                                                   void* user) noexcept {
  return count([&] { return driver_->call_when_graph_is_gone(stream, callback, user); });
}
DriverCode CountingDriver::get_capture_frontier(StreamRef stream,
                                                std::vector<GraphNode>& nodes) noexcept {
  return count([&] { return driver_->get_capture_frontier(stream, nodes); });
}
DriverCode CountingDriver::get_predecessors(GraphNode node,
                                            std::vector<GraphNode>& nodes) noexcept {
  return count([&] { return driver_->get_predecessors(node, nodes); });
}
DriverResult<StreamId> CountingDriver::get_stream_id(StreamRef stream) noexcept {
  return count([&] { return driver_->get_stream_id(stream); });
}
DriverResult<CaptureMode> CountingDriver::exchange_capture_mode(CaptureMode mode) noexcept {
  return count([&] { return driver_->exchange_capture_mode(mode); });
}

}  // namespace quarry::tools
