// SPDX-License-Identifier: Apache-2.0
// The C API over private pools: functions of the caller's behind a pool, the list of pools, the
// kill switch, and threads.
#include <atomic>
#include <map>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#include "quarry/quarry_pool.h"
#include "tests/unit/api/api_fixture.hpp"

namespace quarry {
namespace {

using testing_support::ApiTest;
using testing_support::error_says;
using testing_support::make_stream;

// The caller's functions: addresses out of nowhere, and what was asked.
struct Backend {
  std::mutex mutex;  // threads may call at once
  std::map<void*, std::size_t> held;
  std::uint64_t next = std::uint64_t{1} << 40;
  int allocs = 0, frees = 0, unused = 0;
  int device = -1;
  quarry_stream stream = nullptr;
  bool throws = false;
  bool asks_for_shutdown = false;

  void misbehave() const {
    if (asks_for_shutdown) {
      EXPECT_EQ(quarry_shutdown(), QUARRY_ERROR_BUSY);
    }
    if (throws) throw std::runtime_error("the backend threw");
  }
  static void* allocate(std::size_t bytes, int device, quarry_stream stream, void* user) {
    auto& self = *static_cast<Backend*>(user);
    const std::lock_guard lock(self.mutex);
    ++self.allocs;
    self.device = device;
    self.stream = stream;
    self.misbehave();
    void* ptr = reinterpret_cast<void*>(self.next);
    self.next += bytes;
    self.held[ptr] = bytes;
    return ptr;
  }
  static void free(void* ptr, std::size_t bytes, int device, quarry_stream stream, void* user) {
    auto& self = *static_cast<Backend*>(user);
    const std::lock_guard lock(self.mutex);
    ++self.frees;
    EXPECT_EQ(device, self.device);
    EXPECT_EQ(stream, self.stream);
    EXPECT_EQ(self.held[ptr], bytes);
    self.held.erase(ptr);
    self.misbehave();
  }
  static void forget(void* user) {
    auto& self = *static_cast<Backend*>(user);
    const std::lock_guard lock(self.mutex);
    EXPECT_TRUE(self.held.empty());
    ++self.unused;
    self.misbehave();
  }
  quarry_pool make_pool(int of_device = 0) {
    quarry_pool_options options = {};
    options.struct_size = sizeof(options);
    options.allocate = allocate;
    options.free = free;
    options.unused = forget;
    options.user = this;
    quarry_pool pool = QUARRY_POOL_DEFAULT;
    EXPECT_EQ(quarry_pool_create(of_device, &options, &pool), QUARRY_OK);
    return pool;
  }
};

class PoolBackend : public ApiTest {
 protected:
  static void* take(quarry_pool pool, std::size_t bytes, quarry_stream stream = nullptr) {
    void* ptr = nullptr;
    EXPECT_EQ(quarry_pool_malloc(pool, &ptr, bytes, stream), QUARRY_OK) << quarry_get_last_error();
    return ptr;
  }
  Backend backend_;
};

TEST_F(PoolBackend, SegmentsComeFromItAndGoBackWithTheLastBlock) {
  const quarry_pool pool = backend_.make_pool(1);
  const quarry_stream side = make_stream(2);
  void* first = take(pool, 4_MiB, side);
  void* second = take(pool, 4_MiB, side);
  EXPECT_EQ(backend_.allocs, 1);
  EXPECT_EQ(backend_.held.begin()->first, first);
  EXPECT_EQ(backend_.device, 1);
  EXPECT_EQ(backend_.stream, side);
  EXPECT_EQ(sim().call_count(DriverEntry::kAllocate), 0u);
  EXPECT_EQ(stat("reserved_bytes.all.current", 1), static_cast<std::int64_t>(20_MiB));
  quarry_free(first);
  ASSERT_EQ(quarry_pool_release(pool), QUARRY_OK);
  EXPECT_EQ(backend_.frees, 0);
  quarry_free(second);
  EXPECT_EQ(backend_.frees, 1);
  EXPECT_EQ(backend_.unused, 1);
}

TEST_F(PoolBackend, ATrimGivesBackWhatIsFree) {
  const quarry_pool pool = backend_.make_pool();
  quarry_free(take(pool, 4_MiB));
  ASSERT_EQ(quarry_pool_trim(pool), QUARRY_OK);
  EXPECT_EQ(backend_.frees, 1);
  EXPECT_EQ(backend_.unused, 0);
  ASSERT_EQ(quarry_pool_release(pool), QUARRY_OK);
  EXPECT_EQ(backend_.unused, 1);
}

TEST_F(PoolBackend, AThrowOutOfAllocateIsNoMore) {
  const quarry_pool pool = backend_.make_pool();
  backend_.throws = true;
  void* ptr = &ptr;
  testing::internal::CaptureStderr();
  EXPECT_EQ(quarry_pool_malloc(pool, &ptr, 4_MiB, nullptr), QUARRY_ERROR_OUT_OF_MEMORY);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("the backend threw"), std::string::npos);
  EXPECT_EQ(ptr, nullptr);
  EXPECT_TRUE(error_says("gets its memory from gave no more"));
  EXPECT_GE(backend_.allocs, 1);
  backend_.throws = false;
  quarry_free(take(pool, 4_MiB));
  ASSERT_EQ(quarry_pool_release(pool), QUARRY_OK);
  EXPECT_EQ(backend_.unused, 1);
}

TEST_F(PoolBackend, AThrowOutOfFreeOrUnusedIsLoggedAndGoesNoFurther) {
  const quarry_pool pool = backend_.make_pool();
  void* ptr = take(pool, 4_MiB);
  ASSERT_EQ(quarry_pool_release(pool), QUARRY_OK);
  backend_.throws = true;
  testing::internal::CaptureStderr();
  quarry_free(ptr);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("the backend threw"), log.rfind("the backend threw"));
  EXPECT_EQ(backend_.frees, 1);
  EXPECT_EQ(backend_.unused, 1);
  EXPECT_EQ(stat("reserved_bytes.all.current"), 0);
  EXPECT_EQ(stat("driver_free_failures"), 0);
}

