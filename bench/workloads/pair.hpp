// SPDX-License-Identifier: Apache-2.0
// Workloads of repeated sizes, which a cache ought to serve at once. A step is one malloc and one
// free. Whatever is held is freed with the workload.
#pragma once

#include <array>
#include <cstddef>

#include "bench/workloads/lane.hpp"

namespace quarry::bench {

// The same size again and again.
template <class Lane>
class EqualPair {
 public:
  EqualPair(Lane lane, std::size_t bytes) : lane_(lane), bytes_(bytes) {}
  void step() { lane_.free(lane_.malloc(bytes_)); }

 private:
  Lane lane_;
  std::size_t bytes_;
};

// The activations of a transformer layer of a small model: each is allocated, and freed three
// later.
template <class Lane>
class LayerSizes {
 public:
  explicit LayerSizes(Lane lane) : lane_(lane), held_(lane) {
    held_.blocks.reserve(kHeld);
    while (held_.blocks.size() < kHeld)
      held_.blocks.push_back(lane_.malloc(next_size()));
  }

  void step() {
    Block& block = held_.blocks[oldest_];
    oldest_ = oldest_ + 1 == kHeld ? 0 : oldest_ + 1;
    lane_.free(block);
    block = {};
    block = lane_.malloc(next_size());
  }

 private:
  static constexpr std::size_t kHeld = 3;
  static constexpr std::array<std::size_t, 24> kSizes = {
      3072, 9216,  12288, 393216, 786432, 4096,   8192,   16384,  98304,  196608, 512,   1024,
      2048, 24576, 49152, 65536,  131072, 262144, 524288, 655360, 327680, 163840, 81920, 40960};

  std::size_t next_size() {
    const std::size_t size = kSizes[next_];
    next_ = next_ + 1 == kSizes.size() ? 0 : next_ + 1;
    return size;
  }

  Lane lane_;
  Held<Lane> held_;
  std::size_t oldest_ = 0;
  std::size_t next_ = 0;
};

}  // namespace quarry::bench
