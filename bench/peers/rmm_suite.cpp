// SPDX-License-Identifier: Apache-2.0
// The suite for RMM's pool and arena over cudaMalloc. Both begin with half of the free memory, as
// RMM's guide has it, so that neither grows while it is measured.
#include <rmm/aligned.hpp>
#include <rmm/cuda_device.hpp>
#include <rmm/mr/arena_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include <cstdio>
#include <exception>

#include "bench/peers/cuda_peers.hpp"
#include "bench/workloads/suite.hpp"

namespace quarry::bench {
namespace {

template <class Resource>
class RmmPeer : public CudaStreams {
 public:
  void* malloc(std::size_t bytes, Stream stream) {
    return resource_.allocate(cuda::stream_ref(static_cast<cudaStream_t>(stream)), bytes,
                              rmm::CUDA_ALLOCATION_ALIGNMENT);
  }
  void free(void* ptr, std::size_t bytes, Stream stream) {
    resource_.deallocate(cuda::stream_ref(static_cast<cudaStream_t>(stream)), ptr, bytes,
                         rmm::CUDA_ALLOCATION_ALIGNMENT);
  }

 private:
  Resource resource_{rmm::mr::cuda_memory_resource{}, rmm::percent_of_free_device_memory(50)};
};

template <class Resource>
int run(const SuiteOptions& options) {
  RmmPeer<Resource> peer;
  return run_suite(peer, options);
}

}  // namespace
}  // namespace quarry::bench

int main(int argc, char** argv) {
  using namespace quarry::bench;
  try {
    const SuiteOptions options = parse_suite_options(argc, argv, {"rmm-pool", "rmm-arena"});
    return options.allocator == "rmm-pool" ? run<rmm::mr::pool_memory_resource>(options)
                                           : run<rmm::mr::arena_memory_resource>(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
