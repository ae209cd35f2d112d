// SPDX-License-Identifier: Apache-2.0
// What the program does with the GPU beside allocating: a stream, one kernel, captures, launches
// and copies. The CUDA driver is opened at run time, and the kernel is PTX text, so that neither
// nvcc nor a library of CUDA is needed to build it.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <vector>

class Gpu {
 public:
  // nullptr where there is no driver or no GPU. Throws std::runtime_error, as all below.
  static std::unique_ptr<Gpu> open();
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  CUstream stream() const { return stream_; }
  // output[i] = 3 * input[i] + 1 for `count` words of 32 bits, on the stream.
  void launch_step(void* output, const void* input, std::size_t count);

  void begin_capture();
  CUgraphExec end_capture();
  void launch(CUgraphExec graph);
  void destroy(CUgraphExec graph) noexcept;

  void synchronize();
  // Both wait for the stream.
  void copy_to_device(void* to, const std::vector<std::uint32_t>& words);
  std::vector<std::uint32_t> copy_to_host(const void* from, std::size_t count);

 private:
  struct Entries;

  explicit Gpu(std::unique_ptr<Entries> entries);
  void start();

  std::unique_ptr<Entries> cuda_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;
  CUfunction step_ = nullptr;
  CUstream stream_ = nullptr;
};
