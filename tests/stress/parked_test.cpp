// SPDX-License-Identifier: Apache-2.0
// Magazines of many threads at once: what is parked while others empty the cache, change the
// settings, climb the last rung, end, fork, or take the allocator down. For ThreadSanitizer, and
// for what must be left afterwards: nothing. Blocks have few sizes, so that most of them park.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/stress/stress_world.hpp"

namespace quarry::stress {
namespace {

constexpr Bytes kPopular[] = {512, 4096, 40'000, 700'000, 16_MiB};
constexpr Bytes kWhole = 16_MiB;  // a segment of its own

Bytes get_parked(World& world) {
  return static_cast<Bytes>(world.allocator().get_stats(0).value().parked_bytes);
}

// Makes the size one that this thread parks; leaves one block parked, if nobody interferes.
void park(World& world, StreamRef stream, Bytes bytes) {
  for (int i = 0; i < 3; ++i) {
    if (const auto held = world.allocate(stream, bytes)) world.free(*held);
  }
}

// Allocates, frees, hands to others and takes from others.
void churn(World& world, int number, int rounds) {
  model::Entropy entropy(static_cast<std::uint64_t>(number) + 1);
  std::vector<Held> held;
  for (int i = 0; i < rounds; ++i) {
    const std::uint64_t kind = entropy.below(10);
    if (kind < 5 && held.size() < 12) {
      const StreamRef stream = world.shared_stream(entropy.below(3));
      const Bytes bytes = kPopular[entropy.below(entropy.chance(10) ? 5 : 4)];
      if (const auto block = world.allocate(stream, bytes)) held.push_back(*block);
    } else if (kind < 8 && !held.empty()) {
      const Held block = held.back();
      held.pop_back();
      entropy.chance(30) ? world.post(block) : world.free(block);
    } else if (const auto block = world.fetch()) {
      world.free(*block);
    }
  }
  for (const Held& block : held)
    world.free(block);
}

TEST(ParkedTest, BlocksOfThreadsThatEndWithoutAWordServeTheirSuccessors) {
  World world(1_GiB);
  for (int generation = 0; generation < 40; ++generation) {
    World::run_threads([&world](int number) {
      for (const Bytes bytes : kPopular)
        park(world, world.shared_stream(static_cast<std::uint64_t>(number)), bytes);
    });
    EXPECT_GT(get_parked(world), 0u);
  }
  // What one generation holds: at most a block of each size a thread, in segments that small ones
  // share, on three streams.
  const DeviceStats stats = world.allocator().get_stats(0).value();
  EXPECT_LE(stats.reserved_bytes.all.peak,
            static_cast<std::int64_t>(kThreads * kWhole + 3 * kThreads * 2_MiB));
  world.finish();
}

// One turn of the thread that interferes with all others. Returns what it saw parked.
Bytes interfere(World& world, model::Entropy& entropy) {
  Allocator& allocator = world.allocator();
  const std::uint64_t kind = entropy.below(8);
  if (kind < 2) {
    Config config;
    config.thread_cache = entropy.chance(60);
    config.roundup_power2_divisions.fill(entropy.chance(20) ? 4 : 0);
    allocator.configure(config);
  } else if (kind < 3) {
    EXPECT_TRUE(allocator.empty_cache(0).is_ok());
  } else if (kind < 4) {
    allocator.validate();
  } else {
    return get_parked(world);
  }
  return 0;
}

TEST(ParkedTest, TrafficWhileOthersSwitchEmptyValidateAndReadLeavesNothingBehind) {
  World world(1_GiB);
  std::atomic<bool> is_over{false};
  World::run_threads(
      [&](int number) {
        if (number < kThreads) {
          while (!is_over)
            churn(world, number, 100);
          return;
        }
        model::Entropy entropy(77);
        Bytes most_parked = 0;
        for (int i = 0; i < 400 || most_parked == 0; ++i) {
          most_parked = std::max(most_parked, interfere(world, entropy));
          std::this_thread::yield();
        }
        is_over = true;
      },
      kThreads + 1);
  world.finish();
}

// Streams end, and their handles come back, while the blocks that threads parked for them are
// taken out.
TEST(ParkedTest, StreamsThatEndWhileTheirBlocksAreParkedLeaveNothingBehind) {
  World world(256_MiB);
  World::run_threads([&world](int) {
    for (int round = 0; round < 150; ++round) {
      const StreamRef stream = world.sim().create_stream(0, sim::StreamKind::kNonBlocking);
      park(world, stream, 4096);
      park(world, stream, 700'000);
      EXPECT_TRUE(world.allocator().retire_stream(stream).is_ok());
      EXPECT_EQ(world.sim().destroy_stream(stream), DriverCode::kSuccess);
    }
  });
  EXPECT_EQ(get_parked(world), 0u);
  world.finish();
}

// In the middle of the last rung, when the device's mutex is free, another thread parks what is
// needed, and ends.
TEST(ParkedTest, WhatIsParkedDuringTheLastRungIsNotMissed) {
  World world(2 * kWhole);
  const StreamRef other = world.shared_stream(0);
  const StreamRef own = world.shared_stream(1);
  const Held first = world.allocate(other, kWhole).value();
  const Held pending = world.allocate(other, kWhole).value();
  world.record(pending, other, world.shared_stream(2));
  world.free(pending);
  Bytes parked = 0;
  world.driver().set_hook([&](DriverEntry entry) {
    if (entry != DriverEntry::kSynchronizeEvent) return;
    world.driver().set_hook(nullptr);
    std::thread([&] {
      world.free(first);
      park(world, other, kWhole);
      parked = get_parked(world);
    }).join();
  });
  const auto mine = world.allocate(own, 2 * kWhole);
  EXPECT_EQ(parked, kWhole) << "the race did not happen";
  ASSERT_TRUE(mine.has_value()) << "a false out-of-memory";
  world.free(*mine);
  world.finish();
}

// Three threads that park whole segments, and room for all but one block of what they hold: who
// asks must get what lies in the others' magazines.
TEST(ParkedTest, DemandsThatFitAreServedFromTheMagazinesOfOthers) {
  constexpr int kParkers = 3;
  constexpr std::size_t kShare = 4;
  World world(kParkers * kShare * kWhole);
  std::atomic<int> refused{0};
  World::run_threads(
      [&](int number) {
        const StreamRef stream = world.shared_stream(static_cast<std::uint64_t>(number));
        for (int round = 0; round < 1500; ++round) {
          std::vector<Held> held;
          for (std::size_t i = 0; i < kShare; ++i) {
            const auto block = world.allocate(stream, kWhole);
            refused += block ? 0 : 1;
            if (block) held.push_back(*block);
          }
          for (const Held& block : held)
            world.free(block);
        }
      },
      kParkers);
  EXPECT_EQ(refused.load(), 0);
  world.finish();
}

// Room on the device that threads agree about: who has it may ask for that many blocks.
class Room {
 public:
  explicit Room(std::size_t blocks) : blocks_(blocks) {}
  void take(std::size_t blocks) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return blocks_ >= blocks; });
    blocks_ -= blocks;
  }
  void give_back(std::size_t blocks) {
    {
      std::lock_guard lock(mutex_);
      blocks_ += blocks;
    }
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t blocks_;
};

// Two blocks of one stream, which then park, and one of another, whose miss puts the two out of
// their magazine. On their way back they are still what others need, and what a validation finds.
void put_out_of_magazines(bool validates) {
  World world(2 * kWhole);
  world.driver().set_hook([](DriverEntry) { std::this_thread::yield(); });
  Room room(2);
  std::atomic<int> refused{0};
  std::atomic<int> running{kThreads};
  World::run_threads(
      [&](int number) {
        if (number == kThreads) {
          for (int i = 0; i < 1000 && running > 0; ++i)
            world.allocator().validate();
          return;
        }
        const StreamRef streams[] = {world.sim().create_stream(0, sim::StreamKind::kNonBlocking),
                                     world.sim().create_stream(0, sim::StreamKind::kNonBlocking)};
        for (std::size_t round = 0; round < 1000; ++round) {
          const std::size_t count = 2 - round % 2;
          room.take(count);
          std::vector<Held> held;
          for (std::size_t i = 0; i < count; ++i) {
            const auto block = world.allocate(streams[round % 2], kWhole);
            refused += block ? 0 : 1;
            if (block) held.push_back(*block);
          }
          for (const Held& block : held)
            world.free(block);
          room.give_back(count);
        }
        --running;
      },
      validates ? kThreads + 1 : kThreads);
  EXPECT_EQ(refused.load(), 0) << "false out-of-memory results";
  world.finish();
}

TEST(ParkedTest, BlocksOnTheirWayOutOfAMagazineAreFoundByWhoRunsOutOfMemory) {
  put_out_of_magazines(false);
}

TEST(ParkedTest, BlocksOnTheirWayOutOfAMagazineAreFoundByAValidation) {
  put_out_of_magazines(true);
}

// --- Fork --------------------------------------------------------------------------------------

// In the child of a fork that came at any moment. 0, or the number of the check that failed.
int check_forked(World& world, Address held) {
  Allocator& allocator = world.allocator();
  allocator.mark_forked();
  const StatusCode codes[] = {allocator.allocate(world.shared_stream(0), 4096).code(),
                              allocator.allocate(world.shared_stream(0), 64_MiB).code(),
                              allocator.free(held).code(), allocator.empty_cache(0).code(),
                              allocator.get_stats(0).code()};
  int number = 0;
  for (const StatusCode code : codes) {
    ++number;
    if (code != StatusCode::kForked) return number;
  }
  return 0;
}

TEST(ParkedTest, AChildForkedAmidTrafficIsToldAndDoesNotHang) {
  World world(1_GiB);
  const Held kept = world.allocate(world.shared_stream(0), 4096).value();
  std::atomic<bool> is_over{false};
  std::atomic<int> wrong{0};
  std::thread forking([&] {
    for (int i = 0; i < 25; ++i) {
      const pid_t child = fork();
      if (child == 0) {
        alarm(30);
        _exit(check_forked(world, kept.address));
      }
      int state = 0;
      const bool has_ended = waitpid(child, &state, 0) == child;
      wrong += has_ended && WIFEXITED(state) && WEXITSTATUS(state) == 0 ? 0 : 1;
    }
    is_over = true;
  });
  World::run_threads(
      [&](int number) {
        while (!is_over)
          churn(world, number, 50);
      },
      4);
  forking.join();
  EXPECT_EQ(wrong.load(), 0);
  world.free(kept);
  world.finish();
}

// --- The end of an allocator -------------------------------------------------------------------

TEST(ParkedTest, AnAllocatorThatEndsTakesTheParkedBlocksOfLivingThreads) {
  constexpr int kRounds = 30;
  SimDriver sim;
  std::unique_ptr<Allocator> allocator;
  const auto begin = [&]() noexcept { allocator = Allocator::create(sim, Config{}).value(); };
  const auto end = [&]() noexcept {
    EXPECT_GT(allocator->get_stats(0).value().parked_bytes, 0);
    allocator.reset();
    EXPECT_EQ(sim.get_holdings(0).physical_bytes, 0u);
  };
  std::barrier begins(kThreads, begin);
  std::barrier ends(kThreads, end);
  World::run_threads([&](int) {
    for (int round = 0; round < kRounds; ++round) {
      begins.arrive_and_wait();
      for (const Bytes bytes : kPopular) {
        for (int i = 0; i < 4; ++i) {
          const auto address = allocator->allocate({0, StreamHandle::kLegacy}, bytes);
          ASSERT_TRUE(address.is_ok());
          EXPECT_TRUE(allocator->free(address.value()).is_ok());
        }
      }
      ends.arrive_and_wait();
    }
  });
}

// The thread's end and the allocator's come at the same time.
TEST(ParkedTest, AThreadMayEndWhileTheAllocatorWithItsParkedBlocksEnds) {
  SimDriver sim;
  for (int round = 0; round < 150; ++round) {
    auto allocator = Allocator::create(sim, Config{}).value();
    std::barrier parked(3);
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; ++i) {
      threads.emplace_back([&] {
        for (int n = 0; n < 4; ++n) {
          const auto address = allocator->allocate({0, StreamHandle::kLegacy}, 4096);
          EXPECT_TRUE(allocator->free(address.value()).is_ok());
        }
        parked.arrive_and_wait();
      });
    }
    parked.arrive_and_wait();
    allocator.reset();
    for (std::thread& thread : threads)
      thread.join();
    EXPECT_EQ(sim.get_holdings(0).physical_bytes, 0u);
  }
}

}  // namespace
}  // namespace quarry::stress
