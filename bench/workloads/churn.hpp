// SPDX-License-Identifier: Apache-2.0
// Workloads of random sizes, and memory full of holes. A step is one free and one malloc; what is
// held is freed with the workload.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bench/workloads/lane.hpp"
#include "bench/workloads/random_sizes.hpp"

namespace quarry::bench {

// A constant number of live blocks: each step replaces one of them.
template <class Lane>
class Churn {
 public:
  Churn(Lane lane, std::size_t live, SizeLaw law, std::size_t max_bytes, std::uint64_t seed)
      : lane_(lane), sizes_(law, max_bytes), random_(seed), held_(lane) {
    held_.blocks.reserve(live);
    while (held_.blocks.size() < live)
      held_.blocks.push_back(lane_.malloc(sizes_.draw(random_)));
  }

  void step() {
    Block& block = held_.blocks[random_.below(held_.blocks.size())];
    lane_.free(block);
    block = {};
    block = lane_.malloc(sizes_.draw(random_));
  }

 private:
  Lane lane_;
  RandomSizes sizes_;
  FastRandom random_;
  Held<Lane> held_;
};

// Free blocks of up to 64 KiB that cannot grow together, since a block of 512 bytes that is held
// stands between them.
template <class Lane>
class HoleField {
 public:
  HoleField(Lane lane, std::size_t holes) : keepers_(lane) {
    const RandomSizes sizes(SizeLaw::kUniform, kMaxHole);
    FastRandom random(1);
    Held<Lane> opened(lane);
    opened.blocks.reserve(holes);
    keepers_.blocks.reserve(holes);
    for (std::size_t i = 0; i < holes; ++i) {
      opened.blocks.push_back(lane.malloc(sizes.draw(random)));
      keepers_.blocks.push_back(lane.malloc(512));
    }
  }
  static constexpr std::size_t kMaxHole = 64 << 10;

  std::size_t size() const { return keepers_.blocks.size(); }

 private:
  Held<Lane> keepers_;
};

}  // namespace quarry::bench
