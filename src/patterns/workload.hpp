// SPDX-License-Identifier: Apache-2.0
// The engine of the patterns: a program that is acted out. A pattern says what the program
// allocates, frees and runs; this keeps a clock for each stream, which running work moves on, and
// writes the rows. There is no device: a piece of work takes as long as its operations or its
// bytes need at the rates of DeviceRates, whichever is longer, and the time of a launch; streams
// do not slow each other down. A row's time is that of the stream that it is about, as if the host
// kept just ahead of the GPU (`quarry replay --gpu-lag-us` puts the host further ahead). Nothing
// here depends on the platform. Not thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.hpp"
#include "base/status.hpp"
#include "patterns/rng.hpp"
#include "trace/trace_event.hpp"

namespace quarry::patterns {

using Stream = std::uint32_t;
// A point on a stream's clock, in nanoseconds.
using Moment = std::uint64_t;

// What the program got for a request: a plain value, to be given back by free() once.
struct Tensor {
  std::uint64_t id = 0;
  Bytes bytes = 0;
  Stream stream = 0;
};

struct DeviceRates {
  std::uint64_t tflops = 400;                // 10^12 operations a second
  std::uint64_t memory_gb_per_s = 3300;      // 10^9 bytes a second
  std::uint64_t link_gb_per_s = 300;         // to other devices, likewise
  std::uint64_t load_gb_per_s = 20;          // from the host or a disk, likewise
  static constexpr Moment kLaunchNs = 2500;  // of any piece of work
};

// The product, or the largest number where 64 bits do not hold it: sizes and operation counts that
// absurd knobs ask for stay absurd, and finish() refuses them.
template <class... Factors>
std::uint64_t multiply(std::uint64_t first, Factors... others) {
  std::uint64_t product = first;
  bool is_too_large = false;
  for (const std::uint64_t factor : {std::uint64_t{1}, static_cast<std::uint64_t>(others)...}) {
    is_too_large |= __builtin_mul_overflow(product, factor, &product);
  }
  return is_too_large ? ~std::uint64_t{0} : product;
}

class Workload {
 public:
  // More rows are refused: nobody wants such a trace, and memory holds it until the end.
  static constexpr std::size_t kMostRows = 5'000'000;

  Workload(const DeviceRates& rates, std::uint64_t seed) : rates_(rates), rng_(seed) {}

  Rng& rng() noexcept { return rng_; }

  Tensor allocate(Bytes bytes, Stream stream = 0);
  // The same for what lives until the program ends, such as a preallocated cache.
  Tensor keep(Bytes bytes, Stream stream = 0);
  // keep(), and the time that reading the contents from the host or a disk takes: weights.
  Tensor keep_loaded(Bytes bytes);
  // The time alone.
  void load(Bytes bytes);
  void free(const Tensor& tensor) { free_by(tensor, tensor.stream); }
  // By the thread that drives `caller`, at the time of that stream.
  void free_by(const Tensor& tensor, Stream caller);
  void record_stream(const Tensor& tensor, Stream user) {
    record_stream_by(tensor, user, tensor.stream);
  }
  void record_stream_by(const Tensor& tensor, Stream user, Stream caller);

  // Work on a stream: `operations` of arithmetic over `moved` bytes of memory.
  void run(Stream stream, std::uint64_t operations, Bytes moved);
  // `sent` bytes to or from other devices.
  void send(Stream stream, Bytes sent);
  Moment now(Stream stream) { return clock(stream); }
  // The stream does nothing before then: it waits for an event, or nobody asks it to.
  void wait(Stream stream, Moment until);
  // Rows of `stream` are those of a host thread of their own, one for each number; all streams
  // begin under thread 0. Rows of one thread keep the order in which they were written.
  void assign_thread(Stream stream, std::uint32_t thread);
  // From now on work takes so many times as long: that many threads have work at all times, and
  // the device is divided evenly among them.
  void share_device(std::uint64_t threads) { sharing_threads_ = threads; }

  // A pattern may stop: finish() will fail.
  bool is_full() const noexcept { return rows_.size() >= kMostRows; }
  std::size_t kept_count() const noexcept { return kept_count_; }

  // The rows in the order of time, ids in the order of allocation, checked. Fails where the knobs
  // ask for too much. Once, at the end.
  Result<std::vector<TraceEvent>> finish();

 private:
  struct StreamState {
    Moment clock = 0;
    std::uint32_t thread = 0;
  };

  StreamState& get_state(Stream stream);
  Moment& clock(Stream stream) { return get_state(stream).clock; }
  void advance(Stream stream, Moment nanoseconds);
  // A thread's time never steps back, whichever of its streams it serves.
  void add_row(TraceOp op, const Tensor& tensor, Stream stream, Stream caller);

  DeviceRates rates_;
  std::uint64_t sharing_threads_ = 1;
  Rng rng_;
  std::vector<StreamState> streams_;
  std::vector<Moment> threads_;  // time of each thread's latest row
  std::vector<TraceEvent> rows_;
  std::uint64_t last_id_ = 0;
  std::size_t kept_count_ = 0;
};

}  // namespace quarry::patterns
