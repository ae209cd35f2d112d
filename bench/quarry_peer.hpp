// SPDX-License-Identifier: Apache-2.0
// Quarry as a program uses it: the C API of the shared library.
#pragma once

#include <quarry/quarry.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "bench/workloads/lane.hpp"

namespace quarry::bench {

// `Streams` names the streams: CudaStreams of bench/peers, or NumberedStreams.
template <class Streams>
class QuarryPeer : public Streams {
 public:
  QuarryPeer(const char* conf, quarry_driver_kind driver) {
    quarry_init_options options{};
    options.struct_size = sizeof(options);
    options.conf = conf;
    options.driver = driver;
    if (quarry_init(&options) != QUARRY_OK) throw std::runtime_error(quarry_get_last_error());
  }

  void* malloc(std::size_t bytes, Stream stream) {
    void* ptr = nullptr;
    if (quarry_malloc(&ptr, bytes, 0, stream) != QUARRY_OK) [[unlikely]]
      throw std::runtime_error(quarry_get_last_error());
    return ptr;
  }
  void free(void* ptr, std::size_t, Stream) { quarry_free(ptr); }
};

// Handles for the simulated device, which no workload here makes it look at.
class NumberedStreams {
 public:
  Stream stream(int number) const {
    return reinterpret_cast<Stream>(static_cast<std::uintptr_t>(number + 1) << 12);
  }
  void enter_thread() const {}
};

// The cost of the workloads and of measuring them: addresses that nothing owns.
class NoAllocator : public NumberedStreams {
 public:
  void* malloc(std::size_t, Stream) { return hide(this); }
  void free(void* ptr, std::size_t, Stream) { hide(ptr); }

 private:
  // A call that the compiler cannot see through, as every allocator's is.
  [[gnu::noinline]] static void* hide(void* ptr) {
    asm volatile("" : "+r"(ptr) : : "memory");
    return ptr;
  }
};

}  // namespace quarry::bench
