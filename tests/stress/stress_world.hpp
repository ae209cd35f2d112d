// SPDX-License-Identifier: Apache-2.0
// One allocator on the simulated device and many threads that use it at once, each block with its
// uses told to the hazard oracle. Blocks wander between threads through a mailbox. Thread-safe but
// for the constructor and `finish`.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "core/allocator.hpp"
#include "core/thread_state.hpp"
#include "sim/sim_driver.hpp"
#include "tests/model/entropy.hpp"
#include "tests/stress/hooked_driver.hpp"

namespace quarry::stress {

inline constexpr int kThreads = 8;

struct Held {
  Address address = 0;
  sim::LifetimeId lifetime{};
};

class World {
 public:
  explicit World(Bytes physical_bytes, int shared_streams = 3, const Config& config = {},
                 int devices = 1);

  SimDriver& sim() { return sim_; }
  HookedDriver& driver() { return driver_; }
  Allocator& allocator() { return *allocator_; }
  StreamRef shared_stream(std::uint64_t number) const {
    return shared_streams_[number % shared_streams_.size()];
  }

  // A block for `stream`, with some work on it; nothing when the allocator had none.
  std::optional<Held> allocate(StreamRef stream, Bytes bytes, Bytes alignment = 512);
  // `stream` works with the block after its owner's work so far.
  void record(const Held& held, StreamRef owner, StreamRef stream);
  void free(const Held& held);
  // `to` continues after all work on `owner`, the only stream that used the block.
  void free_on_stream(const Held& held, StreamRef owner, StreamRef to);
  // From inside a driver callback of this thread.
  void free_in_callback(const Held& held);

  void post(const Held& held);
  std::optional<Held> fetch();

  // Somebody has seen parked blocks: magazines were at work.
  void note_parked() { has_parked_ = true; }
  bool has_parked() const { return has_parked_; }

  // Each thread's body with its number; returns when all have ended.
  static void run_threads(const std::function<void(int)>& body, int count = kThreads);

  // Everything is freed; then nothing is left, and nothing was wrong.
  void finish();

 private:
  SimDriver sim_;
  HookedDriver driver_{sim_};
  std::unique_ptr<Allocator> allocator_;
  std::vector<StreamRef> shared_streams_;
  std::atomic<bool> has_parked_{false};
  std::mutex mailbox_mutex_;
  std::vector<Held> mailbox_;
};

}  // namespace quarry::stress
