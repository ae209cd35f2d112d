// SPDX-License-Identifier: Apache-2.0
// A Driver in front of another one, for replays on a real device: counts the calls and the host
// time inside them, and knows what the allocator holds. Changes nothing. Not thread-safe, as a
// replay is one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>

#include "driver/driver.hpp"

namespace quarry::tools {

class CountingDriver final : public Driver {
 public:
  explicit CountingDriver(std::unique_ptr<Driver> driver) : driver_(std::move(driver)) {}

  std::uint64_t call_count() const noexcept { return calls_; }
  // The clock's own time is in it, about 20 ns a call.
  std::uint64_t call_ns() const noexcept { return ns_; }
  // Plain memory that was allocated and not freed; events that were created and not destroyed.
  Bytes held_bytes() const noexcept { return held_bytes_; }
  std::uint64_t held_events() const noexcept { return held_events_; }
  // Calls `observer` with the size of every plain allocation that is asked for.
  void observe_allocations(std::function<void(Bytes)> observer) {
    observer_ = std::move(observer);
  }

  DriverResult<int> get_device_count() noexcept override;
  DriverResult<DeviceProperties> get_device_properties(DeviceId device) noexcept override;
  DriverResult<MemoryInfo> get_memory_info(DeviceId device) noexcept override;
  DriverCode enable_peer_access(DeviceId device, DeviceId peer) noexcept override;
  DriverResult<Address> allocate(DeviceId device, Bytes bytes) noexcept override;
  DriverCode free(DeviceId device, Address address) noexcept override;
  DriverResult<Address> reserve_addresses(Bytes bytes, Bytes alignment) noexcept override;
  DriverCode free_addresses(Address address, Bytes bytes) noexcept override;
  DriverResult<ExtentHandle> create_extent(DeviceId device, Bytes bytes,
                                           ExtentKind kind) noexcept override;
  DriverCode release_extent(ExtentHandle extent) noexcept override;
  DriverCode map(Address address, Bytes bytes, ExtentHandle extent) noexcept override;
  DriverCode unmap(Address address, Bytes bytes) noexcept override;
  DriverCode set_access(Address address, Bytes bytes,
                        std::span<const DeviceId> devices) noexcept override;
  DriverCode revoke_access(Address address, Bytes bytes, DeviceId device) noexcept override;
  DriverResult<EventHandle> create_event(DeviceId device) noexcept override;
  DriverCode destroy_event(EventHandle event) noexcept override;
  DriverCode record_event(EventHandle event, StreamRef stream) noexcept override;
  DriverCode record_context_event(EventHandle event, DeviceId device) noexcept override;
  DriverCode query_event(EventHandle event) noexcept override;
  DriverCode synchronize_event(EventHandle event) noexcept override;
  DriverCode wait_event(StreamRef stream, EventHandle event) noexcept override;
  DriverResult<CaptureStatus> get_capture_status(StreamRef stream) noexcept override;
  DriverResult<CaptureInfo> get_capture_info(StreamRef stream) noexcept override;
  DriverCode call_when_graph_is_gone(StreamRef stream, GraphGoneCallback callback,
                                     void* user) noexcept override;
  DriverCode get_capture_frontier(StreamRef stream,
                                  std::vector<GraphNode>& nodes) noexcept override;
  DriverCode get_predecessors(GraphNode node, std::vector<GraphNode>& nodes) noexcept override;
  DriverResult<StreamId> get_stream_id(StreamRef stream) noexcept override;
  DriverResult<CaptureMode> exchange_capture_mode(CaptureMode mode) noexcept override;
  std::uint64_t read_clock_ns() noexcept override { return driver_->read_clock_ns(); }

 private:
  template <class Call>
  auto count(Call call) noexcept;

  std::unique_ptr<Driver> driver_;
  std::function<void(Bytes)> observer_;
  std::unordered_map<Address, Bytes> plain_;
  Bytes held_bytes_ = 0;
  std::uint64_t held_events_ = 0;
  std::uint64_t calls_ = 0;
  std::uint64_t ns_ = 0;
};

}  // namespace quarry::tools
