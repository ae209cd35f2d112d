// SPDX-License-Identifier: Apache-2.0
#include "bench/peers/cuda_entries.hpp"

#include <dlfcn.h>

#include <cstdint>
#include <stdexcept>

namespace quarry::bench {
namespace {

template <class Function>
void find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  if (function == nullptr) throw std::runtime_error(std::string("libcuda has no ") + name);
}

}  // namespace

void check_cuda(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  throw std::runtime_error(std::string(call) + ": CUDA error " + std::to_string(result));
}

CudaEntries::CudaEntries() {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) throw std::runtime_error(std::string("no CUDA driver: ") + dlerror());
  CUresult (*init)(unsigned) = nullptr;
  CUresult (*get_device)(CUdevice*, int) = nullptr;
  CUresult (*retain_context)(CUcontext*, CUdevice) = nullptr;
  find(library, "cuInit", init);
  find(library, "cuDeviceGet", get_device);
  find(library, "cuDevicePrimaryCtxRetain", retain_context);
  find(library, "cuCtxSetCurrent", set_current);
  find(library, "cuStreamCreate", stream_create);
  find(library, "cuMemAlloc_v2", allocate);
  find(library, "cuMemFree_v2", free);
  find(library, "cuMemAllocAsync", allocate_async);
  find(library, "cuMemFreeAsync", free_async);
  find(library, "cuDeviceGetDefaultMemPool", get_default_pool);
  find(library, "cuMemPoolSetAttribute", set_pool_attribute);
  check_cuda(init(0), "cuInit");
  check_cuda(get_device(&device_, 0), "cuDeviceGet");
  check_cuda(retain_context(&context_, device_), "cuDevicePrimaryCtxRetain");
  enter_thread();
}

Stream CudaEntries::create_stream() const {
  CUstream stream = nullptr;
  check_cuda(stream_create(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  return stream;
}

void CudaEntries::keep_freed_memory() const {
  CUmemoryPool pool = nullptr;
  check_cuda(get_default_pool(&pool, device_), "cuDeviceGetDefaultMemPool");
  std::uint64_t threshold = UINT64_MAX;
  check_cuda(set_pool_attribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold),
             "cuMemPoolSetAttribute");
}

}  // namespace quarry::bench
