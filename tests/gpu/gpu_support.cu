// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/gpu_support.hpp"

#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <vector>

namespace quarry::gpu {
namespace {

void require(cudaError_t code, const char* what) {
  if (code == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(code));
  std::exit(1);
}

cudaStream_t to_cuda(Stream stream) {
  return reinterpret_cast<cudaStream_t>(stream);
}

// The runtime's own numbers are the driver's for all codes that captures give.
int to_code(cudaError_t code) {
  static_cast<void>(cudaGetLastError());
  return static_cast<int>(code);
}

__device__ std::uint64_t read_clock_ns() {
  std::uint64_t ns = 0;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns));
  return ns;
}

constexpr std::uint64_t kLongestHoldNs = 30'000'000'000;

__global__ void wait_for(volatile int* flag) {
  const std::uint64_t end = read_clock_ns() + kLongestHoldNs;
  while (*flag == 0 && read_clock_ns() < end) {
  }
}

__global__ void wait_until_passed(std::uint64_t ns) {
  const std::uint64_t end = read_clock_ns() + ns;
  while (read_clock_ns() < end) {
  }
}

__device__ unsigned long long wrong_words;

__device__ std::uint32_t make_word(std::uint32_t value, std::uint64_t index) {
  return value ^ static_cast<std::uint32_t>(index * 2654435761u);
}

__global__ void fill_words(std::uint32_t* words, std::uint64_t count, std::uint32_t value) {
  const std::uint64_t stride = static_cast<std::uint64_t>(gridDim.x) * blockDim.x;
  for (std::uint64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
    words[i] = make_word(value, i);
  }
}

__global__ void check_words(const std::uint32_t* words, std::uint64_t count, std::uint32_t value) {
  const std::uint64_t stride = static_cast<std::uint64_t>(gridDim.x) * blockDim.x;
  unsigned long long wrong = 0;
  for (std::uint64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
    wrong += words[i] != make_word(value, i) ? 1 : 0;
  }
  if (wrong != 0) atomicAdd(&wrong_words, wrong);
}

__global__ void add_words(std::uint32_t* words, const std::uint32_t* a, const std::uint32_t* b,
                          std::uint32_t value, std::uint64_t count) {
  const std::uint64_t stride = static_cast<std::uint64_t>(gridDim.x) * blockDim.x;
  for (std::uint64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
    words[i] = a[i] + (b != nullptr ? b[i] : 0) + value;
  }
}

__global__ void set_words(std::uint32_t* words, std::uint32_t value, std::uint64_t count) {
  const std::uint64_t stride = static_cast<std::uint64_t>(gridDim.x) * blockDim.x;
  for (std::uint64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
    words[i] = value;
  }
}

__global__ void do_nothing() {}

constexpr int kThreads = 256;

unsigned count_blocks(std::uint64_t words) {
  const std::uint64_t blocks = (words + kThreads * 8 - 1) / (kThreads * 8);
  return static_cast<unsigned>(blocks < 1 ? 1 : blocks > 264 ? 264 : blocks);
}

}  // namespace

bool is_available() {
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code == cudaSuccess && count > 0) return true;
  std::fprintf(stderr, "no usable GPU: %s\n", cudaGetErrorString(code));
  return false;
}

Stream create_stream(bool is_blocking) {
  cudaStream_t stream = nullptr;
  require(
      cudaStreamCreateWithFlags(&stream, is_blocking ? cudaStreamDefault : cudaStreamNonBlocking),
      "create stream");
  return reinterpret_cast<std::uintptr_t>(stream);
}

void destroy_stream(Stream stream) {
  require(cudaStreamDestroy(to_cuda(stream)), "destroy");
}
void synchronize(Stream stream) {
  require(cudaStreamSynchronize(to_cuda(stream)), "sync");
}
void synchronize_device() {
  require(cudaDeviceSynchronize(), "synchronize");
}

Signal::Signal() {
  void* memory = nullptr;
  require(cudaHostAlloc(&memory, sizeof(int), cudaHostAllocMapped), "host memory");
  flag_ = static_cast<volatile int*>(memory);
  *flag_ = 0;
}

Signal::~Signal() {
  static_cast<void>(cudaFreeHost(const_cast<int*>(flag_)));
}

void Signal::hold(Stream stream) {
  *flag_ = 0;
  wait_for<<<1, 1, 0, to_cuda(stream)>>>(flag_);
  require(cudaGetLastError(), "hold");
}

