// SPDX-License-Identifier: Apache-2.0
// Case C97: an index that grows with every size ever seen. The case compares times; here the
// program's heap is watched, since what makes such an index slow is what piles up in it: host
// bytes held, and host allocations per call. A program of its own, because it replaces operator
// new.
#include <malloc.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "tests/support/scenario.hpp"

namespace {

std::atomic<std::int64_t> live_bytes{0};
std::atomic<std::int64_t> allocations{0};

void* take(std::size_t size, std::size_t alignment) {
  void* const memory = std::aligned_alloc(alignment, (size + alignment - 1) & ~(alignment - 1));
  if (memory == nullptr) std::abort();
  live_bytes += static_cast<std::int64_t>(malloc_usable_size(memory));
  ++allocations;
  return memory;
}

void give_back(void* memory) noexcept {
  if (memory == nullptr) return;
  live_bytes -= static_cast<std::int64_t>(malloc_usable_size(memory));
  std::free(memory);
}

}  // namespace

void* operator new(std::size_t size) {
  return take(std::max<std::size_t>(size, 1), alignof(std::max_align_t));
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  return take(std::max<std::size_t>(size, 1), static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept {
  give_back(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  give_back(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  give_back(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  give_back(memory);
}

namespace quarry::test {
namespace {

constexpr std::size_t kSizes = 200'000;
constexpr std::size_t kWindow = 1000;

struct Window {
  std::int64_t host_bytes = 0;        // at its end
  std::int64_t host_allocations = 0;  // in it
  std::uint64_t driver_calls = 0;     // in it
};

std::vector<Bytes> make_sizes() {
  std::vector<Bytes> sizes(kSizes);
  std::iota(sizes.begin(), sizes.end(), Bytes{1});
  std::mt19937_64 random(97);
  std::shuffle(sizes.begin(), sizes.end(), random);
  for (Bytes& size : sizes)
    size *= 512;
  return sizes;
}

Window run_window(Scenario& s, const Bytes* sizes) {
  Allocator& allocator = s.allocator();
  Window window;
  const std::int64_t allocations_before = allocations;
  const std::uint64_t calls_before = s.sim().call_count();
  for (std::size_t i = 0; i < kWindow; ++i) {
    const auto p = allocator.allocate({0, kS0}, sizes[i]);
    EXPECT_TRUE(p.is_ok());
    EXPECT_TRUE(allocator.free(p.value()).is_ok());
  }
  EXPECT_TRUE(allocator.empty_cache(0).is_ok());
  window.host_bytes = live_bytes;
  window.host_allocations = allocations - allocations_before;
  window.driver_calls = s.sim().call_count() - calls_before;
  return window;
}

TEST(C97, HostMemoryAndStepsDoNotGrowWithTheSizesEverSeen) {
  ScenarioOptions options;
  options.sim.oracle = false;
  options.sim.reuse_addresses = true;  // or the simulator's own book would grow
  Scenario s(options);
  const std::vector<Bytes> sizes = make_sizes();
  const std::int64_t bytes_before = live_bytes;
  std::vector<Window> windows;
  windows.reserve(kSizes / kWindow);
  for (std::size_t first = 0; first < kSizes; first += kWindow)
    windows.push_back(run_window(s, sizes.data() + first));

  const DeviceStats stats = s.stats();
  EXPECT_EQ(stats.segment.all.current, 0);
  EXPECT_EQ(stats.reserved_bytes.all.current, 0);
  EXPECT_EQ(stats.active.all.current, 0);
  EXPECT_EQ(stats.cached_bytes, 0);
  EXPECT_EQ(stats.num_ooms, 0);

  const Window& first = windows.front();
  const Window& last = windows.back();
  EXPECT_LE(last.host_bytes - bytes_before, 10'000'000);
  // Nothing is kept for a size: what a window of a thousand sizes needed is enough for the rest.
  // The slack is for the page of bins that holds the rarer small sizes, and for the first table of
  // each of the pointer map's 2,048 shards, which are met by address. A word a size is more.
  constexpr std::int64_t kSlack = 65'536 + 2048 * 320;
  static_assert(kSlack < static_cast<std::int64_t>((kSizes - kWindow) * sizeof(void*)));
  EXPECT_LE(last.host_bytes - first.host_bytes, kSlack);
  EXPECT_LE(last.host_allocations, first.host_allocations * 3 / 2);
  EXPECT_LE(last.driver_calls, first.driver_calls * 3 / 2);
}

ScenarioOptions make_cached() {
  ScenarioOptions options;
  options.config.thread_cache = true;
  return options;
}

// Threads that come and go, as those of a server do: what the device keeps for one ends with it.
TEST(HostMemoryTest, ThreadsThatEndedLeaveNothingBehind) {
  Scenario s(make_cached());
  const auto run_threads = [&s](int count) {
    for (int i = 0; i < count; ++i) {
      std::thread([&s] {
        const auto p = s.allocator().allocate({0, kS0}, 4096);
        EXPECT_TRUE(s.allocator().free(p.value()).is_ok());
      }).join();
    }
    return live_bytes.load();
  };
  const std::int64_t before = run_threads(100);
  EXPECT_LE(run_threads(2000) - before, 65'536);
}

// A thread that outlives allocators keeps nothing of those that ended.
TEST(HostMemoryTest, AllocatorsThatEndedLeaveNothingWithALivingThread) {
  const auto run_allocators = [](int count) {
    for (int i = 0; i < count; ++i) {
      Scenario s(make_cached());
      s.free(s.malloc(4096));
    }
    return live_bytes.load();
  };
  const std::int64_t before = run_allocators(10);
  EXPECT_LE(run_allocators(200) - before, 65'536);
}

struct Kept {
  Scenario& scenario;
  Address block;
};

// A thread's first call may be a free from the destructor of a POSIX key, when its C++ objects
// have been destroyed already.
TEST(HostMemoryTest, ThreadsThatOnlyFreeAtTheirEndLeaveNothingBehind) {
  Scenario s(make_cached());
  pthread_key_t key{};
  ASSERT_EQ(pthread_key_create(&key,
                               [](void* data) {
                                 const auto* kept = static_cast<Kept*>(data);
                                 EXPECT_TRUE(kept->scenario.allocator().free(kept->block).is_ok());
                               }),
            0);
  const auto run_threads = [&](int count) {
    for (int i = 0; i < count; ++i) {
      Kept kept{s, s.allocator().allocate({0, kS0}, 4096).value()};
      std::thread([&] { EXPECT_EQ(pthread_setspecific(key, &kept), 0); }).join();
    }
    return live_bytes.load();
  };
  const std::int64_t before = run_threads(100);
  EXPECT_LE(run_threads(2000) - before, 65'536);
  EXPECT_EQ(pthread_key_delete(key), 0);
}

}  // namespace
}  // namespace quarry::test
