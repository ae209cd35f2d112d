// SPDX-License-Identifier: Apache-2.0
// The C API over private pools: whose requests they serve, what they tell, and every way to get it
// wrong. Functions of the caller's behind a pool are in pool_backend_test.cpp.
#include <atomic>
#include <functional>
#include <latch>
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

class PoolApi : public ApiTest {
 protected:
  quarry_pool make_pool(std::uint32_t flags = 0, std::uint64_t limit = 0, int device = 0) {
    quarry_pool_options options = {};
    options.struct_size = sizeof(options);
    options.flags = flags;
    options.limit_bytes = limit;
    quarry_pool pool = QUARRY_POOL_DEFAULT;
    EXPECT_EQ(quarry_pool_create(device, &options, &pool), QUARRY_OK) << quarry_get_last_error();
    return pool;
  }
  void* take(quarry_pool pool, std::size_t bytes, quarry_stream stream = nullptr) {
    void* ptr = nullptr;
    EXPECT_EQ(quarry_pool_malloc(pool, &ptr, bytes, stream), QUARRY_OK) << quarry_get_last_error();
    return ptr;
  }
  static quarry_pool_stats stats(quarry_pool pool) {
    quarry_pool_stats found = {};
    found.struct_size = sizeof(found);
    EXPECT_EQ(quarry_pool_get_stats(pool, &found), QUARRY_OK) << quarry_get_last_error();
    return found;
  }
  static std::int64_t blocks(quarry_pool pool) { return stats(pool).allocated_blocks; }
  quarry_stream make_side_stream() {
    const StreamRef made = sim().create_stream(0, sim::StreamKind::kNonBlocking);
    return make_stream(static_cast<std::uint64_t>(made.handle));
  }
  static StreamRef to_ref(quarry_stream stream) {
    return {0, StreamHandle{reinterpret_cast<std::uint64_t>(stream)}};
  }
};

// --- Handles ---

TEST_F(PoolApi, AHandleNamesItsDeviceAndIsNeverUsedAgain) {
  const quarry_pool first = make_pool();
  const quarry_pool other = make_pool(0, 0, 1);
  EXPECT_NE(first, QUARRY_POOL_DEFAULT);
  EXPECT_NE(other, first);
  quarry_block_info info = {};
  info.struct_size = sizeof(info);
  ASSERT_EQ(quarry_get_block_info(take(other, 1000), &info), QUARRY_OK);
  EXPECT_EQ(info.device, 1);
  EXPECT_EQ(stats(other).device, 1);
  ASSERT_EQ(quarry_pool_release(first), QUARRY_OK);
  EXPECT_NE(make_pool(), first);
  EXPECT_EQ(quarry_pool_retain(first), QUARRY_ERROR_INVALID_ARGUMENT);
}

using Call = std::function<quarry_status(quarry_pool)>;

int accept_all(quarry_stream, void*) {
  return 1;
}

// Every function that takes a pool, with arguments that are right.
std::vector<Call> all_calls() {
  static void* ptr;
  static quarry_pool_stats stats;
  stats.struct_size = sizeof(stats);
  return {
      quarry_pool_retain,
      quarry_pool_begin_thread,
      [](quarry_pool pool) { return quarry_pool_begin_stream(pool, make_stream(7)); },
      [](quarry_pool pool) { return quarry_pool_begin_capture(pool, make_stream(7)); },
      [](quarry_pool pool) { return quarry_pool_begin_filter(pool, accept_all, nullptr); },
      [](quarry_pool pool) { return quarry_pool_malloc(pool, &ptr, 512, nullptr); },
      [](quarry_pool pool) { return quarry_pool_malloc_aligned(pool, &ptr, 1, 4096, nullptr); },
      quarry_pool_trim,
      [](quarry_pool pool) { return quarry_pool_set_limit(pool, QUARRY_UNLIMITED); },
      [](quarry_pool pool) { return quarry_pool_get_stats(pool, &stats); },
      quarry_pool_release};
}

