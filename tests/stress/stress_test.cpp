// SPDX-License-Identifier: Apache-2.0
// Many threads at once, for ThreadSanitizer and for deadlocks (CTest's time limit is the
// watchdog). No sleeps: iterations are counted, time is virtual.
#include <atomic>
#include <ostream>
#include <thread>

#include "tests/stress/stress_world.hpp"

namespace quarry::stress {
namespace {

// Others get their turn in the moments when the allocator has let go of its lock.
void yield_in_slow_calls(World& world) {
  world.driver().set_hook([](DriverEntry) { std::this_thread::yield(); });
}

Config make_config(bool is_expandable) {
  Config config;
  config.expandable_segments = is_expandable;
  return config;
}

constexpr StreamRef kPerThreadStream{0, StreamHandle::kPerThread};

// One thread of the general scenario: its own streams, some blocks, and a random mix of calls.
class Worker {
 public:
  Worker(World& world, int number, bool is_expandable)
      : world_(world),
        is_expandable_(is_expandable),
        entropy_(static_cast<std::uint64_t>(number) + 1),
        own_(world.sim().create_stream(0, sim::StreamKind::kNonBlocking)) {}

  void run(int iterations) {
    for (int i = 0; i < iterations; ++i)
      step();
    end_capture();
    for (const Mine& mine : held_)
      world_.free(mine.held);
    held_.clear();
    replace_stream();
    world_.allocator().retire_thread_streams();
  }

 private:
  struct Mine {
    Held held;
    StreamRef owner;
  };

  void step();
  void allocate();
  void free();
  void record();
  void read_figures();
  void hold_gate();
  void toggle_capture();
  void end_capture();
  void replace_stream();
  Mine take();
  StreamRef pick_stream();
  Bytes pick_size();

