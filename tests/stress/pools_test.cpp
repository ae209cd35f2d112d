// SPDX-License-Identifier: Apache-2.0
// Private pools, routes and captures of many threads at once. The threads keep the promises of
// users of graphs (tests/model/graphs.hpp): whatever goes wrong is the allocator's fault.
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "tests/stress/stress_world.hpp"

namespace quarry::stress {
namespace {

constexpr PoolId kShared{0, 1};          // eager work of all threads
constexpr PoolId kSharedByGraphs{0, 2};  // of threads that take turns
constexpr PoolId get_own_pool(int number) {
  return {1, static_cast<std::uint64_t>(number)};
}

void yield_in_slow_calls(World& world) {
  world.driver().set_hook([](DriverEntry) { std::this_thread::yield(); });
}

struct Reached {
  std::atomic<std::uint64_t> captured_blocks{0};
  std::atomic<std::uint64_t> launches{0};
  std::atomic<std::uint64_t> filter_calls{0};
};

// What is for one thread at a time: captures into the shared pool, and launches of their graphs.
struct SharedGraphs {
  explicit SharedGraphs(World& world)
      : replay(world.sim().create_stream(0, sim::StreamKind::kNonBlocking)) {}
  std::mutex mutex;
  const StreamRef replay;
};

// Captures into a pool, again and again, and launches what comes of it.
class Capturer {
 public:
  Capturer(World& world, Reached& reached, SharedGraphs& shared, int number)
      : world_(world),
        reached_(reached),
        shared_(shared),
        own_pool_(get_own_pool(number)),
        entropy_(static_cast<std::uint64_t>(number) + 500),
        stream_(world.sim().create_stream(
            0, number % 2 == 0 ? sim::StreamKind::kNonBlocking : sim::StreamKind::kBlocking)) {}

  void run(int rounds) {
    for (int round = 0; round < rounds; ++round) {
      EXPECT_TRUE(world_.allocator().retain_pool(0, own_pool_).is_ok());
      for (int i = 0; i < 2; ++i)
        capture_and_launch(own_pool_, stream_);
      EXPECT_TRUE(world_.allocator().release_pool(0, own_pool_).is_ok());
      std::lock_guard lock(shared_.mutex);
      capture_and_launch(kSharedByGraphs, shared_.replay);
    }
    static_cast<void>(world_.sim().user_synchronizes(stream_));
    EXPECT_TRUE(world_.allocator().retire_stream(stream_).is_ok());
    EXPECT_EQ(world_.sim().destroy_stream(stream_), DriverCode::kSuccess);
  }

 private:
  void capture_and_launch(PoolId pool, StreamRef replay);
  void work_inside();

  World& world_;
  Reached& reached_;
  SharedGraphs& shared_;
  const PoolId own_pool_;
  model::Entropy entropy_;
  const StreamRef stream_;
};

void Capturer::work_inside() {
  std::vector<Held> held;
  for (int i = 0; i < 6; ++i) {
    const auto block = world_.allocate(stream_, 1 + entropy_.below(3_MiB));
    if (!block) continue;
    ++reached_.captured_blocks;
    held.push_back(*block);
    if (!entropy_.chance(50)) continue;
    world_.free(held.back());
    held.pop_back();
  }
  // Others may free them while the capture goes on, or after.
  for (const Held& block : held)
    world_.post(block);
}

// The host has seen the launches of the pool done before the next capture.
void Capturer::capture_and_launch(PoolId pool, StreamRef replay) {
  static_cast<void>(world_.sim().user_synchronizes(replay));
  const Route route{Route::Kind::kCapture, 0, pool, stream_.handle, {}};
  EXPECT_TRUE(world_.allocator().begin_pool(route).is_ok());
  const auto mode =
      entropy_.pick({CaptureMode::kGlobal, CaptureMode::kThreadLocal, CaptureMode::kRelaxed});
  EXPECT_EQ(world_.sim().begin_capture(stream_, mode), DriverCode::kSuccess);
  work_inside();
  const auto graph = world_.sim().end_capture(stream_);
  EXPECT_TRUE(graph.is_ok()) << describe(graph.code);
  EXPECT_TRUE(world_.allocator().end_pool(0, pool).is_ok());
  if (!graph.is_ok()) return;
  for (int i = 0; i < 3; ++i) {
    const auto time = sim::WorkTime::lasting_us(20);
    EXPECT_EQ(world_.sim().launch_graph(graph.value, replay, time), DriverCode::kSuccess);
    ++reached_.launches;
  }
  EXPECT_EQ(world_.sim().destroy_graph(graph.value), DriverCode::kSuccess);
}

// Works outside of captures: in the default pool, the shared one and one of its own, which come
// and go.
class Neighbour {
 public:
  Neighbour(World& world, Reached& reached, int number)
      : world_(world),
        reached_(reached),
        own_pool_(get_own_pool(number)),
        entropy_(static_cast<std::uint64_t>(number) + 900),
        stream_(world.sim().create_stream(0, sim::StreamKind::kNonBlocking)) {}

