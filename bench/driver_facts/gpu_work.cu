// SPDX-License-Identifier: Apache-2.0
#include "bench/driver_facts/gpu_work.hpp"

#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

namespace quarry::facts {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kBlocks = 1056;  // eight for each processor of an H200

__global__ void wait_for_flag(volatile int* flag) {
  while (*flag == 0) {
  }
}

__device__ std::uint64_t get_device_ns() {
  std::uint64_t ns;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns));
  return ns;
}

__global__ void spin_for(std::uint64_t ns) {
  const std::uint64_t start = get_device_ns();
  while (get_device_ns() - start < ns) {
  }
}

__global__ void do_nothing() {}

__global__ void copy_vectors(uint4* to, const uint4* from, std::uint64_t count) {
  const std::uint64_t stride = static_cast<std::uint64_t>(gridDim.x) * kThreads;
  for (std::uint64_t i = blockIdx.x * kThreads + threadIdx.x; i < count; i += stride)
    to[i] = from[i];
}

__global__ void gather_words(const std::uint32_t* from, std::uint64_t words,
                             std::uint64_t loads_per_thread, std::uint32_t* sink) {
  std::uint64_t state = (blockIdx.x * kThreads + threadIdx.x) * 0x9e3779b97f4a7c15ull + 1;
  std::uint32_t sum = 0;
#pragma unroll 8
  for (std::uint64_t i = 0; i < loads_per_thread; ++i) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    sum += from[(state >> 20) % words];
  }
  if (sum == 0x12345678u) *sink = sum;
}

}  // namespace

Signal::Signal() {
  void* memory = nullptr;
  if (cudaHostAlloc(&memory, sizeof(int), cudaHostAllocMapped) != cudaSuccess) {
    std::fprintf(stderr, "no host memory for a signal\n");
    std::exit(1);
  }
  flag_ = static_cast<volatile int*>(memory);
  *flag_ = 0;
}

Signal::~Signal() {
  raise();
  // Freeing waits for the kernels that still look at the flag.
  static_cast<void>(cudaFreeHost(const_cast<int*>(flag_)));
}

int Signal::hold(CUstream stream) const {
  wait_for_flag<<<1, 1, 0, stream>>>(flag_);
  return cudaGetLastError();
}

int submit_nothing(CUstream stream) {
  do_nothing<<<1, 1, 0, stream>>>();
  return cudaGetLastError();
}

int submit_spin(CUstream stream, std::uint64_t ns) {
  spin_for<<<1, 1, 0, stream>>>(ns);
  return cudaGetLastError();
}

int submit_copy(CUdeviceptr to, CUdeviceptr from, std::uint64_t bytes, CUstream stream) {
  copy_vectors<<<kBlocks, kThreads, 0, stream>>>(reinterpret_cast<uint4*>(to),
                                                 reinterpret_cast<const uint4*>(from), bytes / 16);
  return cudaGetLastError();
}

int submit_gather(CUdeviceptr from, std::uint64_t bytes, std::uint64_t loads, CUdeviceptr sink,
                  CUstream stream) {
  gather_words<<<kBlocks, kThreads, 0, stream>>>(
      reinterpret_cast<const std::uint32_t*>(from), bytes / 4,
      loads / (std::uint64_t{kBlocks} * kThreads), reinterpret_cast<std::uint32_t*>(sink));
  return cudaGetLastError();
}

int load_work_kernels() {
  int code = 0;
  for (const void* kernel :
       {reinterpret_cast<const void*>(wait_for_flag), reinterpret_cast<const void*>(spin_for),
        reinterpret_cast<const void*>(do_nothing), reinterpret_cast<const void*>(copy_vectors),
        reinterpret_cast<const void*>(gather_words)}) {
    cudaFuncAttributes attributes{};
    if (code == 0) code = cudaFuncGetAttributes(&attributes, kernel);
  }
  return code;
}

}  // namespace quarry::facts
