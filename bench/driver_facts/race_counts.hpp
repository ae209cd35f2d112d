// SPDX-License-Identifier: Apache-2.0
// What a process counts while its threads provoke the driver, in a file that it maps: the counts
// outlive the process, which may not live to tell. No CUDA in it.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "bench/driver_facts/child_process.hpp"

namespace quarry::facts {

struct RaceCounts {
  std::uint64_t captures = 0;    // begun and ended
  std::uint64_t lost = 0;        // of these, without a graph
  std::uint64_t answers = 0;     // to the threads that asked
  std::uint64_t in_capture = 0;  // of these, that the stream captures
  std::uint64_t errors = 0;      // of these, an error of the driver
  std::uint64_t last_error = 0;
};

// The counts of this process, in the file; any thread may add. Throws std::runtime_error if the
// file cannot be mapped.
class SharedRaceCounts {
 public:
  // As RaceCounts, in its order.
  struct Counters {
    std::atomic<std::uint64_t> captures{0};
    std::atomic<std::uint64_t> lost{0};
    std::atomic<std::uint64_t> answers{0};
    std::atomic<std::uint64_t> in_capture{0};
    std::atomic<std::uint64_t> errors{0};
    std::atomic<std::uint64_t> last_error{0};
  };

  explicit SharedRaceCounts(const std::string& path);
  ~SharedRaceCounts();
  SharedRaceCounts(const SharedRaceCounts&) = delete;
  SharedRaceCounts& operator=(const SharedRaceCounts&) = delete;
  Counters& get() const { return *counters_; }

 private:
  Counters* counters_ = nullptr;
};

// Of the file's content; zeros if no process mapped it.
RaceCounts parse_race_counts(const std::string& content);
// What became of the process and of what it did.
std::string describe_race(const ChildResult& child, const RaceCounts& counts);
// It did no harm, and was seen to ask in captures.
bool is_harmless(const ChildResult& child, const RaceCounts& counts);

}  // namespace quarry::facts
