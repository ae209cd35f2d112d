// SPDX-License-Identifier: Apache-2.0
// Captures into private pools on the real device, while others allocate: in every mode, of
// blocking and non-blocking streams, and launches mixed with ordinary work of several threads. No
// capture is lost, and no word is wrong.
#include <atomic>
#include <cstdio>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "tests/gpu/graph_world.hpp"

namespace quarry::gpu {
namespace {

constexpr PoolId kPool{0, 1};

// Allocates, fills, checks and frees on a stream of its own until it is told to stop.
class Traffic {
 public:
  Traffic(Device& device, unsigned seed) : device_(device), random_(seed) {
    act();  // loads the kernels
    synchronize(get_handle(stream_));
  }
  ~Traffic() {
    stop();
    device_.end_stream(stream_);
  }
  void start() {
    thread_ = std::thread([this] {
      while (!is_over_)
        act();
    });
  }
  void stop() {
    is_over_ = true;
    if (thread_.joinable()) thread_.join();
  }
  std::uint64_t acts() const { return acts_; }

 private:
  void act() {
    std::vector<Address> blocks;
    for (int i = 0; i < 8; ++i) {
      const Bytes bytes = 512 + random_() % (i == 0 ? 32_MiB : 256_KiB) / 4 * 4;
      const std::uint32_t value = random_();
      const Address block = device_.allocate_filled(stream_, bytes, value);
      check(block, bytes, value, get_handle(stream_));
      blocks.push_back(block);
    }
    for (const Address block : blocks)
      device_.free(block);
    ++acts_;
    if (random_() % 16 != 0) return;
    EXPECT_TRUE(device_.allocator().empty_cache(0).is_ok());
  }

