// SPDX-License-Identifier: Apache-2.0
// Data integrity on the real device: kernels fill each block with a pattern of its own and check
// it before it is freed, over several streams and threads, with foreign uses, frees by other
// threads, trims and full memory, with magazines and without. A block that is handed out while
// somebody still uses it shows as wrong words.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/gpu/gpu_device.hpp"

namespace quarry::gpu {
namespace {

std::uint64_t get_block_count() {
  const char* const text = std::getenv("QUARRY_GPU_BLOCKS");
  return text == nullptr ? 1'000'000 : std::stoull(text);
}

struct LiveBlock {
  Address address;
  Bytes bytes;
  std::uint32_t value;
  StreamRef stream;
};

// How a program is run. The parts of all of them sum up to more than all blocks.
struct Load {
  const char* name;
  int threads;
  bool thread_cache;  // at the start
  std::uint64_t percent_of_blocks;
  Bytes limit_bytes = kUnlimited;
  bool toggles_thread_cache = false;
  bool is_expandable = false;
};

// What came of all threads together.
struct Totals {
  std::atomic<std::uint64_t> blocks{0};
  std::atomic<std::uint64_t> foreign_uses{0};
  std::atomic<std::uint64_t> foreign_frees{0};
  std::atomic<std::uint64_t> trims{0};
  std::atomic<std::uint64_t> ooms{0};
};

// What the threads of one load share.
class World {
 public:
  explicit World(const Load& load)
      : device_(load.thread_cache, load.is_expandable), everyone_(load.threads), load_(load) {
    EXPECT_TRUE(device_.allocator().set_limit(0, load.limit_bytes).is_ok());
  }
  ~World() { device_.end_stream(shared_stream_); }

  Device& device() { return device_; }
  Allocator& allocator() { return device_.allocator(); }
  const Load& load() const { return load_; }
  Totals& totals() { return totals_; }
  StreamRef shared_stream() const { return shared_stream_; }
  void wait_for_everyone() { everyone_.arrive_and_wait(); }

  // Blocks that another thread than theirs gives up.
  void post(const LiveBlock& block) {
    std::lock_guard lock(mutex_);
    posted_.push_back(block);
  }
  std::optional<LiveBlock> fetch() {
    std::lock_guard lock(mutex_);
    if (posted_.empty()) return std::nullopt;
    const LiveBlock block = posted_.back();
    posted_.pop_back();
    return block;
  }

 private:
  Device device_;
  StreamRef shared_stream_ = make_stream(true);
  std::barrier<> everyone_;
  const Load load_;
  Totals totals_;
  std::mutex mutex_;
  std::vector<LiveBlock> posted_;
};

// One thread's random program over streams of its own and one that all share.
class Program {
 public:
  Program(World& world, std::uint64_t seed)
      : world_(world), allocator_(world.allocator()), random_(seed) {
    for (StreamRef& stream : own_)
      stream = make_stream();
  }
  ~Program() {
    for (StreamRef stream : own_)
      world_.device().end_stream(stream);
  }

  void run(std::uint64_t blocks) {
    for (std::uint64_t made = 0; made < blocks;) {
      if (live_.size() >= kLiveMax || (!live_.empty() && draw(5) == 0)) {
        give_up_one();
        continue;
      }
      if (draw(16) == 0) take_from_others();
      made += make_block() ? 1 : 0;
      change_something();
    }
    while (!live_.empty())
      give_up_one();
    // Streams live until nobody works on them any more.
    world_.wait_for_everyone();
    while (const auto block = world_.fetch())
      give_up(*block);
    world_.wait_for_everyone();
    world_.totals().blocks += blocks;
  }

 private:
  static constexpr std::size_t kLiveMax = 256;

  std::uint64_t draw(std::uint64_t below) { return random_() % below; }

