// SPDX-License-Identifier: Apache-2.0
// The driver API's entry points that Quarry calls, looked up at run time in libcuda.so.1. Nothing
// is linked, so that the library loads on a machine without a GPU. Entries newer than CUDA 11.3
// are optional; everything else must be there.
#pragma once

#include <cudaTypedefs.h>

#include <vector>

#include "base/status.hpp"
#include "driver_library.hpp"

namespace quarry::cuda {

// X(member, name in the driver, CUDA version of the ABI, symbol where there is no
// cuGetProcAddress)
#define QUARRY_REQUIRED_ENTRIES(X)                                                  \
  X(init, cuInit, 2000, "cuInit")                                                   \
  X(driver_get_version, cuDriverGetVersion, 2020, "cuDriverGetVersion")             \
  X(device_get_count, cuDeviceGetCount, 2000, "cuDeviceGetCount")                   \
  X(device_get, cuDeviceGet, 2000, "cuDeviceGet")                                   \
  X(device_get_attribute, cuDeviceGetAttribute, 2000, "cuDeviceGetAttribute")       \
  X(device_total_mem, cuDeviceTotalMem, 3020, "cuDeviceTotalMem_v2")                \
  X(primary_ctx_retain, cuDevicePrimaryCtxRetain, 7000, "cuDevicePrimaryCtxRetain") \
  X(ctx_get_current, cuCtxGetCurrent, 4000, "cuCtxGetCurrent")                      \
  X(ctx_push_current, cuCtxPushCurrent, 4000, "cuCtxPushCurrent_v2")                \
  X(ctx_pop_current, cuCtxPopCurrent, 4000, "cuCtxPopCurrent_v2")                   \
  X(ctx_enable_peer_access, cuCtxEnablePeerAccess, 4000, "cuCtxEnablePeerAccess")   \
  X(mem_get_info, cuMemGetInfo, 3020, "cuMemGetInfo_v2")                            \
  X(mem_alloc, cuMemAlloc, 3020, "cuMemAlloc_v2")                                   \
  X(mem_free, cuMemFree, 3020, "cuMemFree_v2")                                      \
  X(event_create, cuEventCreate, 2000, "cuEventCreate")                             \
  X(event_destroy, cuEventDestroy, 4000, "cuEventDestroy_v2")                       \
  X(event_record, cuEventRecord, 2000, "cuEventRecord")                             \
  X(event_query, cuEventQuery, 2000, "cuEventQuery")                                \
  X(event_synchronize, cuEventSynchronize, 2000, "cuEventSynchronize")              \
  X(stream_wait_event, cuStreamWaitEvent, 3020, "cuStreamWaitEvent")                \
  X(stream_is_capturing, cuStreamIsCapturing, 10000, "cuStreamIsCapturing")         \
  X(exchange_capture_mode, cuThreadExchangeStreamCaptureMode, 10010,                \
    "cuThreadExchangeStreamCaptureMode")                                            \
  X(mem_address_reserve, cuMemAddressReserve, 10020, "cuMemAddressReserve")         \
  X(mem_address_free, cuMemAddressFree, 10020, "cuMemAddressFree")                  \
  X(mem_create, cuMemCreate, 10020, "cuMemCreate")                                  \
  X(mem_release, cuMemRelease, 10020, "cuMemRelease")                               \
  X(mem_map, cuMemMap, 10020, "cuMemMap")                                           \
  X(mem_unmap, cuMemUnmap, 10020, "cuMemUnmap")                                     \
  X(mem_set_access, cuMemSetAccess, 10020, "cuMemSetAccess")                        \
  X(mem_get_granularity, cuMemGetAllocationGranularity, 10020, "cuMemGetAllocationGranularity")

#define QUARRY_OPTIONAL_ENTRIES(X)                                                       \
  X(device_get_name, cuDeviceGetName, 2000, "cuDeviceGetName")                           \
  X(can_access_peer, cuDeviceCanAccessPeer, 4000, "cuDeviceCanAccessPeer")               \
  X(stream_get_id, cuStreamGetId, 12000, "cuStreamGetId")                                \
  X(ctx_record_event, cuCtxRecordEvent, 12050, "cuCtxRecordEvent")                       \
  X(stream_get_capture_info, cuStreamGetCaptureInfo, 11030, "cuStreamGetCaptureInfo_v2") \
  X(user_object_create, cuUserObjectCreate, 11030, "cuUserObjectCreate")                 \
  X(user_object_release, cuUserObjectRelease, 11030, "cuUserObjectRelease")              \
  X(graph_retain_user_object, cuGraphRetainUserObject, 11030, "cuGraphRetainUserObject") \
  X(graph_node_get_dependencies, cuGraphNodeGetDependencies, 10000, "cuGraphNodeGetDependencies")

// Newer ABIs of entries above, taken where the driver has them: those that tell edge data.
#define QUARRY_NEWER_ENTRIES(X)                                                             \
  X(stream_get_capture_info_v3, cuStreamGetCaptureInfo, 12030, "cuStreamGetCaptureInfo_v3") \
  X(graph_node_get_dependencies_v2, cuGraphNodeGetDependencies, 12030,                      \
    "cuGraphNodeGetDependencies_v2")

// One function pointer for each entry; null where an optional one is missing.
struct DriverEntries {
#define QUARRY_DECLARE(member, name, version, symbol) PFN_##name##_v##version member = nullptr;
  QUARRY_REQUIRED_ENTRIES(QUARRY_DECLARE)
  QUARRY_OPTIONAL_ENTRIES(QUARRY_DECLARE)
  QUARRY_NEWER_ENTRIES(QUARRY_DECLARE)
#undef QUARRY_DECLARE
};

// An entry by name, and whether the driver has it.
struct EntryState {
  const char* name;
  int version;  // of CUDA, as 12050 for 12.5: the ABI that was asked for
  bool is_required;
  bool is_found;
};

// Whatever the library has; required entries too may be null.
DriverEntries find_driver_entries(const DriverLibrary& library);
// Every required and optional entry, in the order of the tables.
std::vector<EntryState> list_entries(const DriverEntries& entries);
// kNotSupported if a required entry is missing; names the first one.
Status check_entries(const DriverEntries& entries);

// Opens the library and fills the table. kNotSupported if there is no driver, or one too old.
Result<DriverEntries> load_driver_entries();

}  // namespace quarry::cuda
