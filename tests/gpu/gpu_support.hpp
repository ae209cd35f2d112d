// SPDX-License-Identifier: Apache-2.0
// What the tests need from a real GPU beside Quarry's own driver: streams, work that waits for a
// signal, kernels that fill and check memory. Plain functions of plain values, so that only
// gpu_support.cu needs nvcc, and nvcc needs nothing of Quarry. Device 0. Every function ends the
// program with a message if CUDA fails, but for those that return the driver's code.
#pragma once

#include <cstdint>

namespace quarry::gpu {

using Stream = std::uint64_t;  // a cudaStream_t

// False, with the cause on stderr, if this machine has no usable GPU.
bool is_available();

Stream create_stream(bool is_blocking);
void destroy_stream(Stream stream);
void synchronize(Stream stream);
void synchronize_device();

// A flag that work on the device waits for.
class Signal {
 public:
  Signal();
  ~Signal();
  Signal(const Signal&) = delete;
  Signal& operator=(const Signal&) = delete;
  // The stream goes no further before `raise`, or half a minute: a test that fails must not hang.
  void hold(Stream stream);
  void raise();

 private:
  volatile int* flag_;
};

// Short work; into the graph on a capturing stream.
int submit_work(Stream stream);
int begin_capture(Stream stream, int mode);
// Throws the graph away.
int end_capture(Stream stream);

// A capture that has ended, ready to run; it may be invalid.
class Graph {
 public:
  // Ends the stream's capture.
  explicit Graph(Stream stream);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  // The driver's code of the first step that failed: end of the capture, instantiation. 0: none.
  int code() const { return code_; }
  // Only if valid.
  void launch(Stream stream);

 private:
  int code_ = 0;
  void* executable_ = nullptr;
};

// The driver calls `function(user)` on a thread of its own when the stream gets there.
void launch_host_function(Stream stream, void (*function)(void*), void* user);
// Keeps the stream busy for that long.
void spin(Stream stream, std::uint64_t microseconds);

// Writes `value` mixed with each word's index into the block, on the stream.
void fill(std::uint64_t address, std::uint64_t bytes, std::uint32_t value, Stream stream);
// Counts the words that are not what `fill` wrote, into a counter of the device.
void check(std::uint64_t address, std::uint64_t bytes, std::uint32_t value, Stream stream);
// words[i] = a[i] + b[i] + value, of 32 bits each; `b` 0 counts as words of 0. Into the graph on a
// capturing stream.
void add(std::uint64_t words, std::uint64_t a, std::uint64_t b, std::uint32_t value,
         std::uint64_t count, Stream stream);
// All words become `value`.
void set(std::uint64_t words, std::uint32_t value, std::uint64_t count, Stream stream);
// The sum of the words. Waits for the device.
std::uint64_t sum(std::uint64_t words, std::uint64_t count);
// Orders `after` behind what is on `before` now, as a user does: an event and a wait.
void order(Stream before, Stream after);
// What all checks since the last call counted. Waits for the device.
std::uint64_t take_wrong_words();

}  // namespace quarry::gpu
