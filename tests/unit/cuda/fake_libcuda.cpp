// SPDX-License-Identifier: Apache-2.0
// A stand-in for libcuda.so.1 with two made-up devices, so that what looks a driver up and asks
// its devices can be tried without one. Written from the driver API's documentation; allocates
// nothing and runs nothing. FAKE_RESOLVER says how entries are found: 2 and 1 through
// cuGetProcAddress_v2 (CUDA 12) and cuGetProcAddress (11.3) alone, 0 through exported symbols
// alone, as in drivers before that. With FAKE_LACKS_VMM there is no cuMemCreate.
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr int kSuccess = 0;
constexpr int kInvalidValue = 1;
constexpr int kInvalidDevice = 101;
constexpr int kInvalidContext = 201;
[[maybe_unused]] constexpr int kNotFound = 500;
constexpr int kNotSupported = 801;
constexpr int kVersion = FAKE_RESOLVER == 2 ? 12040 : FAKE_RESOLVER == 1 ? 11040 : 11020;

thread_local void* context_stack[8] = {};
thread_local int depth = 0;
int devices[2];

// Whoever borrowed the thread's context stack must have given it back as it was.
struct Farewell {
  ~Farewell() {
    if (depth == 0) return;
    std::fputs("fake libcuda: a context is still current\n", stderr);
    std::_Exit(99);
  }
} farewell;

}  // namespace

extern "C" {

int fake_init(unsigned) {
  return kSuccess;
}
int fake_driver_get_version(int* version) {
  *version = kVersion;
  return kSuccess;
}
int fake_device_get_count(int* count) {
  *count = 2;
  return kSuccess;
}
int fake_device_get(int* device, int ordinal) {
  *device = 10 + ordinal;  // no ordinal: the two must not be mixed up
  return ordinal < 2 ? kSuccess : kInvalidDevice;
}
int fake_device_get_name(char* name, int bytes, int device) {
  std::snprintf(name, static_cast<std::size_t>(bytes), "Fake %d", device - 10);
  return kSuccess;
}
int fake_device_total_mem(std::size_t* bytes, int device) {
  *bytes = (device == 10 ? 8ull : 16ull) << 30;
  return kSuccess;
}
// The second device can less. Attributes that the driver of the time does not know are an error.
int fake_device_get_attribute(int* value, int attribute, int device) {
  const bool is_first = device == 10;
  switch (attribute) {
    case 75:
      *value = is_first ? 9 : 7;
      return kSuccess;  // compute capability, major
    case 76:
      *value = is_first ? 0 : 5;
      return kSuccess;  // minor
    case 18:
      *value = is_first ? 0 : 1;
      return kSuccess;  // integrated
    case 20:
      *value = is_first ? 0 : 3;
      return kSuccess;  // compute mode
    case 41:
      *value = 1;
      return kSuccess;  // unified addressing
    case 102:
      *value = is_first ? 1 : 0;
      return kSuccess;  // virtual memory management
    case 103:
      *value = is_first ? 1 : 0;
      return kSuccess;  // file descriptors
    case 125:
      *value = is_first ? 1 : 0;
      return kSuccess;  // legacy IPC
    default:
      return kInvalidValue;
  }
}
int fake_can_access_peer(int* can, int from, int to) {
  if (from == to) return kInvalidDevice;
  *can = from == 10 ? 1 : 0;
  return kSuccess;
}
int fake_primary_ctx_retain(void** context, int device) {
  *context = &devices[device - 10];
  return kSuccess;
}
int fake_ctx_get_current(void** context) {
  *context = depth > 0 ? context_stack[depth - 1] : nullptr;
  return kSuccess;
}
int fake_ctx_push_current(void* context) {
  context_stack[depth++] = context;
  return kSuccess;
}
int fake_ctx_pop_current(void** context) {
  if (depth == 0) return kInvalidContext;
  *context = context_stack[--depth];
  return kSuccess;
}
int fake_mem_get_info(std::size_t* free_bytes, std::size_t* total_bytes) {
  if (depth == 0) return kInvalidContext;
  const bool is_first = context_stack[depth - 1] == &devices[0];
  *total_bytes = (is_first ? 8ull : 16ull) << 30;
  *free_bytes = *total_bytes - (1ull << 30);
  return kSuccess;
}
int fake_mem_get_granularity(std::size_t* bytes, const void*, int is_recommended) {
  *bytes = is_recommended != 0 ? 4u << 20 : 2u << 20;
  return kSuccess;
}
int fake_exchange_capture_mode(int*) {
  return kSuccess;
}
int fake_do_nothing() {
  return kNotSupported;
}

}  // extern "C"

