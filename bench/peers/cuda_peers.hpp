// SPDX-License-Identifier: Apache-2.0
// Peers of the CUDA driver: cudaMalloc and cudaMallocAsync, called by their driver API names. Also
// what every peer on a GPU has in common: the context, and a stream a number.
#pragma once

#include <array>
#include <cstddef>

#include "bench/peers/cuda_entries.hpp"

namespace quarry::bench {

class CudaStreams {
 public:
  CudaStreams() {
    for (Stream& stream : streams_)
      stream = cuda_.create_stream();
  }
  Stream stream(int number) const { return streams_.at(static_cast<std::size_t>(number)); }
  void enter_thread() const { cuda_.enter_thread(); }
  const CudaEntries& cuda() const { return cuda_; }

 private:
  CudaEntries cuda_;
  std::array<Stream, 16> streams_{};
};

class CudaPeer : public CudaStreams {
 public:
  void* malloc(std::size_t bytes, Stream) {
    CUdeviceptr address = 0;
    check_cuda(cuda().allocate(&address, bytes), "cuMemAlloc");
    return reinterpret_cast<void*>(address);
  }
  void free(void* ptr, std::size_t, Stream) {
    check_cuda(cuda().free(reinterpret_cast<CUdeviceptr>(ptr)), "cuMemFree");
  }
};

class CudaAsyncPeer : public CudaStreams {
 public:
  CudaAsyncPeer() { cuda().keep_freed_memory(); }
  void* malloc(std::size_t bytes, Stream stream) {
    CUdeviceptr address = 0;
    check_cuda(cuda().allocate_async(&address, bytes, static_cast<CUstream>(stream)),
               "cuMemAllocAsync");
    return reinterpret_cast<void*>(address);
  }
  void free(void* ptr, std::size_t, Stream stream) {
    check_cuda(
        cuda().free_async(reinterpret_cast<CUdeviceptr>(ptr), static_cast<CUstream>(stream)),
        "cuMemFreeAsync");
  }
};

}  // namespace quarry::bench