  World& world_;
  const bool is_expandable_;  // most of the time
  model::Entropy entropy_;
  StreamRef own_;
  bool is_capturing_ = false;
  std::vector<Mine> held_;
};

StreamRef Worker::pick_stream() {
  const std::uint64_t kind = entropy_.below(4);
  if (kind == 0) return kPerThreadStream;
  if (kind == 1 || is_capturing_) return world_.shared_stream(entropy_.below(8));
  return own_;
}

Bytes Worker::pick_size() {
  const std::uint64_t kind = entropy_.below(10);
  // Few sizes, asked for again and again: these park.
  if (kind < 4) return entropy_.pick({Bytes{512}, Bytes{40'000}, 1_MiB, 12_MiB});
  if (kind < 7) return 1 + entropy_.below(1_MiB);
  if (kind < 9) return 1_MiB + entropy_.below(15_MiB);
  return 1 + entropy_.below(100_MiB);
}

Worker::Mine Worker::take() {
  const std::size_t at = entropy_.below(held_.size());
  const Mine mine = held_[at];
  held_[at] = held_.back();
  held_.pop_back();
  return mine;
}

void Worker::allocate() {
  const StreamRef stream = pick_stream();
  if (const auto held = world_.allocate(stream, pick_size())) held_.push_back({*held, stream});
}

void Worker::free() {
  if (held_.empty()) return;
  const Mine mine = take();
  const std::uint64_t how = entropy_.below(10);
  if (how == 0) return world_.free_in_callback(mine.held);
  if (how < 4) return world_.post(mine.held);
  world_.free(mine.held);
}

void Worker::record() {
  if (held_.empty() || is_capturing_) return;
  const Mine& mine = held_[entropy_.below(held_.size())];
  world_.record(mine.held, mine.owner, world_.shared_stream(entropy_.below(8)));
}

void Worker::read_figures() {
  const DeviceStats stats = world_.allocator().get_stats(0).value();
  EXPECT_GE(stats.reserved_bytes.all.current, stats.active_bytes.all.current);
  EXPECT_GE(stats.active_bytes.all.current, stats.allocated_bytes.all.current);
  EXPECT_GE(stats.cached_bytes, 0);
  if (stats.parked_bytes > 0) world_.note_parked();
  EXPECT_TRUE(world_.allocator().get_stream_caches(0).is_ok());
  if (held_.empty()) return;
  EXPECT_EQ(world_.allocator().find_block(held_.back().held.address).value().address,
            held_.back().held.address);
}

void Worker::hold_gate() {
  world_.allocator().free_gate().lock();
  allocate();
  free();
  EXPECT_TRUE(world_.allocator().free_gate().unlock());
}

void Worker::toggle_capture() {
  if (is_capturing_) return end_capture();
  const auto mode =
      entropy_.pick({CaptureMode::kGlobal, CaptureMode::kThreadLocal, CaptureMode::kRelaxed});
  is_capturing_ = world_.sim().begin_capture(own_, mode) == DriverCode::kSuccess;
  EXPECT_TRUE(is_capturing_);
}

void Worker::end_capture() {
  if (!is_capturing_) return;
  is_capturing_ = false;
  const auto graph = world_.sim().end_capture(own_);
  EXPECT_TRUE(graph.is_ok()) << describe(graph.code);
  if (graph.is_ok()) static_cast<void>(world_.sim().destroy_graph(graph.value));
}

// What others still hold of the old stream's memory they only free.
void Worker::replace_stream() {
  if (is_capturing_) return;
  EXPECT_TRUE(world_.allocator().retire_stream(own_).is_ok());
  for (std::size_t i = 0; i < held_.size();) {
    if (held_[i].owner != own_) {
      ++i;
      continue;
    }
    world_.free(held_[i].held);
    held_[i] = held_.back();
    held_.pop_back();
  }
  EXPECT_EQ(world_.sim().destroy_stream(own_), DriverCode::kSuccess);
  own_ = world_.sim().create_stream(0, sim::StreamKind::kNonBlocking);
}

void Worker::step() {
  const std::uint64_t kind = entropy_.below(1000);
  if (kind < 400) return allocate();
  if (kind < 740) return free();
  if (kind < 850) return record();
  if (kind < 900) {
    if (const auto held = world_.fetch()) world_.free(*held);
    return;
  }
  if (kind < 930) return read_figures();
  if (kind < 945) return world_.sim().advance_by_us(50);
  if (kind < 955) return hold_gate();
  if (kind < 970) return toggle_capture();
  if (kind < 978) return replace_stream();
  if (kind < 982) {
    EXPECT_TRUE(world_.allocator().empty_cache(0).is_ok());
    return;
  }
  if (kind < 986) return world_.allocator().validate();
  if (kind < 990) {
    static_cast<void>(world_.allocator().set_limit(0, 150_MiB + entropy_.below(200_MiB)));
    return;
  }
  Config config = make_config(entropy_.chance(is_expandable_ ? 80 : 0));
  config.cross_stream_reuse = entropy_.pick({CrossStreamReuse::kOff, CrossStreamReuse::kIdle,
                                             CrossStreamReuse::kWait, CrossStreamReuse::kWait});
  config.recycle =
      entropy_.pick({Recycle::kOff, Recycle::kPassed, Recycle::kStream, Recycle::kStream});
  config.garbage_collection_threshold = entropy_.chance(30) ? 0.5 : 0.0;
  config.max_split_bytes = entropy_.chance(30) ? 32_MiB : kUnlimited;
  config.throw_on_cudamalloc_oom = entropy_.chance(10);
  config.thread_cache = entropy_.chance(80);
  world_.allocator().configure(config);
}

// A callback that frees and allocates, and an observer that reads: both from inside a request.
// Requests made inside a callback are told to nobody; `untold_ooms` counts those that failed.
void add_callbacks(World& world, std::atomic<std::uint64_t>& told_ooms,
                   std::atomic<std::uint64_t>& untold_ooms) {
  world.allocator().callbacks().add_free_memory_callback([&world, &untold_ooms](DeviceId, Bytes) {
    thread_local bool is_inside = false;
    if (is_inside) return false;
    is_inside = true;
    const auto posted = world.fetch();
    if (posted) world.free(*posted);
    if (const auto held = world.allocate(world.shared_stream(0), 512)) {
      world.free(*held);
    } else {
      ++untold_ooms;
    }
    is_inside = false;
    return posted.has_value();
  });
  world.allocator().callbacks().add_oom_observer([&world, &told_ooms](const OomReport& report) {
    ++told_ooms;
    EXPECT_GT(report.segment_bytes, 0u);
    EXPECT_TRUE(world.allocator().get_stats(0).is_ok());
    if (const auto posted = world.fetch()) world.free(*posted);
  });
}

class SegmentsTest : public testing::TestWithParam<bool> {};

TEST_P(SegmentsTest, ThreadsThatDoEverythingAtOnceLeaveNothingBehind) {
  const bool is_expandable = GetParam();
  World world(400_MiB, 3, make_config(is_expandable));
  std::atomic<std::uint64_t> told_ooms{0};
  std::atomic<std::uint64_t> untold_ooms{0};
  add_callbacks(world, told_ooms, untold_ooms);
  yield_in_slow_calls(world);
  World::run_threads(
      [&world, is_expandable](int number) { Worker(world, number, is_expandable).run(1500); });
  const DeviceStats stats = world.allocator().get_stats(0).value();
  EXPECT_GT(stats.num_alloc_retries, 0);
  EXPECT_GT(told_ooms.load(), 0u);
  EXPECT_TRUE(world.has_parked());
  EXPECT_EQ(static_cast<std::uint64_t>(stats.num_ooms), told_ooms.load() + untold_ooms.load());
  EXPECT_EQ(stats.extents_moved > 0, is_expandable);
  EXPECT_EQ(stats.stream_waits > 0, is_expandable);
  world.finish();
}

INSTANTIATE_TEST_SUITE_P(Stress, SegmentsTest, testing::Bool(),
                         [](const auto& tested) { return tested.param ? "Expandable" : "Plain"; });

// --- No false out-of-memory --------------------------------------------------------------------

struct Fit {
  const char* name;
  bool by_limit;         // the limit is the bound, not the device
  bool records_streams;  // freed blocks stay pending for a while
  bool empties_cache;
  bool is_expandable = false;
};

void PrintTo(const Fit& fit, std::ostream* out) {
  *out << fit.name;
}

class NoFalseOomTest : public testing::TestWithParam<Fit> {};

// Blocks of one size, each a segment of its own, so that nothing can be split or stranded by its
// neighbours: whatever the others do, a thread that holds fewer than its share must be served.
TEST_P(NoFalseOomTest, DemandsThatFitTogetherAreAlwaysServed) {
  constexpr Bytes kBlock = 16_MiB;
  constexpr std::size_t kShare = 3;
  constexpr int kRounds = 4000;
  constexpr Bytes kTogether = kBlock * kShare * kThreads;
  const Fit fit = GetParam();
  // Expandable segments hold a little ready.
  const Bytes little = fit.is_expandable ? 2_MiB : 0;
  World world(fit.by_limit ? 4 * kTogether : kTogether + little, 3,
              make_config(fit.is_expandable));
  const Bytes limit = fit.by_limit ? kTogether : kUnlimited;
  ASSERT_TRUE(world.allocator().set_limit(0, limit).is_ok());
  yield_in_slow_calls(world);
  std::atomic<int> refused{0};
  World::run_threads([&](int number) {
    model::Entropy entropy(static_cast<std::uint64_t>(number) + 100);
    const StreamRef own = world.sim().create_stream(0, sim::StreamKind::kNonBlocking);
    std::vector<Held> held;
    for (int round = 0; round < kRounds; ++round) {
      const bool wants_more = held.size() < kShare && entropy.chance(60);
      if (wants_more) {
        const StreamRef stream = entropy.chance(50) ? own : world.shared_stream(entropy.below(8));
        const auto block = world.allocate(stream, kBlock);
        refused += block ? 0 : 1;
        if (!block) continue;
        if (fit.records_streams && entropy.chance(50)) {
          world.record(*block, stream, world.shared_stream(entropy.below(8)));
        }
        held.push_back(*block);
      } else if (!held.empty()) {
        world.free(held.back());
        held.pop_back();
      }
      if (fit.empties_cache && entropy.chance(2)) {
        EXPECT_TRUE(world.allocator().empty_cache(0).is_ok());
      }
    }
    for (const Held& block : held)
      world.free(block);
    EXPECT_TRUE(world.allocator().retire_stream(own).is_ok());
  });
  EXPECT_EQ(refused.load(), 0);
  const DeviceStats stats = world.allocator().get_stats(0).value();
  EXPECT_GT(fit.is_expandable ? stats.stream_waits : stats.num_alloc_retries, 0);
  world.finish();
}

INSTANTIATE_TEST_SUITE_P(Stress, NoFalseOomTest,
                         testing::Values(Fit{"Device", false, false, false},
                                         Fit{"DeviceRecorded", false, true, false},
                                         Fit{"DeviceEmptied", false, true, true},
                                         Fit{"Limit", true, false, false},
                                         Fit{"LimitRecorded", true, true, true},
                                         Fit{"Expandable", false, true, true, true},
                                         Fit{"ExpandableLimit", true, true, false, true}),
                         [](const auto& tested) { return tested.param.name; });

// --- Threads that come and go ------------------------------------------------------------------

TEST(StressTest, MemoryOfThreadsThatEndedIsUsedByTheirSuccessors) {
  World world(1_GiB);
  for (int generation = 0; generation < 20; ++generation) {
    World::run_threads([&world](int) {
      std::vector<Held> held;
      for (int i = 0; i < 20; ++i) {
        const auto block = world.allocate(kPerThreadStream, 700'000);
        ASSERT_TRUE(block.has_value());
        held.push_back(*block);
      }
      for (const Held& block : held)
        world.free(block);
      world.allocator().retire_thread_streams();
    });
    world.sim().advance_by_us(1'000'000);
  }
  // At most what all threads of one generation hold together, and what one of them strands.
  const DeviceStats stats = world.allocator().get_stats(0).value();
  EXPECT_LE(stats.reserved_bytes.all.peak, static_cast<std::int64_t>(2 * kThreads * 10 * 2_MiB));
  EXPECT_LE(world.allocator().get_stream_caches(0).value().size(), std::size_t{kThreads + 1});
  world.finish();
}

// --- One address, many threads -----------------------------------------------------------------

TEST(StressTest, OfManyFreesOfOneBlockExactlyOneSucceeds) {
  World world(64_MiB);
  for (int round = 0; round < 50; ++round) {
    const auto held = world.allocate(world.shared_stream(0), 4096);
    ASSERT_TRUE(held.has_value());
    world.sim().end_lifetime(held->lifetime);
    std::atomic<int> succeeded{0};
    World::run_threads([&](int) {
      const StatusCode code = world.allocator().free(held->address).code();
      succeeded += code == StatusCode::kOk ? 1 : 0;
      EXPECT_TRUE(code == StatusCode::kOk || code == StatusCode::kDoubleFree ||
                  code == StatusCode::kInvalidPointer);
    });
    EXPECT_EQ(succeeded.load(), 1);
  }
  EXPECT_EQ(world.allocator().get_stats(0).value().invalid_frees, 50 * (kThreads - 1));
  world.finish();
}

}  // namespace
}  // namespace quarry::stress