// X(name, exported symbol, function): what the driver has.
#define FAKE_ENTRIES(X)                                                                          \
  X(cuInit, cuInit, init)                                                                        \
  X(cuDriverGetVersion, cuDriverGetVersion, driver_get_version)                                  \
  X(cuDeviceGetCount, cuDeviceGetCount, device_get_count)                                        \
  X(cuDeviceGet, cuDeviceGet, device_get)                                                        \
  X(cuDeviceGetName, cuDeviceGetName, device_get_name)                                           \
  X(cuDeviceTotalMem, cuDeviceTotalMem_v2, device_total_mem)                                     \
  X(cuDeviceGetAttribute, cuDeviceGetAttribute, device_get_attribute)                            \
  X(cuDeviceCanAccessPeer, cuDeviceCanAccessPeer, can_access_peer)                               \
  X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, primary_ctx_retain)                      \
  X(cuCtxGetCurrent, cuCtxGetCurrent, ctx_get_current)                                           \
  X(cuCtxPushCurrent, cuCtxPushCurrent_v2, ctx_push_current)                                     \
  X(cuCtxPopCurrent, cuCtxPopCurrent_v2, ctx_pop_current)                                        \
  X(cuMemGetInfo, cuMemGetInfo_v2, mem_get_info)                                                 \
  X(cuMemGetAllocationGranularity, cuMemGetAllocationGranularity, mem_get_granularity)           \
  X(cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode, exchange_capture_mode) \
  X(cuCtxEnablePeerAccess, cuCtxEnablePeerAccess, do_nothing)                                    \
  X(cuMemAlloc, cuMemAlloc_v2, do_nothing)                                                       \
  X(cuMemFree, cuMemFree_v2, do_nothing)                                                         \
  X(cuEventCreate, cuEventCreate, do_nothing)                                                    \
  X(cuEventDestroy, cuEventDestroy_v2, do_nothing)                                               \
  X(cuEventRecord, cuEventRecord, do_nothing)                                                    \
  X(cuEventQuery, cuEventQuery, do_nothing)                                                      \
  X(cuEventSynchronize, cuEventSynchronize, do_nothing)                                          \
  X(cuStreamWaitEvent, cuStreamWaitEvent, do_nothing)                                            \
  X(cuGraphNodeGetDependencies, cuGraphNodeGetDependencies, do_nothing)                          \
  X(cuStreamIsCapturing, cuStreamIsCapturing, do_nothing)                                        \
  X(cuMemAddressReserve, cuMemAddressReserve, do_nothing)                                        \
  X(cuMemAddressFree, cuMemAddressFree, do_nothing)                                              \
  X(cuMemRelease, cuMemRelease, do_nothing)                                                      \
  X(cuMemMap, cuMemMap, do_nothing)                                                              \
  X(cuMemUnmap, cuMemUnmap, do_nothing)                                                          \
  X(cuMemSetAccess, cuMemSetAccess, do_nothing)
#ifdef FAKE_LACKS_VMM
#define FAKE_CREATE(X)
#else
#define FAKE_CREATE(X) X(cuMemCreate, cuMemCreate, do_nothing)
#endif
#if FAKE_RESOLVER == 0
#define FAKE_ENTRIES_OF_11_3(X)
#else
#define FAKE_ENTRIES_OF_11_3(X)                                    \
  X(cuStreamGetCaptureInfo, cuStreamGetCaptureInfo_v2, do_nothing) \
  X(cuUserObjectCreate, cuUserObjectCreate, do_nothing)            \
  X(cuUserObjectRelease, cuUserObjectRelease, do_nothing)          \
  X(cuGraphRetainUserObject, cuGraphRetainUserObject, do_nothing)
#endif

namespace {

[[maybe_unused]] int resolve(const char* name, void** entry, int version) {
  *entry = nullptr;
  if (version > kVersion) return kNotFound;
#define FAKE_MATCH(known, symbol, function) \
  if (std::strcmp(name, #known) == 0) *entry = reinterpret_cast<void*>(&fake_##function);
  FAKE_ENTRIES(FAKE_MATCH)
  FAKE_CREATE(FAKE_MATCH)
  FAKE_ENTRIES_OF_11_3(FAKE_MATCH)
#undef FAKE_MATCH
  return *entry != nullptr ? kSuccess : kNotFound;
}

}  // namespace

#define FAKE_EXPORT extern "C" [[gnu::visibility("default")]]

#if FAKE_RESOLVER == 2
FAKE_EXPORT int cuGetProcAddress_v2(const char* name, void** entry, int version,
                                    unsigned long long, int* result) {
  const int code = resolve(name, entry, version);
  *result = code == kSuccess ? 0 : 1;
  return code;
}
#elif FAKE_RESOLVER == 1
FAKE_EXPORT int cuGetProcAddress(const char* name, void** entry, int version, unsigned long long) {
  return resolve(name, entry, version);
}
#else
// Every symbol is another name of the function that it stands for.
#define FAKE_ALIAS(name, symbol, function) \
  __asm__(".globl " #symbol "\n.set " #symbol ", fake_" #function "\n");
FAKE_ENTRIES(FAKE_ALIAS)
FAKE_CREATE(FAKE_ALIAS)
#endif
