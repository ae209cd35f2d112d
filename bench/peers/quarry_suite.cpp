// SPDX-License-Identifier: Apache-2.0
// The suite for Quarry, on the real driver or the simulated one, and for the driver's own
// allocators. "harness" is no allocator: what the workloads themselves cost.
#include <cstdio>
#include <exception>

#include "bench/quarry_peer.hpp"
#include "bench/workloads/suite.hpp"

#if QUARRY_HAVE_CUDA
#include "bench/peers/cuda_peers.hpp"
#endif

namespace quarry::bench {
namespace {

int run_quarry(const SuiteOptions& options) {
  const bool is_locked = options.allocator == "quarry-locked";
  const char* const conf = is_locked ? "thread_cache:False" : "";
  if (options.is_simulated) {
    QuarryPeer<NumberedStreams> peer(conf, QUARRY_DRIVER_SIM);
    return run_suite(peer, options);
  }
#if QUARRY_HAVE_CUDA
  QuarryPeer<CudaStreams> peer(conf, QUARRY_DRIVER_CUDA);
  return run_suite(peer, options);
#else
  std::fputs("built without CUDA: only --driver sim works\n", stderr);
  return 2;
#endif
}

int run(const SuiteOptions& options) {
  if (options.allocator == "harness") {
    NoAllocator peer;
    return run_suite(peer, options);
  }
  if (options.allocator.starts_with("quarry")) return run_quarry(options);
  if (options.is_simulated) {
    std::fputs("the simulated device is for Quarry alone\n", stderr);
    return 2;
  }
#if QUARRY_HAVE_CUDA
  if (options.allocator == "cuda") {
    CudaPeer peer;
    return run_suite(peer, options);
  }
  CudaAsyncPeer peer;
  return run_suite(peer, options);
#else
  return 2;
#endif
}

}  // namespace
}  // namespace quarry::bench

int main(int argc, char** argv) {
  std::vector<std::string> allocators = {"quarry", "quarry-locked", "harness"};
#if QUARRY_HAVE_CUDA
  allocators.insert(allocators.end(), {"cuda", "cuda-async"});
#endif
  try {
    return quarry::bench::run(quarry::bench::parse_suite_options(argc, argv, allocators));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
