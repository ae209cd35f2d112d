// SPDX-License-Identifier: Apache-2.0
// What the tests need from a real GPU beside Quarry's own driver: streams, work that waits for a
// signal, kernels that fill and check memory. Plain functions, so that only gpu_support.cu needs
// nvcc. Device 0. Every function ends the program with a message if CUDA fails.
#pragma once

#include <cstdint>

#include "driver/driver_types.hpp"

namespace quarry::gpu {

// False, with the cause on stderr, if this machine has no usable GPU.
bool is_available();

StreamRef create_stream(bool is_blocking);
void destroy_stream(StreamRef stream);
void synchronize(StreamRef stream);
void synchronize_device();

// A flag that work on the device waits for.
class Signal {
 public:
  Signal();
  ~Signal();
  Signal(const Signal&) = delete;
  Signal& operator=(const Signal&) = delete;
  // The stream goes no further before `raise`.
  void hold(StreamRef stream);
  void raise();

 private:
  volatile int* flag_;
};

// Short work; into the graph on a capturing stream.
DriverCode submit_work(StreamRef stream);
DriverCode begin_capture(StreamRef stream, CaptureMode mode);
// Throws the graph away.
DriverCode end_capture(StreamRef stream);

// Writes `value` mixed with each word's index into the block, on the stream.
void fill(Address address, Bytes bytes, std::uint32_t value, StreamRef stream);
// Counts the words that are not what `fill` wrote, into a counter of the device.
void check(Address address, Bytes bytes, std::uint32_t value, StreamRef stream);
// Orders `after` behind what is on `before` now, as a user does: an event and a wait.
void order(StreamRef before, StreamRef after);
// What all checks so far counted. Waits for the device.
std::uint64_t count_wrong_words();

}  // namespace quarry::gpu