  Device& device_;
  const StreamRef stream_ = make_stream();
  std::mt19937 random_;
  std::thread thread_;
  std::atomic<bool> is_over_{false};
  std::atomic<std::uint64_t> acts_{0};
};

// Mode; whether the capturing stream is a blocking one; magazines.
using Setting = std::tuple<CaptureMode, bool, bool>;

class CaptureIntoPool : public testing::TestWithParam<Setting> {};

TEST_P(CaptureIntoPool, SurvivesAStormOfOthersAndItsGraphIsRight) {
  const auto [mode, is_blocking, thread_cache] = GetParam();
  constexpr int kCaptures = 20;
  Device device(thread_cache);
  const StreamRef stream = make_stream(is_blocking);
  EXPECT_TRUE(device.allocator().retain_pool(0, kPool).is_ok());
  std::vector<std::unique_ptr<Traffic>> others;
  for (unsigned i = 0; i < 3; ++i)
    others.push_back(std::make_unique<Traffic>(device, i + 1));
  const Address warm = device.allocate_filled(stream, 4_MiB, 1);
  check(warm, 4_MiB, 1, get_handle(stream));
  device.free(warm);
  synchronize_device();
  for (auto& other : others)
    other->start();
  for (int i = 0; i < kCaptures && !testing::Test::HasFailure(); ++i) {
    const auto value = static_cast<std::uint32_t>(1000 + i);
    synchronize(get_handle(stream));
    ASSERT_TRUE(device.allocator()
                    .begin_pool({Route::Kind::kCapture, 0, kPool, stream.handle, {}})
                    .is_ok());
    ASSERT_EQ(begin_capture(get_handle(stream), static_cast<int>(mode)), 0);
    const Address kept = device.allocate_filled(stream, 8_MiB, value);
    for (int k = 0; k < 10; ++k) {
      const Bytes bytes = (static_cast<Bytes>(k % 3) + 1) * 3_MiB;
      const Address passing = device.allocate_filled(stream, bytes, value + 7);
      check(passing, bytes, value + 7, get_handle(stream));
      device.free(passing);
    }
    Graph graph(get_handle(stream));
    ASSERT_EQ(graph.code(), 0) << "the capture was lost";
    ASSERT_TRUE(device.allocator().end_pool(0, kPool).is_ok());
    for (int run = 0; run < 3; ++run)
      graph.launch(get_handle(stream));
    check(kept, 8_MiB, value, get_handle(stream));
    synchronize(get_handle(stream));
    device.free(kept);
  }
  for (auto& other : others)
    other->stop();
  EXPECT_EQ(take_wrong_words(), 0u);
  others.clear();
  EXPECT_TRUE(device.allocator().release_pool(0, kPool).is_ok());
  device.end_stream(stream);
  EXPECT_TRUE(device.allocator().empty_cache(0).is_ok());
  EXPECT_EQ(device.reserved(), 0u);
  device.allocator().validate();
}

std::string name_setting(const testing::TestParamInfo<Setting>& tested) {
  const auto [mode, is_blocking, thread_cache] = tested.param;
  const char* const modes[] = {"Global", "ThreadLocal", "Relaxed"};
  return std::string(modes[static_cast<int>(mode)]) + (is_blocking ? "Blocking" : "NonBlocking") +
         (thread_cache ? "Magazines" : "NoMagazines");
}

INSTANTIATE_TEST_SUITE_P(Modes, CaptureIntoPool,
                         testing::Combine(testing::Values(CaptureMode::kGlobal,
                                                          CaptureMode::kThreadLocal,
                                                          CaptureMode::kRelaxed),
                                          testing::Bool(), testing::Bool()),
                         name_setting);

TEST(GraphLaunches, AThousandMixedWithOrdinaryWorkOfFourThreadsAreRight) {
  constexpr std::uint64_t kCount = 1 << 20;
  constexpr int kLaunches = 1000;
  Device device(true);
  GraphWorld world(device);
  world.retain(kPool);
  std::vector<std::unique_ptr<Traffic>> others;
  for (unsigned i = 0; i < 4; ++i)
    others.push_back(std::make_unique<Traffic>(device, 100 + i));
  {
    const Tensor a = world.make_ones(kCount);
    static_cast<void>(world.with_temporaries(a, 1).sum());
    Tensor b = world.make(kCount);
    const auto graph = world.capture(kPool, [&] {
      b = world.clone(a);
      for (int i = 0; i < 5; ++i)
        b = world.with_temporaries(b, 1);
    });
    for (auto& other : others)
      other->start();
    const auto count_acts = [&others] {
      std::uint64_t acts = 0;
      for (const auto& other : others)
        acts += other->acts();
      return acts;
    };
    std::uint64_t wrong_sums = 0;
    for (int i = 1; i <= kLaunches; ++i) {
      while (count_acts() < static_cast<std::uint64_t>(i))
        std::this_thread::yield();  // for each launch an act at least
      world.launch(*graph);
      if (i % 100 == 0) wrong_sums += b.sum() == 94 * kCount ? 0 : 1;
    }
    EXPECT_EQ(wrong_sums, 0u);
  }
  std::uint64_t acts = 0;
  for (auto& other : others) {
    other->stop();
    acts += other->acts();
  }
  EXPECT_EQ(take_wrong_words(), 0u);
  std::printf("captures=1 launches=%d beside acts=%llu of 4 threads\n", kLaunches,
              static_cast<unsigned long long>(acts));
  others.clear();
  world.release(kPool);
  device.allocator().validate();
}

// Activations of a model by batch size: each layer's output is the next one's input.
void run_model(GraphWorld& world, std::uint64_t batch) {
  constexpr std::uint64_t kWordsPerSample = 65'536;
  Tensor activation = world.make_ones(batch * kWordsPerSample);
  for (int layer = 0; layer < 8; ++layer) {
    const Tensor wide = world.plus(activation, 1, &activation);
    const Tensor scratch = world.clone(wide);
    activation = world.plus(scratch, 2);
  }
}

TEST(GraphPools, TwentyBatchSizesInOnePoolTakeHardlyMoreThanTheLargest) {
  Device device(false);
  GraphWorld world(device);
  run_model(world, 1);
  EXPECT_TRUE(device.allocator().empty_cache(0).is_ok());
  const PoolId alone{0, 2};
  world.retain(alone);
  std::vector<std::unique_ptr<Graph>> graphs;
  graphs.push_back(world.capture(alone, [&] { run_model(world, 160); }));
  const auto of_largest =
      device.allocator().get_pool_report(0, alone).value().stats.reserved_bytes;
  world.retain(kPool);
  for (std::uint64_t i = 20; i > 0; --i)
    graphs.push_back(world.capture(kPool, [&] { run_model(world, 8 * i); }));
  const auto of_all = device.allocator().get_pool_report(0, kPool).value().stats.reserved_bytes;
  for (auto& graph : graphs)
    world.launch(*graph);
  synchronize_device();
  std::printf("captures=20 reserved of the largest=%lld of all in one pool=%lld\n",
              static_cast<long long>(of_largest.current), static_cast<long long>(of_all.current));
  EXPECT_EQ(of_all.current, of_largest.current);
  graphs.clear();
  world.release(alone);
  world.release(kPool);
  device.allocator().validate();
}

}  // namespace
}  // namespace quarry::gpu