void Signal::raise() {
  *flag_ = 1;
}

int submit_work(Stream stream) {
  do_nothing<<<1, 1, 0, to_cuda(stream)>>>();
  return to_code(cudaGetLastError());
}

int begin_capture(Stream stream, int mode) {
  return to_code(
      cudaStreamBeginCapture(to_cuda(stream), static_cast<cudaStreamCaptureMode>(mode)));
}

int end_capture(Stream stream) {
  cudaGraph_t graph = nullptr;
  const int code = to_code(cudaStreamEndCapture(to_cuda(stream), &graph));
  if (graph != nullptr) static_cast<void>(cudaGraphDestroy(graph));
  return code;
}

Graph::Graph(Stream stream) {
  cudaGraph_t graph = nullptr;
  code_ = to_code(cudaStreamEndCapture(to_cuda(stream), &graph));
  if (code_ == 0) {
    cudaGraphExec_t executable = nullptr;
    code_ = to_code(cudaGraphInstantiate(&executable, graph, 0));
    executable_ = executable;
  }
  if (graph != nullptr) static_cast<void>(cudaGraphDestroy(graph));
}

Graph::~Graph() {
  if (executable_ == nullptr) return;
  static_cast<void>(cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(executable_)));
}

void Graph::launch(Stream stream) {
  require(cudaGraphLaunch(static_cast<cudaGraphExec_t>(executable_), to_cuda(stream)), "launch");
}

void launch_host_function(Stream stream, void (*function)(void*), void* user) {
  require(cudaLaunchHostFunc(to_cuda(stream), function, user), "launch host function");
}

void spin(Stream stream, std::uint64_t microseconds) {
  wait_until_passed<<<1, 1, 0, to_cuda(stream)>>>(microseconds * 1000);
  require(cudaGetLastError(), "spin");
}

void fill(std::uint64_t address, std::uint64_t bytes, std::uint32_t value, Stream stream) {
  const std::uint64_t words = bytes / 4;
  fill_words<<<count_blocks(words), kThreads, 0, to_cuda(stream)>>>(
      reinterpret_cast<std::uint32_t*>(address), words, value);
  require(cudaGetLastError(), "fill");
}

void check(std::uint64_t address, std::uint64_t bytes, std::uint32_t value, Stream stream) {
  const std::uint64_t words = bytes / 4;
  check_words<<<count_blocks(words), kThreads, 0, to_cuda(stream)>>>(
      reinterpret_cast<const std::uint32_t*>(address), words, value);
  require(cudaGetLastError(), "check");
}

void add(std::uint64_t words, std::uint64_t a, std::uint64_t b, std::uint32_t value,
         std::uint64_t count, Stream stream) {
  add_words<<<count_blocks(count), kThreads, 0, to_cuda(stream)>>>(
      reinterpret_cast<std::uint32_t*>(words), reinterpret_cast<const std::uint32_t*>(a),
      reinterpret_cast<const std::uint32_t*>(b), value, count);
  require(cudaGetLastError(), "add");
}

void set(std::uint64_t words, std::uint32_t value, std::uint64_t count, Stream stream) {
  set_words<<<count_blocks(count), kThreads, 0, to_cuda(stream)>>>(
      reinterpret_cast<std::uint32_t*>(words), value, count);
  require(cudaGetLastError(), "set");
}

std::uint64_t sum(std::uint64_t words, std::uint64_t count) {
  synchronize_device();
  std::vector<std::uint32_t> read(count);
  require(cudaMemcpy(read.data(), reinterpret_cast<const void*>(words), count * sizeof(read[0]),
                     cudaMemcpyDeviceToHost),
          "read words");
  return std::accumulate(read.begin(), read.end(), std::uint64_t{0});
}

void order(Stream before, Stream after) {
  cudaEvent_t event = nullptr;
  require(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "event");
  require(cudaEventRecord(event, to_cuda(before)), "record");
  require(cudaStreamWaitEvent(to_cuda(after), event, 0), "wait");
  require(cudaEventDestroy(event), "destroy event");
}

std::uint64_t take_wrong_words() {
  synchronize_device();
  unsigned long long count = 0;
  require(cudaMemcpyFromSymbol(&count, wrong_words, sizeof count), "read counter");
  const unsigned long long none = 0;
  require(cudaMemcpyToSymbol(wrong_words, &none, sizeof none), "reset counter");
  return count;
}

}  // namespace quarry::gpu
