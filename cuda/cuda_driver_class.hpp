// SPDX-License-Identifier: Apache-2.0
// The CUDA driver as a Driver: one class, its members spread over four files by concept (devices
// and contexts, memory, streams, graphs). Internal to cuda/.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "context_scope.hpp"
#include "driver/driver.hpp"
#include "driver_entries.hpp"

namespace quarry::cuda {

class CudaDriver final : public Driver {
 public:
  CudaDriver(const DriverEntries& entries, int device_count);

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

 private:
  // A device's primary context, retained at the first use.
  struct Context {
    std::once_flag retained;
    CUresult code = CUDA_ERROR_NOT_INITIALIZED;  // of the retain
    CUcontext handle = nullptr;
    CUdevice device = 0;
  };

  // The primary context of `device` is current for its lifetime, the caller's own one afterwards.
  class Current {
   public:
    Current(CudaDriver& driver, DeviceId device) noexcept;
    bool is_ok() const noexcept { return code_ == CUDA_SUCCESS; }
    DriverCode code() const noexcept { return DriverCode{static_cast<int>(code_)}; }

   private:
    CUresult code_ = CUDA_SUCCESS;
    std::optional<ContextScope> scope_;
  };

  Context* find_context(DeviceId device) noexcept;
  // The graph that the stream's capture makes; an error unless there is one, and it is whole.
  CUresult find_capture_graph(CUstream stream, CUgraph& graph) noexcept;

  const DriverEntries entries_;
  const int device_count_;
  std::unique_ptr<Context[]> contexts_;  // by DeviceId
};

inline DriverCode to_code(CUresult result) noexcept {
  return DriverCode{static_cast<int>(result)};
}
inline CUstream to_stream(StreamHandle handle) noexcept {
  return reinterpret_cast<CUstream>(static_cast<std::uintptr_t>(handle));
}
inline CUevent to_event(EventHandle handle) noexcept {
  return reinterpret_cast<CUevent>(static_cast<std::uintptr_t>(handle));
}

}  // namespace quarry::cuda