TEST_F(PoolBackend, TheLibraryCannotBeShutDownFromInside) {
  backend_.asks_for_shutdown = true;
  const quarry_pool pool = backend_.make_pool();
  quarry_free(take(pool, 4_MiB));
  ASSERT_EQ(quarry_pool_release(pool), QUARRY_OK);
  EXPECT_EQ(backend_.allocs + backend_.frees + backend_.unused, 3);
}

TEST_F(PoolBackend, MemoryOfTheLibraryItselfIsRefused) {
  quarry_pool_options options = {};
  options.struct_size = sizeof(options);
  options.allocate = [](std::size_t bytes, int device, quarry_stream stream, void*) {
    void* ptr = nullptr;
    quarry_malloc(&ptr, bytes, device, stream);
    return ptr;
  };
  options.free = [](void* ptr, std::size_t, int, quarry_stream, void*) { quarry_free(ptr); };
  quarry_pool pool = QUARRY_POOL_DEFAULT;
  ASSERT_EQ(quarry_pool_create(0, &options, &pool), QUARRY_OK);
  void* ptr = nullptr;
  // It would be a segment inside a segment, and belong to two users.
  EXPECT_EQ(quarry_pool_malloc(pool, &ptr, 4_MiB, nullptr), QUARRY_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(ptr, nullptr);
}

TEST_F(PoolBackend, AShutdownGivesEverySegmentBack) {
  const quarry_pool pool = backend_.make_pool();
  take(pool, 4_MiB);
  quarry_free(take(pool, 100_MiB));
  ASSERT_EQ(quarry_shutdown(), QUARRY_OK);
  EXPECT_EQ(backend_.frees, 2);
  EXPECT_EQ(backend_.unused, 1);
  EXPECT_EQ(quarry_pool_release(pool), QUARRY_ERROR_SHUT_DOWN);
  start({});
  EXPECT_EQ(quarry_pool_release(pool), QUARRY_ERROR_INVALID_ARGUMENT);
}

TEST_F(PoolBackend, APoolThatCannotBeMadeCallsNobody) {
  quarry_pool_options options = {};
  options.struct_size = sizeof(options);
  options.unused = Backend::forget;
  options.user = &backend_;
  quarry_pool pool = QUARRY_POOL_DEFAULT;
  EXPECT_EQ(quarry_pool_create(9, &options, &pool), QUARRY_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(backend_.unused, 0);
}

// --- The list ---

TEST_F(PoolBackend, TheListShowsEveryPoolOfTheDevice) {
  const quarry_pool pool = backend_.make_pool();
  backend_.make_pool(1);
  ASSERT_TRUE(peek_allocator()->retain_pool(0, {0, 5}).is_ok());  // as PyTorch names them
  ASSERT_TRUE(peek_allocator()->retain_pool(0, {3, 0}).is_ok());
  take(pool, 4_MiB);
  std::vector<quarry_pool_stats> seen;
  const quarry_pool_visitor keep = [](const quarry_pool_stats* stats, void* user) {
    EXPECT_EQ(stats->struct_size, sizeof(*stats));
    static_cast<std::vector<quarry_pool_stats>*>(user)->push_back(*stats);
  };
  ASSERT_EQ(quarry_for_each_pool(0, keep, &seen), QUARRY_OK);
  ASSERT_EQ(seen.size(), 3u);
  EXPECT_EQ(seen[0].pool, QUARRY_POOL_DEFAULT);
  EXPECT_EQ(seen[0].id_first, 0u);
  EXPECT_EQ(seen[0].id_second, 5u);
  EXPECT_EQ(seen[1].id_first, 3u);
  EXPECT_EQ(seen[2].pool, pool);
  EXPECT_EQ(seen[2].id_first, 0u);
  EXPECT_EQ(seen[2].id_second, 0u);
  EXPECT_EQ(seen[2].allocated_blocks, 1);
  EXPECT_EQ(quarry_for_each_pool(9, keep, &seen), QUARRY_ERROR_INVALID_ARGUMENT);
}

// --- The kill switch ---

TEST_F(PoolBackend, TheKillSwitchHasNoPools) {
  ASSERT_EQ(quarry_shutdown(), QUARRY_OK);
  ProcessOptions options;
  options.is_disabled = true;
  start(options);
  quarry_pool pool = 1;
  void* ptr = &pool;
  quarry_pool_stats stats = {};
  stats.struct_size = sizeof(stats);
  const quarry_pool_visitor visitor = [](const quarry_pool_stats*, void*) { FAIL(); };
  const quarry_pool_filter filter = [](quarry_stream, void*) { return 1; };
  const quarry_status all[] = {
      quarry_pool_create(0, nullptr, &pool),
      quarry_pool_retain(pool),
      quarry_pool_begin_thread(pool),
      quarry_pool_begin_stream(pool, make_stream(2)),
      quarry_pool_begin_capture(pool, make_stream(2)),
      quarry_pool_begin_filter(pool, filter, nullptr),
      quarry_pool_end(pool),
      quarry_pool_malloc(pool, &ptr, 512, nullptr),
      quarry_pool_malloc_aligned(pool, &ptr, 512, 512, nullptr),
      quarry_pool_trim(pool),
      quarry_pool_set_limit(pool, 1),
      quarry_pool_get_stats(pool, &stats),
      quarry_for_each_pool(0, visitor, nullptr),
      quarry_pool_release(pool),
  };
  for (const quarry_status status : all)
    EXPECT_EQ(status, QUARRY_ERROR_NOT_SUPPORTED);
  EXPECT_TRUE(error_says("kill switch (QUARRY_DISABLE=1)"));
  EXPECT_EQ(ptr, nullptr);
  EXPECT_EQ(pool, 1u);
}

// --- Threads ---

TEST_F(PoolBackend, ThreadsMakeBeginAndReleasePoolsOfTheirOwn) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([] {
      for (int round = 0; round < 200; ++round) {
        quarry_pool pool = QUARRY_POOL_DEFAULT;
        EXPECT_EQ(quarry_pool_create(0, nullptr, &pool), QUARRY_OK);
        EXPECT_EQ(quarry_pool_begin_thread(pool), QUARRY_OK);
        void* ptr = nullptr;
        EXPECT_EQ(quarry_malloc(&ptr, 1000, 0, nullptr), QUARRY_OK);
        quarry_pool_stats stats = {};
        stats.struct_size = sizeof(stats);
        EXPECT_EQ(quarry_pool_get_stats(pool, &stats), QUARRY_OK);
        EXPECT_EQ(stats.allocated_blocks, 1);
        EXPECT_EQ(quarry_pool_end(pool), QUARRY_OK);
        EXPECT_EQ(quarry_pool_release(pool), QUARRY_OK);
        quarry_free(ptr);
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  ASSERT_EQ(quarry_empty_cache(0), QUARRY_OK);
  EXPECT_EQ(sim().get_holdings(0).plain_allocations, 0u);
}

// What the filter's user points to goes as soon as the end has returned.
TEST_F(PoolBackend, ThreadsBeginAndEndOnePoolWhileOthersAllocate) {
  const quarry_pool pool = backend_.make_pool();
  std::atomic<int> begun{0};
  std::atomic<bool> is_over{false};
  const auto allocate_on = [&] {
    while (!is_over.load()) {
      void* ptr = nullptr;
      EXPECT_EQ(quarry_malloc(&ptr, 1000, 0, nullptr), QUARRY_OK);
      quarry_free(ptr);
    }
  };
  const auto begin_and_end = [&] {
    const quarry_pool_filter filter = [](quarry_stream, void* user) {
      return static_cast<std::atomic<int>*>(user)->load();
    };
    for (int round = 0; round < 500; ++round) {
      auto accepts = std::make_unique<std::atomic<int>>(round % 2);
      const quarry_status status = quarry_pool_begin_filter(pool, filter, accepts.get());
      if (status == QUARRY_ERROR_BUSY) continue;
      EXPECT_EQ(status, QUARRY_OK);
      EXPECT_EQ(begun.fetch_add(1), 0);
      EXPECT_EQ(begun.fetch_sub(1), 1);
      EXPECT_EQ(quarry_pool_end(pool), QUARRY_OK);
    }
  };
  std::thread first(allocate_on), second(allocate_on);
  std::thread third(begin_and_end), fourth(begin_and_end);
  third.join();
  fourth.join();
  is_over = true;
  first.join();
  second.join();
  EXPECT_EQ(stat("allocation.all.current"), 0);
  ASSERT_EQ(quarry_pool_release(pool), QUARRY_OK);
  EXPECT_EQ(backend_.unused, 1);
}

// A route to a pool that is gone would have requests ask for it for ever.
TEST_F(PoolBackend, APoolMayBeReleasedWhileAnotherThreadBeginsIt) {
  for (int round = 0; round < 500; ++round) {
    quarry_pool pool = QUARRY_POOL_DEFAULT;
    ASSERT_EQ(quarry_pool_create(0, nullptr, &pool), QUARRY_OK);
    std::thread other([pool] { static_cast<void>(quarry_pool_begin_thread(pool)); });
    EXPECT_EQ(quarry_pool_release(pool), QUARRY_OK);
    other.join();
    EXPECT_EQ(quarry_pool_end(pool), QUARRY_ERROR_INVALID_ARGUMENT);
    const quarry_pool_filter all = [](quarry_stream, void*) { return 1; };
    ASSERT_EQ(quarry_pool_create(0, nullptr, &pool), QUARRY_OK);
    std::thread third([&] { static_cast<void>(quarry_pool_begin_filter(pool, all, nullptr)); });
    EXPECT_EQ(quarry_pool_release(pool), QUARRY_OK);
    third.join();
    quarry_free(allocate(1000));
  }
}

}  // namespace
}  // namespace quarry
