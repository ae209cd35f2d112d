// SPDX-License-Identifier: Apache-2.0
// The names of driver codes and entries, as people know them from the driver's own messages.
#include "driver/driver_types.hpp"

namespace quarry {
namespace {

std::string_view get_name(DriverCode code) {
  switch (code) {
    case DriverCode::kSuccess: return "CUDA_SUCCESS";
    case DriverCode::kInvalidValue: return "CUDA_ERROR_INVALID_VALUE";
    case DriverCode::kOutOfMemory: return "CUDA_ERROR_OUT_OF_MEMORY";
    case DriverCode::kNotInitialized: return "CUDA_ERROR_NOT_INITIALIZED";
    case DriverCode::kDeinitialized: return "CUDA_ERROR_DEINITIALIZED";
    case DriverCode::kNoDevice: return "CUDA_ERROR_NO_DEVICE";
    case DriverCode::kInvalidDevice: return "CUDA_ERROR_INVALID_DEVICE";
    case DriverCode::kInvalidContext: return "CUDA_ERROR_INVALID_CONTEXT";
    case DriverCode::kInvalidHandle: return "CUDA_ERROR_INVALID_HANDLE";
    case DriverCode::kNotReady: return "CUDA_ERROR_NOT_READY";
    case DriverCode::kIllegalAddress: return "CUDA_ERROR_ILLEGAL_ADDRESS";
    case DriverCode::kContextDestroyed: return "CUDA_ERROR_CONTEXT_IS_DESTROYED";
    case DriverCode::kNotPermitted: return "CUDA_ERROR_NOT_PERMITTED";
    case DriverCode::kNotSupported: return "CUDA_ERROR_NOT_SUPPORTED";
    case DriverCode::kCaptureUnsupported: return "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED";
    case DriverCode::kCaptureInvalidated: return "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED";
    case DriverCode::kCaptureMerge: return "CUDA_ERROR_STREAM_CAPTURE_MERGE";
    case DriverCode::kCaptureUnmatched: return "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED";
    case DriverCode::kCaptureUnjoined: return "CUDA_ERROR_STREAM_CAPTURE_UNJOINED";
    case DriverCode::kCaptureIsolation: return "CUDA_ERROR_STREAM_CAPTURE_ISOLATION";
    case DriverCode::kCaptureImplicit: return "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT";
    case DriverCode::kCapturedEvent: return "CUDA_ERROR_CAPTURED_EVENT";
    case DriverCode::kCaptureWrongThread: return "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD";
    case DriverCode::kUnknown: return "CUDA_ERROR_UNKNOWN";
  }
  return "CUDA error";
}

}  // namespace

std::string describe(DriverCode code) {
  return std::string(get_name(code)) + " (" + std::to_string(static_cast<int>(code)) + ")";
}

std::string_view get_name(DriverEntry entry) {
  switch (entry) {
    case DriverEntry::kGetDeviceCount: return "get_device_count";
    case DriverEntry::kGetDeviceProperties: return "get_device_properties";
    case DriverEntry::kGetMemoryInfo: return "get_memory_info";
    case DriverEntry::kEnablePeerAccess: return "enable_peer_access";
    case DriverEntry::kAllocate: return "allocate";
    case DriverEntry::kFree: return "free";
    case DriverEntry::kReserveAddresses: return "reserve_addresses";
    case DriverEntry::kFreeAddresses: return "free_addresses";
    case DriverEntry::kCreateExtent: return "create_extent";
    case DriverEntry::kReleaseExtent: return "release_extent";
    case DriverEntry::kMap: return "map";
    case DriverEntry::kUnmap: return "unmap";
    case DriverEntry::kSetAccess: return "set_access";
    case DriverEntry::kRevokeAccess: return "revoke_access";
    case DriverEntry::kCreateEvent: return "create_event";
    case DriverEntry::kDestroyEvent: return "destroy_event";
    case DriverEntry::kRecordEvent: return "record_event";
    case DriverEntry::kRecordContextEvent: return "record_context_event";
    case DriverEntry::kQueryEvent: return "query_event";
    case DriverEntry::kSynchronizeEvent: return "synchronize_event";
    case DriverEntry::kWaitEvent: return "wait_event";
    case DriverEntry::kGetCaptureStatus: return "get_capture_status";
    case DriverEntry::kGetCaptureInfo: return "get_capture_info";
    case DriverEntry::kCallWhenGraphIsGone: return "call_when_graph_is_gone";
    case DriverEntry::kGetCaptureFrontier: return "get_capture_frontier";
    case DriverEntry::kGetPredecessors: return "get_predecessors";
    case DriverEntry::kGetStreamId: return "get_stream_id";
    case DriverEntry::kExchangeCaptureMode: return "exchange_capture_mode";
  }
  return "unknown";
}

}  // namespace quarry