TEST_F(PoolApi, EveryCallRefusesWhatIsNoPool) {
  const quarry_pool released = make_pool();
  ASSERT_EQ(quarry_pool_release(released), QUARRY_OK);
  EXPECT_EQ(quarry_pool_end(released), QUARRY_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(quarry_pool_end(QUARRY_POOL_DEFAULT), QUARRY_ERROR_INVALID_ARGUMENT);
  for (const Call& call : all_calls()) {
    EXPECT_EQ(call(QUARRY_POOL_DEFAULT), QUARRY_ERROR_INVALID_ARGUMENT);
    EXPECT_TRUE(error_says("pool is QUARRY_POOL_DEFAULT"));
    EXPECT_EQ(call(released), QUARRY_ERROR_INVALID_ARGUMENT);
    EXPECT_TRUE(error_says("pool " + std::to_string(released) + " of device 0 does not exist"));
    EXPECT_EQ(call(~quarry_pool{0}), QUARRY_ERROR_INVALID_ARGUMENT);
    EXPECT_TRUE(error_says("which quarry_pool_create never returned"));
  }
}

TEST_F(PoolApi, AReleasedPoolWithABlockServesNobodyButTellsItsFigures) {
  const quarry_pool pool = make_pool();
  void* ptr = take(pool, 4_MiB);
  ASSERT_EQ(quarry_pool_release(pool), QUARRY_OK);
  EXPECT_EQ(stats(pool).use_count, 0);
  EXPECT_EQ(quarry_pool_retain(pool), QUARRY_ERROR_INVALID_ARGUMENT);
  EXPECT_TRUE(error_says("was released"));
  void* refused = &ptr;
  EXPECT_EQ(quarry_pool_malloc(pool, &refused, 512, nullptr), QUARRY_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(refused, nullptr);
  EXPECT_EQ(quarry_free_checked(ptr), QUARRY_OK);
  EXPECT_EQ(sim().get_holdings(0).plain_allocations, 1u);
  ASSERT_EQ(quarry_pool_trim(pool), QUARRY_OK);
  EXPECT_EQ(sim().get_holdings(0).plain_allocations, 0u);
  quarry_pool_stats gone = {};
  gone.struct_size = sizeof(gone);
  EXPECT_EQ(quarry_pool_get_stats(pool, &gone), QUARRY_ERROR_INVALID_ARGUMENT);
}

TEST_F(PoolApi, ThePoolLivesUntilItsLastRelease) {
  const quarry_pool pool = make_pool();
  ASSERT_EQ(quarry_pool_retain(pool), QUARRY_OK);
  EXPECT_EQ(stats(pool).use_count, 2);
  ASSERT_EQ(quarry_pool_release(pool), QUARRY_OK);
  quarry_free(take(pool, 512));
  ASSERT_EQ(quarry_pool_release(pool), QUARRY_OK);
  EXPECT_EQ(quarry_pool_release(pool), QUARRY_ERROR_INVALID_ARGUMENT);
}

TEST_F(PoolApi, WrongArgumentsAreNamed) {
  quarry_pool pool = 77;
  EXPECT_EQ(quarry_pool_create(0, nullptr, nullptr), QUARRY_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(quarry_pool_create(7, nullptr, &pool), QUARRY_ERROR_INVALID_ARGUMENT);
  EXPECT_TRUE(error_says("device is 7"));
  quarry_pool_options options = {};
  EXPECT_EQ(quarry_pool_create(0, &options, &pool), QUARRY_ERROR_INVALID_ARGUMENT);
  EXPECT_TRUE(error_says("options->struct_size is 0"));
  options.struct_size = sizeof(options);
  options.flags = 8;
  EXPECT_EQ(quarry_pool_create(0, &options, &pool), QUARRY_ERROR_INVALID_ARGUMENT);
  EXPECT_TRUE(error_says("options->flags is 8"));
  options.flags = 0;
  options.free = [](void*, std::size_t, int, quarry_stream, void*) {};
  EXPECT_EQ(quarry_pool_create(0, &options, &pool), QUARRY_ERROR_INVALID_ARGUMENT);
  EXPECT_TRUE(error_says("options->allocate is NULL"));
  EXPECT_EQ(pool, 77u);

  pool = make_pool();
  EXPECT_EQ(quarry_pool_malloc(pool, nullptr, 512, nullptr), QUARRY_ERROR_INVALID_ARGUMENT);
  void* ptr = &pool;
  EXPECT_EQ(quarry_pool_malloc_aligned(pool, &ptr, 1, 3, nullptr), QUARRY_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(ptr, nullptr);
  EXPECT_EQ(quarry_pool_begin_filter(pool, nullptr, nullptr), QUARRY_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(quarry_pool_get_stats(pool, nullptr), QUARRY_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(quarry_for_each_pool(0, nullptr, nullptr), QUARRY_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(quarry_pool_end(pool), QUARRY_ERROR_INVALID_ARGUMENT);
  EXPECT_TRUE(error_says("is not begun"));
}

// --- Memory ---

TEST_F(PoolApi, MemoryOfAPoolIsOnlyItsOwn) {
  const quarry_pool pool = make_pool();
  void* ptr = take(pool, 4_MiB);
  quarry_free(ptr);
  void* others = allocate(4_MiB);
  EXPECT_NE(others, ptr);
  EXPECT_EQ(take(pool, 4_MiB), ptr);
  EXPECT_EQ(quarry_free_sized(ptr, 4_MiB), QUARRY_OK);
  quarry_free(others);
  EXPECT_NE(take(pool, 4_MiB), others);
}

TEST_F(PoolApi, SizesAndAlignmentsAreThoseOfMalloc) {
  const quarry_pool pool = make_pool();
  void* ptr = &ptr;
  EXPECT_EQ(quarry_pool_malloc(pool, &ptr, 0, nullptr), QUARRY_OK);
  EXPECT_EQ(ptr, nullptr);
  EXPECT_EQ(quarry_pool_malloc(pool, &ptr, ~std::size_t{0}, nullptr), QUARRY_ERROR_OUT_OF_MEMORY);
  ASSERT_EQ(quarry_pool_malloc_aligned(pool, &ptr, 3000, 65536, nullptr), QUARRY_OK);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(ptr) % 65536, 0u);
  EXPECT_EQ(stats(pool).num_ooms, 0);  // refused before any pool was asked
}

TEST_F(PoolApi, TheFiguresAreThePoolsOwn) {
  const quarry_pool pool = make_pool();
  allocate(4_MiB);
  void* first = take(pool, 4_MiB);
  void* second = take(pool, 100_MiB);
  quarry_free(second);
  const quarry_pool_stats now = stats(pool);
  EXPECT_EQ(now.pool, pool);
  EXPECT_EQ(now.id_first, 0u);
  EXPECT_EQ(now.use_count, 1);
  EXPECT_EQ(now.has_active_capture, 0);
  EXPECT_EQ(now.allocated_bytes, static_cast<std::int64_t>(4_MiB));
  EXPECT_EQ(now.allocated_peak_bytes, static_cast<std::int64_t>(104_MiB));
  EXPECT_EQ(now.active_bytes, static_cast<std::int64_t>(4_MiB));
  EXPECT_EQ(now.active_peak_bytes, static_cast<std::int64_t>(104_MiB));
  EXPECT_EQ(now.reserved_bytes, static_cast<std::int64_t>(120_MiB));
  EXPECT_EQ(now.reserved_peak_bytes, static_cast<std::int64_t>(120_MiB));
  EXPECT_EQ(now.allocated_blocks, 1);
  EXPECT_EQ(now.segments, 2);
  EXPECT_EQ(now.limit_bytes, QUARRY_UNLIMITED);
  ASSERT_EQ(quarry_pool_trim(pool), QUARRY_OK);
  EXPECT_EQ(stats(pool).reserved_bytes, static_cast<std::int64_t>(20_MiB));
  EXPECT_EQ(stat("reserved_bytes.all.current"), static_cast<std::int64_t>(40_MiB));
  quarry_free(first);
}

TEST_F(PoolApi, AnOlderCallersStructIsFilledAsFarAsItGoes) {
  const quarry_pool pool = make_pool();
  quarry_pool_stats old = {};
  old.struct_size = offsetof(quarry_pool_stats, id_first);
  old.limit_bytes = 5;
  ASSERT_EQ(quarry_pool_get_stats(pool, &old), QUARRY_OK);
  EXPECT_EQ(old.pool, pool);
  EXPECT_EQ(old.limit_bytes, 5u);
  quarry_pool_options options = {};
  options.struct_size = offsetof(quarry_pool_options, limit_bytes);
  options.limit_bytes = 5;  // not covered
  quarry_pool unlimited = 0;
  ASSERT_EQ(quarry_pool_create(0, &options, &unlimited), QUARRY_OK);
  EXPECT_EQ(stats(unlimited).limit_bytes, QUARRY_UNLIMITED);
}

TEST_F(PoolApi, LimitsBoundWhatAPoolReserves) {
  const quarry_pool pool = make_pool(0, 20_MiB);
  void* ptr = take(pool, 4_MiB);
  void* refused = nullptr;
  EXPECT_EQ(quarry_pool_malloc(pool, &refused, 20_MiB, nullptr), QUARRY_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(stats(pool).num_ooms, 1);
  ASSERT_EQ(quarry_pool_set_limit(pool, 40_MiB), QUARRY_OK);
  EXPECT_EQ(stats(pool).limit_bytes, 40_MiB);
  quarry_free(take(pool, 20_MiB));
  ASSERT_EQ(quarry_pool_set_limit(pool, 0), QUARRY_OK);  // none at all, unlike in the options
  EXPECT_EQ(quarry_pool_malloc(pool, &refused, 30_MiB, nullptr), QUARRY_ERROR_OUT_OF_MEMORY);
  quarry_free(ptr);
}

TEST_F(PoolApi, FlagsReachThePool) {
  const quarry_pool whole = make_pool(QUARRY_POOL_NO_SPLIT);
  take(whole, 2_MiB);
  take(whole, 2_MiB);
  EXPECT_EQ(stats(whole).segments, 2);

  const quarry_pool lender = make_pool(QUARRY_POOL_USE_ON_OOM);
  void* lent = take(lender, 400_MiB);
  quarry_free(lent);
  const quarry_pool kept = make_pool(QUARRY_POOL_NO_RECYCLE);
  quarry_free(take(kept, 400_MiB));
  EXPECT_EQ(allocate(400_MiB), lent);
  EXPECT_EQ(stats(kept).reserved_bytes, static_cast<std::int64_t>(400_MiB));
}

// --- Whose requests ---

TEST_F(PoolApi, AThreadsRequestsAreServedUntilTheEnd) {
  const quarry_pool pool = make_pool();
  const quarry_pool inner = make_pool();
  ASSERT_EQ(quarry_pool_begin_thread(pool), QUARRY_OK);
  EXPECT_EQ(quarry_pool_begin_thread(pool), QUARRY_ERROR_BUSY);
  allocate(512);
  EXPECT_EQ(blocks(pool), 1);
  std::thread([&] {
    allocate(512);
    EXPECT_EQ(quarry_pool_begin_thread(pool), QUARRY_OK);
    EXPECT_EQ(quarry_pool_end(pool), QUARRY_OK);
  }).join();
  EXPECT_EQ(blocks(pool), 1);
  ASSERT_EQ(quarry_pool_begin_thread(inner), QUARRY_OK);
  allocate(512);
  EXPECT_EQ(blocks(inner), 1);
  EXPECT_EQ(quarry_pool_end(pool), QUARRY_ERROR_INVALID_ARGUMENT);
  EXPECT_TRUE(error_says("end that one first"));
  ASSERT_EQ(quarry_pool_end(inner), QUARRY_OK);
  ASSERT_EQ(quarry_pool_end(pool), QUARRY_OK);
  allocate(512);
  EXPECT_EQ(blocks(pool), 1);
}

TEST_F(PoolApi, AThreadThatEndsGivesUpWhatItBegan) {
  const quarry_pool pool = make_pool();
  std::thread([&] { EXPECT_EQ(quarry_pool_begin_thread(pool), QUARRY_OK); }).join();
  EXPECT_EQ(quarry_pool_begin_stream(pool, make_side_stream()), QUARRY_OK);
  EXPECT_EQ(quarry_pool_end(pool), QUARRY_OK);
}

TEST_F(PoolApi, AStreamsRequestsAreServedFromAnyThread) {
  const quarry_pool pool = make_pool();
  const quarry_stream side = make_side_stream();
  ASSERT_EQ(quarry_pool_begin_stream(pool, side), QUARRY_OK);
  EXPECT_EQ(quarry_pool_begin_capture(pool, side), QUARRY_ERROR_BUSY);
  allocate(512);
  EXPECT_EQ(blocks(pool), 0);
  std::thread([&] { allocate(512, 0, side); }).join();
  EXPECT_EQ(blocks(pool), 1);
  ASSERT_EQ(quarry_pool_end(pool), QUARRY_OK);
}

TEST_F(PoolApi, ACapturesRequestsAreServedWhicheverBeginsFirst) {
  const quarry_pool pool = make_pool();
  const quarry_stream side = make_side_stream();
  for (const bool is_pool_first : {true, false}) {
    const std::int64_t before = blocks(pool);
    if (is_pool_first) {
      ASSERT_EQ(quarry_pool_begin_capture(pool, side), QUARRY_OK);
      allocate(512, 0, side);
      EXPECT_EQ(blocks(pool), before);  // no capture yet
    }
    ASSERT_EQ(sim().begin_capture(to_ref(side), CaptureMode::kGlobal), DriverCode::kSuccess);
    if (!is_pool_first) {
      ASSERT_EQ(quarry_pool_begin_capture(pool, side), QUARRY_OK);
    }
    void* ptr = allocate(4_MiB, 0, side);
    EXPECT_EQ(blocks(pool), before + 1);
    EXPECT_EQ(stats(pool).has_active_capture, 1);
    quarry_free(ptr);
    EXPECT_EQ(allocate(4_MiB, 0, side), ptr);
    EXPECT_TRUE(sim().end_capture(to_ref(side)).is_ok());
    ASSERT_EQ(quarry_pool_end(pool), QUARRY_OK);
    EXPECT_EQ(stats(pool).has_active_capture, 0);
    quarry_free(ptr);
  }
}

TEST_F(PoolApi, AFilterIsAskedForEachStream) {
  const quarry_pool pool = make_pool();
  struct Asked {
    quarry_stream wanted;
    int calls = 0;
  } asked{make_side_stream()};
  const quarry_pool_filter filter = [](quarry_stream stream, void* user) {
    auto* about = static_cast<Asked*>(user);
    ++about->calls;
    return stream == about->wanted ? 1 : 0;
  };
  ASSERT_EQ(quarry_pool_begin_filter(pool, filter, &asked), QUARRY_OK);
  allocate(512, 0, make_side_stream());
  EXPECT_EQ(blocks(pool), 0);
  allocate(512, 0, asked.wanted);
  EXPECT_EQ(blocks(pool), 1);
  EXPECT_EQ(asked.calls, 2);
  ASSERT_EQ(quarry_pool_end(pool), QUARRY_OK);
  allocate(512, 0, asked.wanted);
  EXPECT_EQ(asked.calls, 2);
}

TEST_F(PoolApi, AFilterThatThrowsAcceptsAndIsLoggedOnce) {
  const quarry_pool pool = make_pool();
  const quarry_pool_filter filter = [](quarry_stream, void*) -> int {
    throw std::runtime_error("no answer");
  };
  ASSERT_EQ(quarry_pool_begin_filter(pool, filter, nullptr), QUARRY_OK);
  testing::internal::CaptureStderr();
  allocate(512);
  allocate(512);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(log.find("no answer"), log.rfind("no answer"));
  EXPECT_NE(log.find("no answer"), std::string::npos) << log;
  EXPECT_EQ(blocks(pool), 2);
  ASSERT_EQ(quarry_pool_end(pool), QUARRY_OK);
}

TEST_F(PoolApi, TheLastReleaseEndsWhatIsBegun) {
  const quarry_pool pool = make_pool();
  ASSERT_EQ(quarry_pool_begin_thread(pool), QUARRY_OK);
  ASSERT_EQ(quarry_pool_release(pool), QUARRY_OK);
  quarry_free(allocate(512));
  EXPECT_EQ(quarry_pool_end(pool), QUARRY_ERROR_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace quarry
