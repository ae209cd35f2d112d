// SPDX-License-Identifier: Apache-2.0
// Lanes under attack: more streams than lanes, so that strangers share one; segments that pass
// from stream to stream and mix their owners; streams, threads and settings that come and go; and
// figures that are read meanwhile. For ThreadSanitizer and validate().
#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "tests/stress/stress_world.hpp"

namespace quarry::stress {
namespace {

constexpr int kStreams = 40;
constexpr StreamRef kPerThreadStream{0, StreamHandle::kPerThread};

// One thread of a generation.
class Walker {
 public:
  Walker(World& world, int number, std::uint64_t seed)
      : world_(world), entropy_(seed * 64 + static_cast<std::uint64_t>(number)) {
    own_ = world_.sim().create_stream(0, sim::StreamKind::kNonBlocking);
  }

  void run(int steps) {
    for (int i = 0; i < steps; ++i)
      step();
    retire_own();
    for (const Mine& mine : held_)
      world_.free(mine.held);
    world_.allocator().retire_thread_streams();
  }

 private:
  struct Mine {
    Held held;
    StreamRef owner;
    bool is_recorded = false;
  };

  StreamRef pick_stream() {
    const std::uint64_t kind = entropy_.below(8);
    if (kind == 0) return kPerThreadStream;
    if (kind < 4) return own_;
    return world_.shared_stream(entropy_.below(kStreams));
  }