  // Half of them are of few sizes, as magazines need it; the others log-uniform: mostly small,
  // sometimes up to 128 MiB.
  Bytes draw_bytes() {
    constexpr Bytes kPopular[] = {512, 4096, 40'000, 1_MiB, 3_MiB, 16_MiB};
    if (draw(2) == 0) return kPopular[draw(draw(20) == 0 ? 6 : 4)];
    return (Bytes{4} << draw(draw(50) == 0 ? 24 : 17)) * (1 + draw(4));
  }

  void change_something() {
    if (draw(20'000) == 0) {
      EXPECT_TRUE(allocator_.empty_cache(0).is_ok());
      ++world_.totals().trims;
    }
    if (world_.load().toggles_thread_cache && draw(500) == 0) {
      allocator_.configure(make_config(draw(2) == 0, world_.load().is_expandable));
    }
  }

  bool make_block() {
    const StreamRef stream = draw(8) == 0 ? world_.shared_stream() : own_[draw(own_.size())];
    const Bytes bytes = draw_bytes();
    const auto address = allocator_.allocate(stream, bytes);
    if (!address.is_ok()) {
      EXPECT_EQ(address.code(), StatusCode::kOutOfMemory) << address.status().message();
      ++world_.totals().ooms;
      if (!live_.empty()) give_up_one();
      return false;
    }
    const auto value = static_cast<std::uint32_t>(random_());
    fill(address.value(), bytes, value, get_handle(stream));
    live_.push_back({address.value(), bytes, value, stream});
    return true;
  }

  void give_up_one() {
    const std::size_t index = draw(live_.size());
    const LiveBlock block = live_[index];
    live_[index] = live_.back();
    live_.pop_back();
    if (world_.load().threads > 1 && draw(6) == 0) return world_.post(block);
    give_up(block);
  }

  void take_from_others() {
    const auto block = world_.fetch();
    if (!block) return;
    ++world_.totals().foreign_frees;
    give_up(*block);
  }

  // Checks the block once more, sometimes on another stream, and frees it.
  void give_up(const LiveBlock& block) {
    check(block.address, block.bytes, block.value, get_handle(block.stream));
    if (draw(4) == 0) {
      const StreamRef other = own_[draw(own_.size())];
      order(get_handle(block.stream), get_handle(other));
      check(block.address, block.bytes, block.value, get_handle(other));
      EXPECT_TRUE(allocator_.record_stream(block.address, other.handle).is_ok());
      ++world_.totals().foreign_uses;
    }
    EXPECT_TRUE(allocator_.free(block.address).is_ok());
  }

  World& world_;
  Allocator& allocator_;
  std::mt19937_64 random_;
  std::array<StreamRef, 3> own_;
  std::vector<LiveBlock> live_;
};

void print(const World& world, const Totals& totals, const DeviceStats& stats,
           std::uint64_t wrong_words) {
  const auto number = [](auto value) { return static_cast<long long>(value); };
  std::printf(
      "blocks=%lld load=%s threads=%d foreign_uses=%lld foreign_frees=%lld trims=%lld "
      "retries=%lld "
      "ooms=%lld segments=%lld peak_allocated=%lld peak_reserved=%lld moved=%lld waits=%lld "
      "wrong_words=%lld\n",
      number(totals.blocks.load()), world.load().name, world.load().threads,
      number(totals.foreign_uses.load()), number(totals.foreign_frees.load()),
      number(totals.trims.load()), number(stats.num_alloc_retries), number(totals.ooms.load()),
      number(stats.num_device_alloc), number(stats.allocated_bytes.all.peak),
      number(stats.reserved_bytes.all.peak), number(stats.extents_moved),
      number(stats.stream_waits), number(wrong_words));
  std::fflush(stdout);
}

class GpuIntegrity : public testing::TestWithParam<Load> {};

TEST_P(GpuIntegrity, BlocksKeepTheirWordsUntilTheyAreFreed) {
  const Load& load = GetParam();
  World world(load);
  const auto threads = static_cast<std::uint64_t>(load.threads);
  const std::uint64_t blocks = get_block_count() * load.percent_of_blocks / 100;
  std::vector<std::thread> workers;
  for (std::uint64_t t = 0; t < threads; ++t)
    workers.emplace_back([&, t] { Program(world, t + 1).run(blocks / threads + 1); });
  for (std::thread& worker : workers)
    worker.join();
  const std::uint64_t wrong_words = take_wrong_words();
  EXPECT_EQ(wrong_words, 0u);
  world.allocator().validate();
  const DeviceStats busy = world.device().stats();
  print(world, world.totals(), busy, wrong_words);
  EXPECT_EQ(busy.allocated_bytes.all.current, 0);
  // A run of some size meets all that it is meant to meet.
  if (blocks >= 100'000) {
    EXPECT_GT(world.totals().foreign_uses, 0u);
    EXPECT_EQ(world.totals().foreign_frees > 0, load.threads > 1);
    EXPECT_EQ(busy.num_alloc_retries > 0, load.limit_bytes != kUnlimited);
    EXPECT_EQ(busy.extents_moved > 0, load.is_expandable);
  }
  EXPECT_TRUE(world.allocator().empty_cache(0).is_ok());
  EXPECT_EQ(world.device().reserved(), 0u);
}

INSTANTIATE_TEST_SUITE_P(
    Load, GpuIntegrity,
    testing::Values(Load{"OneThread", 1, true, 10}, Load{"OneThreadNoMagazines", 1, false, 10},
                    Load{"EightThreads", 8, true, 40},
                    Load{"EightThreadsNoMagazines", 8, false, 20},
                    Load{"SixteenThreads", 16, true, 20}, Load{"LittleMemory", 4, true, 15, 1_GiB},
                    Load{"LittleMemoryNoMagazines", 4, false, 15, 1_GiB},
                    Load{"MagazinesOnAndOff", 8, true, 10, kUnlimited, true},
                    Load{"ExpandableOneThread", 1, true, 10, kUnlimited, false, true},
                    Load{"ExpandableOneThreadNoMagazines", 1, false, 10, kUnlimited, false, true},
                    Load{"ExpandableEightThreads", 8, true, 30, kUnlimited, false, true},
                    Load{"ExpandableSixteenThreads", 16, true, 10, kUnlimited, true, true},
                    Load{"ExpandableLittleMemory", 4, true, 10, 1_GiB, false, true}),
    [](const auto& tested) { return tested.param.name; });

// --- Out of memory for real --------------------------------------------------------------------

class GpuOutOfMemory : public testing::TestWithParam<bool> {
 protected:
  Device device_{GetParam()};
  const StreamRef stream_ = make_stream();
};

TEST_P(GpuOutOfMemory, ARequestLargerThanTheCardIsRefusedAndTheBlocksKeepTheirWords) {
  constexpr Bytes kBlock = 64_MiB;
  std::array<Address, 8> blocks{};
  for (std::uint32_t i = 0; i < blocks.size(); ++i)
    blocks[i] = device_.allocate_filled(stream_, kBlock, i + 1);
  const MemoryInfo card = device_.driver().get_memory_info(0).value;
  for (const Bytes bytes : {card.total_bytes + 2_MiB, card.total_bytes, 4 * card.total_bytes}) {
    const auto refused = device_.allocator().allocate(stream_, bytes);
    ASSERT_FALSE(refused.is_ok());
    EXPECT_EQ(refused.code(), StatusCode::kOutOfMemory) << refused.status().message();
    EXPECT_NE(refused.status().message().find("CUDA out of memory"), std::string::npos);
  }
  EXPECT_EQ(device_.stats().num_ooms, 3);
  EXPECT_EQ(device_.reserved(), blocks.size() * kBlock);
  for (std::uint32_t i = 0; i < blocks.size(); ++i) {
    check(blocks[i], kBlock, i + 1, get_handle(stream_));
    device_.free(blocks[i]);
  }
  EXPECT_EQ(take_wrong_words(), 0u);
  device_.end_stream(stream_);
}

// The card has room for it only once the cache has gone back: also what other streams cached, and
// what this thread has parked.
TEST_P(GpuOutOfMemory, ARequestThatNeedsTheCachesRoomGetsIt) {
  constexpr Bytes kBlock = 256_MiB;
  const StreamRef other = make_stream();
  std::vector<Address> cached;
  for (std::uint32_t i = 0; i < 16; ++i)
    cached.push_back(device_.allocate_filled(i % 2 == 0 ? other : stream_, kBlock, i));
  for (const Address address : cached)
    device_.free(address);
  const Bytes wanted = device_.driver_free_bytes() + 8 * kBlock;
  const auto large = device_.allocator().allocate(stream_, wanted);
  ASSERT_TRUE(large.is_ok()) << large.status().message();
  EXPECT_EQ(device_.stats().num_alloc_retries, 1);
  EXPECT_EQ(device_.stats().num_ooms, 0);
  // Both ends of it are memory.
  for (const Address end : {large.value(), large.value() + (wanted - 64_MiB) / 512 * 512}) {
    fill(end, 64_MiB, 7, get_handle(stream_));
    check(end, 64_MiB, 7, get_handle(stream_));
  }
  EXPECT_EQ(take_wrong_words(), 0u);
  device_.free(large.value());
  EXPECT_TRUE(device_.allocator().empty_cache(0).is_ok());
  EXPECT_EQ(device_.reserved(), 0u);
  for (const StreamRef stream : {other, stream_})
    device_.end_stream(stream);
}

INSTANTIATE_TEST_SUITE_P(ThreadCache, GpuOutOfMemory, testing::Bool(), [](const auto& tested) {
  return std::string(tested.param ? "On" : "Off");
});

}  // namespace
}  // namespace quarry::gpu
