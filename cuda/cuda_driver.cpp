// SPDX-License-Identifier: Apache-2.0
// Opening the driver; devices and contexts.
#include "cuda_driver.hpp"

#include "cuda_driver_class.hpp"

namespace quarry::cuda {
namespace {

static_assert(static_cast<int>(DriverCode::kOutOfMemory) == CUDA_ERROR_OUT_OF_MEMORY);
static_assert(static_cast<int>(DriverCode::kNotReady) == CUDA_ERROR_NOT_READY);
static_assert(static_cast<int>(DriverCode::kContextDestroyed) == CUDA_ERROR_CONTEXT_IS_DESTROYED);
static_assert(static_cast<int>(DriverCode::kNotPermitted) == CUDA_ERROR_NOT_PERMITTED);
static_assert(static_cast<int>(DriverCode::kNotSupported) == CUDA_ERROR_NOT_SUPPORTED);
static_assert(static_cast<int>(DriverCode::kCaptureUnsupported) ==
              CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
static_assert(static_cast<int>(DriverCode::kCaptureImplicit) ==
              CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
static_assert(static_cast<int>(DriverCode::kCapturedEvent) == CUDA_ERROR_CAPTURED_EVENT);

}  // namespace

Result<std::unique_ptr<Driver>> open_cuda_driver() {
  Result<DriverEntries> entries = load_driver_entries();
  if (!entries.is_ok()) return std::move(entries).status();
  int device_count = 0;
  CUresult code = entries.value().init(0);
  if (code == CUDA_SUCCESS) code = entries.value().device_get_count(&device_count);
  if (code != CUDA_SUCCESS) {
    return Status(StatusCode::kNotSupported,
                  "the CUDA driver does not start: " + describe(to_code(code)));
  }
  return std::unique_ptr<Driver>(std::make_unique<CudaDriver>(entries.value(), device_count));
}

CudaDriver::CudaDriver(const DriverEntries& entries, int device_count)
    : entries_(entries),
      device_count_(device_count),
      contexts_(std::make_unique<Context[]>(static_cast<std::size_t>(device_count))) {}

CudaDriver::Context* CudaDriver::find_context(DeviceId device) noexcept {
  if (device < 0 || device >= device_count_) return nullptr;
  Context& context = contexts_[static_cast<std::size_t>(device)];
  std::call_once(context.retained, [&] {
    context.code = entries_.device_get(&context.device, device);
    if (context.code != CUDA_SUCCESS) return;
    // Not every caller is in a bracket of its own, and making a context allocates.
    const CaptureModeBracket bracket(*this);
    context.code = entries_.primary_ctx_retain(&context.handle, context.device);
  });
  return &context;
}

CudaDriver::Current::Current(CudaDriver& driver, DeviceId device) noexcept {
  const Context* const context = driver.find_context(device);
  code_ = context != nullptr ? context->code : CUDA_ERROR_INVALID_DEVICE;
  if (code_ != CUDA_SUCCESS) return;
  scope_.emplace(driver.entries_, context->handle);
  code_ = scope_->code();
}

DriverResult<int> CudaDriver::get_device_count() noexcept {
  return device_count_;
}

DriverResult<DeviceProperties> CudaDriver::get_device_properties(DeviceId device) noexcept {
  // Needs no context: asking what a device can do must not make one on it.
  CUdevice handle = 0;
  if (const CUresult code = entries_.device_get(&handle, device); code != CUDA_SUCCESS) {
    return to_code(code);
  }
  const auto has = [&](CUdevice_attribute attribute) {
    int value = 0;
    return entries_.device_get_attribute(&value, attribute, handle) == CUDA_SUCCESS && value != 0;
  };
  DeviceProperties properties;
  std::size_t total = 0;
  if (const CUresult code = entries_.device_total_mem(&total, handle); code != CUDA_SUCCESS) {
    return to_code(code);
  }
  properties.total_bytes = total;
  properties.has_context_events = entries_.ctx_record_event != nullptr;
  properties.has_rdma = has(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
  properties.has_fd_handles = has(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
  if (!has(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)) return properties;
  CUmemAllocationProp allocation{};
  allocation.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  allocation.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
  std::size_t granularity = 0;
  const CUresult code = entries_.mem_get_granularity(&granularity, &allocation,
                                                     CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
  if (code == CUDA_SUCCESS) properties.extent_granularity = granularity;
  return properties;
}

DriverResult<MemoryInfo> CudaDriver::get_memory_info(DeviceId device) noexcept {
  const Current current(*this, device);
  if (!current.is_ok()) return current.code();
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  const CUresult code = entries_.mem_get_info(&free_bytes, &total_bytes);
  if (code != CUDA_SUCCESS) return to_code(code);
  return MemoryInfo{free_bytes, total_bytes};
}

DriverCode CudaDriver::enable_peer_access(DeviceId device, DeviceId peer) noexcept {
  const Context* const peer_context = find_context(peer);
  if (peer_context == nullptr) return DriverCode::kInvalidDevice;
  if (peer_context->code != CUDA_SUCCESS) return to_code(peer_context->code);
  const Current current(*this, device);
  if (!current.is_ok()) return current.code();
  const CUresult code = entries_.ctx_enable_peer_access(peer_context->handle, 0);
  if (code == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) return DriverCode::kSuccess;
  return to_code(code);
}

}  // namespace quarry::cuda
