// SPDX-License-Identifier: Apache-2.0
// The CUDA driver's entries that the facts are about, looked up at run time in libcuda.so.1, so
// that the programs here start (and say what is missing) on a machine without a GPU. A table of
// function pointers and the error that a failed call raises; it measures nothing.
#pragma once

#include <cuda.h>

#include <stdexcept>
#include <string>

namespace quarry::facts {

// X(member, entry): cuda.h's macros turn the entry's name into that of its newest ABI.
#define QUARRY_FACTS_ENTRIES(X)                                    \
  X(init, cuInit)                                                  \
  X(driver_get_version, cuDriverGetVersion)                        \
  X(device_get, cuDeviceGet)                                       \
  X(device_get_name, cuDeviceGetName)                              \
  X(device_get_attribute, cuDeviceGetAttribute)                    \
  X(device_total_mem, cuDeviceTotalMem)                            \
  X(primary_ctx_retain, cuDevicePrimaryCtxRetain)                  \
  X(primary_ctx_release, cuDevicePrimaryCtxRelease)                \
  X(ctx_set_current, cuCtxSetCurrent)                              \
  X(ctx_get_current, cuCtxGetCurrent)                              \
  X(ctx_push_current, cuCtxPushCurrent)                            \
  X(ctx_pop_current, cuCtxPopCurrent)                              \
  X(ctx_get_device, cuCtxGetDevice)                                \
  X(ctx_synchronize, cuCtxSynchronize)                             \
  X(ctx_record_event, cuCtxRecordEvent)                            \
  X(mem_get_info, cuMemGetInfo)                                    \
  X(mem_alloc, cuMemAlloc)                                         \
  X(mem_free, cuMemFree)                                           \
  X(mem_alloc_async, cuMemAllocAsync)                              \
  X(mem_free_async, cuMemFreeAsync)                                \
  X(mem_get_address_range, cuMemGetAddressRange)                   \
  X(mem_host_alloc, cuMemHostAlloc)                                \
  X(mem_free_host, cuMemFreeHost)                                  \
  X(memset_d8_async, cuMemsetD8Async)                              \
  X(memset_d32_async, cuMemsetD32Async)                            \
  X(memcpy_dtod_async, cuMemcpyDtoDAsync)                          \
  X(memcpy_htod_async, cuMemcpyHtoDAsync)                          \
  X(memcpy_dtoh_async, cuMemcpyDtoHAsync)                          \
  X(pointer_get_attribute, cuPointerGetAttribute)                  \
  X(pointer_set_attribute, cuPointerSetAttribute)                  \
  X(ipc_get_mem_handle, cuIpcGetMemHandle)                         \
  X(mem_address_reserve, cuMemAddressReserve)                      \
  X(mem_address_free, cuMemAddressFree)                            \
  X(mem_create, cuMemCreate)                                       \
  X(mem_release, cuMemRelease)                                     \
  X(mem_map, cuMemMap)                                             \
  X(mem_unmap, cuMemUnmap)                                         \
  X(mem_set_access, cuMemSetAccess)                                \
  X(mem_export, cuMemExportToShareableHandle)                      \
  X(mem_import, cuMemImportFromShareableHandle)                    \
  X(mem_retain_handle, cuMemRetainAllocationHandle)                \
  X(mem_get_granularity, cuMemGetAllocationGranularity)            \
  X(event_create, cuEventCreate)                                   \
  X(event_destroy, cuEventDestroy)                                 \
  X(event_record, cuEventRecord)                                   \
  X(event_query, cuEventQuery)                                     \
  X(event_synchronize, cuEventSynchronize)                         \
  X(event_elapsed_time, cuEventElapsedTime)                        \
  X(stream_create, cuStreamCreate)                                 \
  X(stream_destroy, cuStreamDestroy)                               \
  X(stream_query, cuStreamQuery)                                   \
  X(stream_synchronize, cuStreamSynchronize)                       \
  X(stream_wait_event, cuStreamWaitEvent)                          \
  X(stream_get_id, cuStreamGetId)                                  \
  X(stream_begin_capture, cuStreamBeginCapture)                    \
  X(stream_end_capture, cuStreamEndCapture)                        \
  X(stream_is_capturing, cuStreamIsCapturing)                      \
  X(stream_get_capture_info, cuStreamGetCaptureInfo)               \
  X(stream_update_dependencies, cuStreamUpdateCaptureDependencies) \
  X(exchange_capture_mode, cuThreadExchangeStreamCaptureMode)      \
  X(launch_host_func, cuLaunchHostFunc)                            \
  X(graph_create, cuGraphCreate)                                   \
  X(graph_destroy, cuGraphDestroy)                                 \
  X(graph_instantiate, cuGraphInstantiate)                         \
  X(graph_exec_destroy, cuGraphExecDestroy)                        \
  X(graph_launch, cuGraphLaunch)                                   \
  X(graph_get_nodes, cuGraphGetNodes)                              \
  X(graph_node_get_dependencies, cuGraphNodeGetDependencies)       \
  X(graph_retain_user_object, cuGraphRetainUserObject)             \
  X(user_object_create, cuUserObjectCreate)                        \
  X(user_object_release, cuUserObjectRelease)                      \
  X(tensor_map_encode_tiled, cuTensorMapEncodeTiled)

struct DriverCalls {
#define QUARRY_FACTS_DECLARE(member, entry) decltype(&::entry) member = nullptr;
  QUARRY_FACTS_ENTRIES(QUARRY_FACTS_DECLARE)
#undef QUARRY_FACTS_DECLARE
};

class DriverError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The table. The first call opens the driver, and throws DriverError if there is none or if it
// lacks an entry (CUDA 12.5 has all). Any thread.
const DriverCalls& cu();

// Throws DriverError, naming `what` and the code, unless the call succeeded. Also takes codes of
// the runtime, whose numbers are the driver's.
void require(int code, const char* what);

// The primary context of device 0, retained once and made current on the calling thread.
CUcontext enter_context();

}  // namespace quarry::facts