  void run(int steps) {
    for (int i = 0; i < steps; ++i)
      step();
    end_routes();
    free_all();
    EXPECT_TRUE(world_.allocator().retire_stream(stream_).is_ok());
  }

 private:
  void step();
  void begin_route();
  void end_routes();
  void replace_stream();
  void free_all();

  World& world_;
  Reached& reached_;
  const PoolId own_pool_;
  model::Entropy entropy_;
  StreamRef stream_;
  std::vector<Held> held_;
  bool has_shared_ = false;
  bool has_own_ = false;
};

void Neighbour::begin_route() {
  if (!has_shared_) {
    const Route route{Route::Kind::kThread, 0, kShared, {}, {}};
    EXPECT_TRUE(world_.allocator().begin_pool(route).is_ok());
    has_shared_ = true;
    return;
  }
  if (has_own_) return end_routes();
  PoolOptions options;
  options.use_on_oom = entropy_.chance(50);
  EXPECT_TRUE(world_.allocator().retain_pool(0, own_pool_, options).is_ok());
  Route route{Route::Kind::kFilter, 0, own_pool_, {}, {}};
  route.filter = [this, own = stream_.handle](StreamHandle handle) {
    ++reached_.filter_calls;
    std::this_thread::yield();
    return handle == own;
  };
  EXPECT_TRUE(world_.allocator().begin_pool(route).is_ok());
  has_own_ = true;
}

// The filter is of use to nobody any more once its route has ended.
void Neighbour::end_routes() {
  if (has_own_) {
    if (entropy_.chance(50)) {
      EXPECT_TRUE(world_.allocator().end_pool(0, own_pool_).is_ok());
    }
    EXPECT_TRUE(world_.allocator().release_pool(0, own_pool_).is_ok());
  }
  if (has_shared_) {
    EXPECT_TRUE(world_.allocator().end_pool(0, kShared).is_ok());
  }
  has_own_ = has_shared_ = false;
}

void Neighbour::free_all() {
  for (const Held& block : held_)
    world_.free(block);
  held_.clear();
}

void Neighbour::replace_stream() {
  if (has_own_) end_routes();
  EXPECT_TRUE(world_.allocator().retire_stream(stream_).is_ok());
  free_all();
  EXPECT_EQ(world_.sim().destroy_stream(stream_), DriverCode::kSuccess);
  stream_ = world_.sim().create_stream(0, sim::StreamKind::kNonBlocking);
}

void Neighbour::step() {
  const std::uint64_t kind = entropy_.below(1000);
  if (kind < 450) {
    if (const auto block = world_.allocate(stream_, 1 + entropy_.below(6_MiB))) {
      held_.push_back(*block);
    }
    return;
  }
  if (kind < 700) {
    if (held_.empty()) return;
    world_.free(held_.back());
    return held_.pop_back();
  }
  if (kind < 800) {
    if (const auto block = world_.fetch()) world_.free(*block);
    return;
  }
  if (kind < 880) return begin_route();
  if (kind < 920) return end_routes();
  if (kind < 940) return replace_stream();
  if (kind < 955) {
    EXPECT_TRUE(world_.allocator().trim_pool(0, kShared).is_ok());
  } else if (kind < 965) {
    EXPECT_TRUE(world_.allocator().trim_pool(0, kSharedByGraphs).is_ok());
  } else if (kind < 980) {
    EXPECT_TRUE(world_.allocator().empty_cache(0).is_ok());
  } else if (kind < 990) {
    const auto reports = world_.allocator().get_pool_reports(0);
    for (const PoolReport& report : reports.value())
      EXPECT_GE(report.stats.reserved_bytes.current, report.stats.active_bytes.current);
  } else {
    world_.allocator().validate();
  }
}

TEST(PoolStressTest, ThreadsThatCaptureDisturbNobodyAndAreNotDisturbed) {
  World world(400_MiB);
  Reached reached;
  SharedGraphs shared(world);
  yield_in_slow_calls(world);
  PoolOptions options;
  options.use_on_oom = true;
  EXPECT_TRUE(world.allocator().retain_pool(0, kShared, options).is_ok());
  EXPECT_TRUE(world.allocator().retain_pool(0, kSharedByGraphs).is_ok());
  World::run_threads([&](int number) {
    if (number < 3) return Capturer(world, reached, shared, number).run(40);
    Neighbour(world, reached, number).run(1000);
  });
  EXPECT_TRUE(world.allocator().release_pool(0, kShared).is_ok());
  EXPECT_TRUE(world.allocator().release_pool(0, kSharedByGraphs).is_ok());
  EXPECT_GT(reached.captured_blocks.load(), 400u);
  EXPECT_GT(reached.launches.load(), 600u);
  EXPECT_GT(reached.filter_calls.load(), 200u);
  world.finish();
}

// Captures again and again into one pool, beside threads that allocate and empty the cache.
class CaptureStressTest : public testing::TestWithParam<bool> {};

TEST_P(CaptureStressTest, CapturesGoOnBesideOrdinaryTraffic) {
  World world(2_GiB);
  Config config;
  config.thread_cache = GetParam();
  world.allocator().configure(config);
  yield_in_slow_calls(world);
  EXPECT_TRUE(world.allocator().retain_pool(0, kSharedByGraphs).is_ok());
  std::atomic<bool> is_over{false};
  World::run_threads(
      [&](int number) {
        model::Entropy entropy(static_cast<std::uint64_t>(number) + 70);
        const StreamRef stream = world.sim().create_stream(0, sim::StreamKind::kNonBlocking);
        const auto work = [&](Bytes bytes) {
          std::vector<Held> held;
          for (int i = 0; i < 8; ++i) {
            if (const auto block = world.allocate(stream, 1 + entropy.below(bytes)))
              held.push_back(*block);
          }
          for (const Held& block : held)
            world.free(block);
        };
        if (number > 0) {
          while (!is_over.load()) {
            work(entropy.chance(20) ? 32_MiB : 256_KiB);
            if (entropy.chance(6)) static_cast<void>(world.allocator().empty_cache(0));
          }
        }
        for (int round = 0; round < 3000 && number == 0; ++round) {
          const Route route{Route::Kind::kCapture, 0, kSharedByGraphs, stream.handle, {}};
          EXPECT_TRUE(world.allocator().begin_pool(route).is_ok());
          EXPECT_EQ(world.sim().begin_capture(stream, CaptureMode::kGlobal), DriverCode::kSuccess);
          const auto kept = world.allocate(stream, 8_MiB);
          work(9_MiB);
          const auto graph = world.sim().end_capture(stream);
          EXPECT_TRUE(graph.is_ok()) << describe(graph.code);
          EXPECT_TRUE(world.allocator().end_pool(0, kSharedByGraphs).is_ok());
          if (graph.is_ok()) {
            EXPECT_EQ(world.sim().launch_graph(graph.value, stream), DriverCode::kSuccess);
            static_cast<void>(world.sim().user_synchronizes(stream));
            EXPECT_EQ(world.sim().destroy_graph(graph.value), DriverCode::kSuccess);
          }
          if (kept) world.free(*kept);
        }
        is_over = true;
        EXPECT_TRUE(world.allocator().retire_stream(stream).is_ok());
      },
      4);
  EXPECT_TRUE(world.allocator().release_pool(0, kSharedByGraphs).is_ok());
  EXPECT_TRUE(world.allocator().empty_cache(0).is_ok());
  world.finish();
}

INSTANTIATE_TEST_SUITE_P(ThreadCache, CaptureStressTest, testing::Bool(), [](const auto& tested) {
  return std::string(tested.param ? "On" : "Off");
});

// A route ends, and its pool goes, while requests of others are on their way by it.
TEST(PoolStressTest, ARouteThatEndsUnderRequestsLeavesThemToTheDefaultPool) {
  World world(400_MiB);
  const StreamRef stream = world.shared_stream(0);
  std::atomic<bool> is_over{false};
  std::atomic<std::uint64_t> filter_calls{0};
  World::run_threads(
      [&](int number) {
        if (number > 0) {
          while (!is_over.load()) {
            if (const auto block = world.allocate(stream, 1_MiB)) world.free(*block);
          }
          return;
        }
        const auto filter = [&filter_calls](StreamHandle) {
          ++filter_calls;
          std::this_thread::yield();
          return true;
        };
        for (int round = 0; round < 60; ++round) {
          EXPECT_TRUE(world.allocator().retain_pool(0, kShared).is_ok());
          const bool is_filter = round % 2 == 0;
          const auto kind = is_filter ? Route::Kind::kFilter : Route::Kind::kStream;
          const std::uint64_t calls_before = filter_calls.load();
          const Route route{kind, 0, kShared, stream.handle, filter};
          EXPECT_TRUE(world.allocator().begin_pool(route).is_ok());
          while (is_filter && filter_calls.load() == calls_before)
            std::this_thread::yield();
          if (round % 3 == 0) {
            EXPECT_TRUE(world.allocator().end_pool(0, kShared).is_ok());
          }
          EXPECT_TRUE(world.allocator().release_pool(0, kShared).is_ok());
        }
        is_over = true;
      },
      4);
  EXPECT_TRUE(world.allocator().empty_cache(0).is_ok());
  EXPECT_TRUE(world.allocator().get_pool_reports(0).value().empty());
  world.finish();
}

// One thread holds and releases a pool that another routes to: the route is begun to a pool that
// is held, or not at all, and no request goes round for ever.
TEST(PoolStressTest, ARouteIsNeverBegunToAPoolThatWasReleased) {
  World world(64_MiB);
  const StreamRef stream = world.shared_stream(0);
  std::atomic<bool> is_over{false};
  World::run_threads(
      [&](int number) {
        if (number == 0) {
          for (int round = 0; round < 3000; ++round) {
            EXPECT_TRUE(world.allocator().retain_pool(0, kShared).is_ok());
            std::this_thread::yield();
            EXPECT_TRUE(world.allocator().release_pool(0, kShared).is_ok());
            if (const auto block = world.allocate(stream, 4096)) world.free(*block);
          }
          is_over = true;
          return;
        }
        const Route route{Route::Kind::kStream, 0, kShared, stream.handle, {}};
        while (!is_over.load()) {
          static_cast<void>(world.allocator().begin_pool(route));
          if (const auto block = world.allocate(stream, 4096)) world.free(*block);
        }
      },
      3);
  EXPECT_TRUE(world.allocator().empty_cache(0).is_ok());
  EXPECT_TRUE(world.allocator().get_pool_reports(0).value().empty());
  world.finish();
}

}  // namespace
}  // namespace quarry::stress
