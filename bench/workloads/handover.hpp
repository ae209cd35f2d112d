// SPDX-License-Identifier: Apache-2.0
// One thread allocates, another frees: blocks go through a ring without a lock. A step of the
// producer is a malloc, one of the consumer a free; both take the same number of steps.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <thread>

#include "bench/workloads/lane.hpp"

namespace quarry::bench {

// Of one producer and one consumer.
class BlockRing {
 public:
  void push(Block block) {
    const std::size_t place = tail_.load(std::memory_order_relaxed);
    wait_until([&] { return place - head_.load(std::memory_order_acquire) < slots_.size(); });
    slots_[place % slots_.size()] = block;
    tail_.store(place + 1, std::memory_order_release);
  }
  Block pop() {
    const std::size_t place = head_.load(std::memory_order_relaxed);
    wait_until([&] { return place != tail_.load(std::memory_order_acquire); });
    const Block block = slots_[place % slots_.size()];
    head_.store(place + 1, std::memory_order_release);
    return block;
  }

 private:
  // The other side may have lost its processor: spin for a moment, then let it run.
  template <class Condition>
  static void wait_until(Condition is_met) {
    for (int spins = 0; !is_met(); ++spins) {
      if (spins >= 1000) std::this_thread::yield();
    }
  }

  std::array<Block, 256> slots_{};
  alignas(64) std::atomic<std::size_t> head_{0};
  alignas(64) std::atomic<std::size_t> tail_{0};
};

template <class Lane>
class Handover {
 public:
  enum class Side { kProducer, kConsumer };
  Handover(Lane lane, BlockRing& ring, Side side, std::size_t bytes)
      : lane_(lane), ring_(ring), side_(side), bytes_(bytes) {}

  // A producer that is refused memory hands empty blocks over, so that nobody waits for ever.
  void step() {
    if (side_ == Side::kConsumer) {
      const Block block = ring_.pop();
      if (block.ptr != nullptr) lane_.free(block);
      return;
    }
    ring_.push(is_refused_ ? Block{} : allocate());
  }

  bool is_refused() const { return is_refused_; }

 private:
  Block allocate() {
    try {
      return lane_.malloc(bytes_);
    } catch (...) {
      is_refused_ = true;
      return {};
    }
  }

  Lane lane_;
  BlockRing& ring_;
  Side side_;
  std::size_t bytes_;
  bool is_refused_ = false;
};

}  // namespace quarry::bench
