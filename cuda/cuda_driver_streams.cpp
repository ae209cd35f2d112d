// SPDX-License-Identifier: Apache-2.0
// Events, streams and captures of the real driver. A stream handle of 0 or 2 means the default
// stream of whichever context is current, so every call that takes one makes the device's context
// current.
#include "cuda_driver_class.hpp"

namespace quarry::cuda {

DriverResult<EventHandle> CudaDriver::create_event(DeviceId device) noexcept {
  const Current current(*this, device);
  if (!current.is_ok()) return current.code();
  CUevent event = nullptr;
  const CUresult code = entries_.event_create(&event, CU_EVENT_DISABLE_TIMING);
  if (code != CUDA_SUCCESS) return to_code(code);
  return EventHandle{reinterpret_cast<std::uintptr_t>(event)};
}

DriverCode CudaDriver::destroy_event(EventHandle event) noexcept {
  return to_code(entries_.event_destroy(to_event(event)));
}

DriverCode CudaDriver::record_event(EventHandle event, StreamRef stream) noexcept {
  const Current current(*this, stream.device);
  if (!current.is_ok()) return current.code();
  return to_code(entries_.event_record(to_event(event), to_stream(stream.handle)));
}

DriverCode CudaDriver::record_context_event(EventHandle event, DeviceId device) noexcept {
  if (entries_.ctx_record_event == nullptr) return DriverCode::kNotSupported;
  const Context* const context = find_context(device);
  if (context == nullptr) return DriverCode::kInvalidDevice;
  if (context->code != CUDA_SUCCESS) return to_code(context->code);
  return to_code(entries_.ctx_record_event(context->handle, to_event(event)));
}

DriverCode CudaDriver::query_event(EventHandle event) noexcept {
  return to_code(entries_.event_query(to_event(event)));
}

DriverCode CudaDriver::synchronize_event(EventHandle event) noexcept {
  return to_code(entries_.event_synchronize(to_event(event)));
}

DriverCode CudaDriver::wait_event(StreamRef stream, EventHandle event) noexcept {
  const Current current(*this, stream.device);
  if (!current.is_ok()) return current.code();
  return to_code(entries_.stream_wait_event(to_stream(stream.handle), to_event(event), 0));
}

DriverResult<CaptureStatus> CudaDriver::get_capture_status(StreamRef stream) noexcept {
  const Current current(*this, stream.device);
  if (!current.is_ok()) return current.code();
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult code = entries_.stream_is_capturing(to_stream(stream.handle), &status);
  if (code != CUDA_SUCCESS) return to_code(code);
  return CaptureStatus{static_cast<int>(status)};
}

DriverResult<CaptureInfo> CudaDriver::get_capture_info(StreamRef stream) noexcept {
  if (entries_.stream_get_capture_info == nullptr) {
    const auto status = get_capture_status(stream);
    if (!status.is_ok()) return status.code;
    if (status.value == CaptureStatus::kActive) return DriverCode::kNotSupported;
    return CaptureInfo{status.value, CaptureId::kNone};
  }
  const Current current(*this, stream.device);
  if (!current.is_ok()) return current.code();
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  const CUresult code = entries_.stream_get_capture_info(to_stream(stream.handle), &status, &id,
                                                         nullptr, nullptr, nullptr);
  if (code != CUDA_SUCCESS) return to_code(code);
  // The driver's id means nothing unless the capture is active.
  if (status != CU_STREAM_CAPTURE_STATUS_ACTIVE) id = 0;
  return CaptureInfo{CaptureStatus{static_cast<int>(status)}, CaptureId{id}};
}

DriverResult<StreamId> CudaDriver::get_stream_id(StreamRef stream) noexcept {
  if (entries_.stream_get_id == nullptr) return DriverCode::kNotSupported;
  const Current current(*this, stream.device);
  if (!current.is_ok()) return current.code();
  unsigned long long id = 0;
  const CUresult code = entries_.stream_get_id(to_stream(stream.handle), &id);
  if (code != CUDA_SUCCESS) return to_code(code);
  return StreamId{id};
}

DriverResult<CaptureMode> CudaDriver::exchange_capture_mode(CaptureMode mode) noexcept {
  auto exchanged = static_cast<CUstreamCaptureMode>(static_cast<int>(mode));
  const CUresult code = entries_.exchange_capture_mode(&exchanged);
  if (code != CUDA_SUCCESS) return to_code(code);
  return CaptureMode{static_cast<int>(exchanged)};
}

}  // namespace quarry::cuda