  Bytes pick_size() {
    const std::uint64_t kind = entropy_.below(10);
    if (kind < 5) return entropy_.pick({Bytes{512}, Bytes{4096}, Bytes{40'000}, 1_MiB});
    if (kind < 8) return 1 + entropy_.below(1_MiB);
    return 1 + entropy_.below(6_MiB);
  }

  Mine take() {
    std::swap(held_[entropy_.below(held_.size())], held_.back());
    const Mine mine = held_.back();
    held_.pop_back();
    return mine;
  }

  // The old blocks stay where they are, in other threads' hands too; the handle comes back.
  void retire_own() {
    EXPECT_TRUE(world_.allocator().retire_stream(own_).is_ok());
    for (const Mine& mine : std::exchange(held_, {})) {
      mine.owner == own_ ? world_.free(mine.held) : held_.push_back(mine);
    }
    EXPECT_EQ(world_.sim().destroy_stream(own_), DriverCode::kSuccess);
  }

  void hand_over(const Mine& mine) {
    if (mine.is_recorded || mine.owner == kPerThreadStream) return world_.free(mine.held);
    world_.free_on_stream(mine.held, mine.owner, world_.shared_stream(entropy_.below(kStreams)));
  }

  void configure() {
    Config config;
    config.thread_cache = entropy_.chance(70);
    config.roundup_power2_divisions.fill(entropy_.chance(10) ? 4 : 0);
    config.garbage_collection_threshold = entropy_.chance(20) ? 0.5 : 0.0;
    config.throw_on_cudamalloc_oom = entropy_.chance(20);
    world_.allocator().configure(config);
  }

  void step() {
    const std::uint64_t kind = entropy_.below(1000);
    if (kind < 440) {
      const StreamRef stream = pick_stream();
      const Bytes alignment = entropy_.chance(5) ? 512u << entropy_.below(13) : 512;
      if (held_.size() >= 40) return;
      if (const auto held = world_.allocate(stream, pick_size(), alignment))
        held_.push_back({*held, stream});
    } else if (kind < 800) {
      if (!held_.empty()) world_.free(take().held);
    } else if (kind < 850) {
      if (!held_.empty()) world_.post(take().held);
    } else if (kind < 900) {
      if (const auto held = world_.fetch()) world_.free(*held);
    } else if (kind < 940) {
      if (!held_.empty()) hand_over(take());
    } else if (kind < 960) {
      if (held_.empty() || held_.back().owner == kPerThreadStream) return;
      world_.record(held_.back().held, held_.back().owner,
                    world_.shared_stream(entropy_.below(kStreams)));
      held_.back().is_recorded = true;
    } else if (kind < 970) {
      world_.sim().advance_by_us(200);
    } else if (kind < 978) {
      retire_own();
      own_ = world_.sim().create_stream(0, sim::StreamKind::kNonBlocking);
    } else if (kind < 984) {
      configure();
    } else if (kind < 988) {
      EXPECT_TRUE(world_.allocator().empty_cache(0).is_ok());
    } else if (kind < 992) {
      world_.allocator().validate();
    } else if (kind < 995) {
      static_cast<void>(world_.allocator().set_limit(0, 60_MiB + entropy_.below(200_MiB)));
    } else {
      EXPECT_TRUE(world_.allocator().get_stats(0).is_ok());
    }
  }

  World& world_;
  model::Entropy entropy_;
  StreamRef own_;
  std::vector<Mine> held_;
};

TEST(LanesTest, StrangersThatShareALaneLeaveNothingBehind) {
  World world(400_MiB, kStreams);
  for (std::uint64_t generation = 1; generation <= 12; ++generation) {
    World::run_threads([&](int number) { Walker(world, number, generation).run(600); });
    world.allocator().validate();
  }
  world.finish();
}

// Whole segments of 16 MiB, and nothing else: whatever is reserved is held or parked, unless a
// thread is just between the two.
TEST(LanesTest, StatisticsThatAreReadDuringTrafficAreOfOneMoment) {
  World world(1_GiB);
  std::atomic<bool> is_over{false};
  World::run_threads(
      [&](int number) {
        const StreamRef stream = world.shared_stream(static_cast<std::uint64_t>(number));
        if (number > 0) {
          while (!is_over) {
            const Address block = world.allocator().allocate(stream, 16_MiB).value();
            EXPECT_TRUE(world.allocator().free(block).is_ok());
          }
          return;
        }
        for (int i = 0; i < 20'000; ++i) {
          const DeviceStats stats = world.allocator().get_stats(0).value();
          EXPECT_GE(stats.allocated_bytes.all.current, 0);
          EXPECT_GE(stats.cached_bytes, 0);
        }
        is_over = true;
      },
      3);
  world.finish();
}

// The same blocks, passed on from those who allocate to those who free: neither's figures alone
// are worth anything.
TEST(LanesTest, StatisticsAreOfOneMomentAlsoWhereOthersFree) {
  World world(1_GiB);
  std::atomic<bool> is_over{false};
  std::atomic<Address> passed{0};
  const StreamRef stream = world.shared_stream(0);
  World::run_threads(
      [&](int number) {
        if (number == 0) {
          for (int i = 0; i < 20'000; ++i) {
            const DeviceStats stats = world.allocator().get_stats(0).value();
            EXPECT_GE(stats.allocated_bytes.all.current, 0);
            EXPECT_GE(stats.cached_bytes, 0);
            EXPECT_GE(stats.allocation.all.current, 0);
          }
          is_over = true;
          return;
        }
        while (!is_over) {
          const Address block = world.allocator().allocate(stream, 16_MiB).value();
          const Address other = passed.exchange(block);
          EXPECT_TRUE(world.allocator().free(other).is_ok());
        }
      },
      4);
  EXPECT_TRUE(world.allocator().free(passed).is_ok());
  world.finish();
}

// More devices than a thread has slots for, each block freed by whoever comes across it.
TEST(LanesTest, BlocksOfManyDevicesFindTheirWayBack) {
  constexpr int kDevices = 20;
  sim::SimOptions options;
  options.device_count = kDevices;
  SimDriver sim(options);
  auto allocator = Allocator::create(sim, Config{}).value();
  std::atomic<Address> passed[64] = {};
  for (int generation = 0; generation < 6; ++generation) {
    World::run_threads([&](int number) {
      model::Entropy entropy(static_cast<std::uint64_t>(number + generation * kThreads) + 1);
      for (int i = 0; i < 2000; ++i) {
        const StreamRef stream{static_cast<DeviceId>(entropy.below(kDevices)),
                               StreamHandle{entropy.below(2)}};
        const auto block = allocator->allocate(stream, entropy.pick({Bytes{512}, Bytes{4096}}));
        ASSERT_TRUE(block.is_ok());
        const bool is_passed = entropy.chance(30);
        const Address other =
            is_passed ? passed[entropy.below(64)].exchange(block.value()) : block.value();
        EXPECT_TRUE(allocator->free(other).is_ok());
      }
    });
    allocator->validate();
  }
  for (std::atomic<Address>& block : passed)
    EXPECT_TRUE(allocator->free(block).is_ok());
  for (DeviceId device = 0; device < kDevices; ++device) {
    EXPECT_TRUE(allocator->empty_cache(device).is_ok());
    const DeviceStats stats = allocator->get_stats(device).value();
    EXPECT_EQ(stats.allocated_bytes.all.current, 0);
    EXPECT_EQ(stats.reserved_bytes.all.current, 0);
  }
  allocator->validate();
}

// Halves of segments, all of one stream, and a limit of just what the threads may hold: blocks in
// magazines, on their way out of them, or in a lane are found before anybody is refused.
TEST(LanesTest, SmallDemandsThatFitTogetherAreAlwaysServed) {
  constexpr std::size_t kShare = 4;
  for (const bool is_refused_early : {false, true}) {
    World world(1_GiB);
    Config config;
    config.throw_on_cudamalloc_oom = is_refused_early;
    world.allocator().configure(config);
    ASSERT_TRUE(world.allocator().set_limit(0, kThreads * kShare * 1_MiB).is_ok());
    world.driver().set_hook([](DriverEntry) { std::this_thread::yield(); });
    std::atomic<int> refused{0};
    World::run_threads([&](int number) {
      model::Entropy entropy(static_cast<std::uint64_t>(number) + 500);
      std::vector<Held> held;
      for (int round = 0; round < 4000; ++round) {
        if (held.size() < kShare && entropy.chance(60)) {
          const auto block = world.allocate(world.shared_stream(0), 1_MiB);
          refused += block ? 0 : 1;
          if (block) held.push_back(*block);
        } else if (!held.empty()) {
          world.free(held.back());
          held.pop_back();
        }
        const bool reads = entropy.chance(1);
        const bool empties = entropy.chance(1);
        EXPECT_TRUE(!reads || world.allocator().get_stats(0).is_ok());
        EXPECT_TRUE(!empties || world.allocator().empty_cache(0).is_ok());
      }
      for (const Held& block : held)
        world.free(block);
    });
    EXPECT_EQ(refused.load(), 0) << is_refused_early;
    world.finish();
  }
}

}  // namespace
}  // namespace quarry::stress
