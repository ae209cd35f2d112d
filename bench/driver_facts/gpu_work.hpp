// SPDX-License-Identifier: Apache-2.0
// Work for the device that the facts are measured around: a kernel that waits for the host, one
// that takes a set time, and those that measure bandwidth. Only gpu_work.cu needs nvcc. Functions
// return the runtime's code, 0 for success.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace quarry::facts {

// A flag that work on the device waits for; raised at the latest when it is destroyed.
class Signal {
 public:
  Signal();
  ~Signal();
  Signal(const Signal&) = delete;
  Signal& operator=(const Signal&) = delete;
  void lower() { *flag_ = 0; }
  void raise() { *flag_ = 1; }
  // The stream goes no further while the flag is down. May be captured.
  int hold(CUstream stream) const;

 private:
  volatile int* flag_ = nullptr;
};

int submit_nothing(CUstream stream);
// Takes `ns` of the device's time, on one thread.
int submit_spin(CUstream stream, std::uint64_t ns);
// Copies with kernels; whole 16 bytes.
int submit_copy(CUdeviceptr to, CUdeviceptr from, std::uint64_t bytes, CUstream stream);
// Loads `loads` words from random places of the memory; `sink` takes one word, sometimes.
int submit_gather(CUdeviceptr from, std::uint64_t bytes, std::uint64_t loads, CUdeviceptr sink,
                  CUstream stream);
// Loads every kernel, so that no capture and no measurement meets a first launch.
int load_work_kernels();

}  // namespace quarry::facts
