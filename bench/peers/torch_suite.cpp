// SPDX-License-Identifier: Apache-2.0
// The suite for PyTorch's caching allocator, through its C++ interface and with its defaults
// (PYTORCH_CUDA_ALLOC_CONF as the environment has it).
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>

#include <cstdio>
#include <exception>

#include "bench/peers/cuda_peers.hpp"
#include "bench/workloads/suite.hpp"

namespace quarry::bench {
namespace {

class TorchPeer : public CudaStreams {
 public:
  TorchPeer() { c10::cuda::CUDACachingAllocator::init(1); }
  void enter_thread() const {
    CudaStreams::enter_thread();
    c10::cuda::set_device(0);
  }
  void* malloc(std::size_t bytes, Stream stream) {
    return c10::cuda::CUDACachingAllocator::raw_alloc_with_stream(
        bytes, static_cast<cudaStream_t>(stream));
  }
  void free(void* ptr, std::size_t, Stream) { c10::cuda::CUDACachingAllocator::raw_delete(ptr); }
};

}  // namespace
}  // namespace quarry::bench

int main(int argc, char** argv) {
  using namespace quarry::bench;
  try {
    const SuiteOptions options = parse_suite_options(argc, argv, {"torch"});
    TorchPeer peer;
    return run_suite(peer, options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
