// SPDX-License-Identifier: Apache-2.0
// The CUDA driver as the benchmarks use it: device 0, its primary context, streams, and the two
// allocators that the driver itself has. libcuda.so.1 is opened at run time, so that a suite
// program starts on a machine without one.
#pragma once

#include <cuda.h>

#include <string>

#include "bench/workloads/lane.hpp"

namespace quarry::bench {

// Throws std::runtime_error that names the call.
void check_cuda(CUresult result, const char* call);

class CudaEntries {
 public:
  // Opens the driver and retains the primary context. Throws std::runtime_error. Never closed.
  CudaEntries();

  // Makes the primary context the calling thread's current one.
  void enter_thread() const { check_cuda(set_current(context_), "cuCtxSetCurrent"); }
  // A new non-blocking stream.
  Stream create_stream() const;
  // The default pool keeps all memory that is freed.
  void keep_freed_memory() const;

  CUresult (*allocate)(CUdeviceptr*, std::size_t) = nullptr;
  CUresult (*free)(CUdeviceptr) = nullptr;
  CUresult (*allocate_async)(CUdeviceptr*, std::size_t, CUstream) = nullptr;
  CUresult (*free_async)(CUdeviceptr, CUstream) = nullptr;

 private:
  CUresult (*set_current)(CUcontext) = nullptr;
  CUresult (*stream_create)(CUstream*, unsigned) = nullptr;
  CUresult (*get_default_pool)(CUmemoryPool*, CUdevice) = nullptr;
  CUresult (*set_pool_attribute)(CUmemoryPool, CUmemPool_attribute, void*) = nullptr;

  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
};

}  // namespace quarry::bench
