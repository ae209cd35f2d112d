// SPDX-License-Identifier: Apache-2.0
// The C API's callbacks (what they see, what they may do, what they cannot break) and its two
// guards.
#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/unit/api/api_fixture.hpp"

namespace quarry {
namespace {

using testing_support::ApiTest;
using testing_support::error_says;
using testing_support::make_stream;

class CallbackApi : public ApiTest {
 protected:
  quarry_status request(std::size_t bytes) {
    void* ptr = nullptr;
    return quarry_malloc(&ptr, bytes, 0, nullptr);
  }
};

struct SeenReport {
  int calls = 0;
  quarry_oom_report report = {};
  std::string text;
  std::vector<quarry_stream_cache> caches;

  static void keep(const quarry_oom_report* report, void* user) {
    auto* seen = static_cast<SeenReport*>(user);
    ++seen->calls;
    seen->report = *report;
    seen->text = report->text;
    for (std::size_t i = 0; i < report->cache_count; ++i) {
      seen->caches.push_back(*report->caches[i]);
    }
  }
};

TEST_F(CallbackApi, C58TheReportHasTheThreeLedgersOfAFragmentedCache) {
  quarry_free(allocate(1006632960));
  std::vector<void*> blocks;
  for (int i = 0; i < 20; ++i)
    blocks.push_back(allocate(50331648));
  for (std::size_t i = 0; i < blocks.size(); i += 2)
    quarry_free(blocks[i]);
  SeenReport seen;
  ASSERT_EQ(quarry_add_oom_callback(SeenReport::keep, &seen, nullptr), QUARRY_OK);
  EXPECT_EQ(request(134217728), QUARRY_ERROR_OUT_OF_MEMORY);
  ASSERT_EQ(seen.calls, 1);
  EXPECT_EQ(seen.report.struct_size, sizeof(quarry_oom_report));
  EXPECT_EQ(seen.report.requested_bytes, 134217728u);
  EXPECT_EQ(seen.report.device_free_bytes, 67108864u);
  EXPECT_EQ(seen.report.device_total_bytes, kDeviceMemory);
  EXPECT_EQ(seen.report.reserved_bytes, 1006632960u);
  EXPECT_EQ(seen.report.allocated_bytes, 503316480u);
  EXPECT_EQ(seen.report.cached_bytes, 503316480u);
  EXPECT_EQ(seen.report.largest_free_block, 50331648u);
  EXPECT_EQ(seen.report.limit_bytes, QUARRY_UNLIMITED);
  EXPECT_EQ(seen.report.reason, QUARRY_OOM_FRAGMENTATION);
  ASSERT_EQ(seen.caches.size(), 1u);
  EXPECT_EQ(seen.caches[0].cached_bytes, 503316480u);
  EXPECT_EQ(seen.text, quarry_get_last_error());
}

TEST_F(CallbackApi, AnOomCallbackMayUseTheAllocator) {
  struct Seen {
    std::int64_t allocated = -1;
    quarry_status small = QUARRY_ERROR_INTERNAL;
    quarry_status freed = QUARRY_ERROR_INTERNAL;
  } seen;
  const quarry_oom_callback callback = [](const quarry_oom_report* report, void* user) {
    auto* out = static_cast<Seen*>(user);
    EXPECT_EQ(quarry_get_stat(report->device, "allocated_bytes.all.current", &out->allocated),
              QUARRY_OK);
    void* ptr = nullptr;
    out->small = quarry_malloc(&ptr, 512, report->device, report->stream);
    out->freed = quarry_free_checked(ptr);
    EXPECT_EQ(quarry_empty_cache(report->device), QUARRY_OK);
  };
  allocate(1000);
  ASSERT_EQ(quarry_add_oom_callback(callback, &seen, nullptr), QUARRY_OK);
  EXPECT_EQ(request(2_GiB), QUARRY_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(seen.allocated, 1024);
  EXPECT_EQ(seen.small, QUARRY_OK);
  EXPECT_EQ(seen.freed, QUARRY_OK);
  EXPECT_TRUE(error_says("out of memory"));
}

TEST_F(CallbackApi, ARemovedCallbackIsNotCalled) {
  SeenReport seen;
  quarry_callback_id id = 0;
  ASSERT_EQ(quarry_add_oom_callback(SeenReport::keep, &seen, &id), QUARRY_OK);
  EXPECT_NE(id, 0u);
  EXPECT_EQ(request(2_GiB), QUARRY_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(quarry_remove_callback(id), QUARRY_OK);
  EXPECT_EQ(request(2_GiB), QUARRY_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(seen.calls, 1);
  EXPECT_EQ(quarry_remove_callback(id), QUARRY_ERROR_INVALID_ARGUMENT);
  EXPECT_TRUE(error_says("id is " + std::to_string(id)));
}

TEST_F(CallbackApi, NullCallbacksAreRefused) {
  EXPECT_EQ(quarry_add_oom_callback(nullptr, nullptr, nullptr), QUARRY_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(quarry_add_free_memory_callback(nullptr, nullptr, nullptr),
            QUARRY_ERROR_INVALID_ARGUMENT);
}

TEST_F(CallbackApi, WhatACallbackThrowsIsDropped) {
  const quarry_oom_callback on_oom = [](const quarry_oom_report*, void*) {
    throw std::runtime_error("from the user");
  };
  const quarry_free_memory_callback on_short = [](int, std::uint64_t, void*) -> int { throw 5; };
  ASSERT_EQ(quarry_add_oom_callback(on_oom, nullptr, nullptr), QUARRY_OK);
  ASSERT_EQ(quarry_add_free_memory_callback(on_short, nullptr, nullptr), QUARRY_OK);
  EXPECT_EQ(request(2_GiB), QUARRY_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(request(1000), QUARRY_OK);
}

TEST_F(CallbackApi, AFreeMemoryCallbackThatFreesABlockSavesTheRequest) {
  struct Cache {
    void* block = nullptr;
    int calls = 0;
  } cache;
  cache.block = allocate(800_MiB);
  const quarry_free_memory_callback callback = [](int device, std::uint64_t bytes, void* user) {
    auto* held = static_cast<Cache*>(user);
    ++held->calls;
    EXPECT_EQ(device, 0);
    EXPECT_GE(bytes, 600_MiB);
    if (held->block == nullptr) return 0;
    quarry_free(std::exchange(held->block, nullptr));
    return 1;
  };
  quarry_callback_id id = 0;
  ASSERT_EQ(quarry_add_free_memory_callback(callback, &cache, &id), QUARRY_OK);
  EXPECT_EQ(request(600_MiB), QUARRY_OK) << quarry_get_last_error();
  EXPECT_GE(cache.calls, 1);
  EXPECT_EQ(quarry_remove_callback(id), QUARRY_OK);
}

TEST_F(CallbackApi, C84UnderTheGuardCacheHitsWorkAndNoDriverFreeBegins) {
  quarry_free(allocate(4 << 20));
  ASSERT_EQ(quarry_driver_free_guard_lock(), QUARRY_OK);
  const auto frees = sim().call_count(DriverEntry::kFree);

  std::atomic<bool> has_hit{false};
  quarry_status emptied = QUARRY_ERROR_INTERNAL;
  std::thread other([&] {
    void* ptr = nullptr;
    EXPECT_EQ(quarry_malloc(&ptr, 4 << 20, 0, nullptr), QUARRY_OK);
    quarry_free(ptr);
    has_hit = true;
    emptied = quarry_empty_cache(0);  // waits for the guard
  });
  while (!has_hit)
    std::this_thread::yield();
  EXPECT_EQ(sim().call_count(DriverEntry::kFree), frees);
  EXPECT_EQ(quarry_driver_free_guard_unlock(), QUARRY_OK);
  other.join();
  EXPECT_EQ(emptied, QUARRY_OK);
  EXPECT_GT(sim().call_count(DriverEntry::kFree), frees);
}

TEST_F(CallbackApi, TheHolderOfTheGuardIsToldWhyARequestFailed) {
  quarry_free(allocate(800_MiB));
  SeenReport seen;
  ASSERT_EQ(quarry_add_oom_callback(SeenReport::keep, &seen, nullptr), QUARRY_OK);
  ASSERT_EQ(quarry_driver_free_guard_lock(), QUARRY_OK);
  EXPECT_EQ(request(900_MiB), QUARRY_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(seen.report.reason, QUARRY_OOM_FREE_FORBIDDEN);
  EXPECT_EQ(quarry_driver_free_guard_unlock(), QUARRY_OK);
  EXPECT_EQ(request(900_MiB), QUARRY_OK);
}

TEST_F(CallbackApi, UnlockingAGuardThatTheThreadDoesNotHoldIsRefused) {
  EXPECT_EQ(quarry_driver_free_guard_unlock(), QUARRY_ERROR_INVALID_ARGUMENT);
  EXPECT_TRUE(error_says("does not hold"));
}

TEST_F(CallbackApi, TheGuardIsRefusedInsideADriverCallback) {
  ASSERT_EQ(quarry_driver_callback_begin(), QUARRY_OK);
  EXPECT_EQ(quarry_driver_free_guard_lock(), QUARRY_ERROR_BUSY);
  EXPECT_TRUE(error_says("inside a driver callback"));
  ASSERT_EQ(quarry_driver_callback_end(), QUARRY_OK);
  EXPECT_EQ(quarry_driver_free_guard_unlock(), QUARRY_ERROR_INVALID_ARGUMENT) << "not held";
}

TEST_F(CallbackApi, AThreadThatEndsUnderTheGuardGivesItUpWithAWarning) {
  quarry_free(allocate(4 << 20));
  ::testing::internal::CaptureStderr();
  std::thread([] {
    EXPECT_EQ(quarry_driver_free_guard_lock(), QUARRY_OK);
    EXPECT_EQ(quarry_driver_free_guard_lock(), QUARRY_OK);
  }).join();
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("guard_dropped"), std::string::npos);
  EXPECT_EQ(quarry_empty_cache(0), QUARRY_OK) << "waits while anyone holds the guard";
  EXPECT_EQ(stat("reserved_bytes.all.current"), 0);
}

// A request that fails, but not without end.
void fail_again(int& calls) {
  if (++calls > 10) return;
  void* ptr = nullptr;
  EXPECT_EQ(quarry_malloc(&ptr, 2_GiB, 0, nullptr), QUARRY_ERROR_OUT_OF_MEMORY);
}

TEST_F(CallbackApi, ACallbackThatIsShortItselfIsNotCalledAgain) {
  struct Calls {
    int on_oom = 0;
    int on_short = 0;
  } calls;
  const quarry_oom_callback on_oom = [](const quarry_oom_report*, void* user) {
    fail_again(static_cast<Calls*>(user)->on_oom);
  };
  const quarry_free_memory_callback on_short = [](int, std::uint64_t, void* user) {
    fail_again(static_cast<Calls*>(user)->on_short);
    return 0;
  };
  ASSERT_EQ(quarry_add_oom_callback(on_oom, &calls, nullptr), QUARRY_OK);
  ASSERT_EQ(quarry_add_free_memory_callback(on_short, &calls, nullptr), QUARRY_OK);
  EXPECT_EQ(request(900_MiB), QUARRY_OK);
  EXPECT_EQ(request(900_MiB), QUARRY_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(calls.on_oom, 1);
  EXPECT_GT(calls.on_short, 0);
  EXPECT_LT(calls.on_short, 10);
}

TEST_F(CallbackApi, C87AFreeInsideADriverCallbackMakesNoDriverCallThere) {
  const StreamRef side = sim().create_stream(0, sim::StreamKind::kNonBlocking);
  void* plain = allocate(4 << 20);
  void* used = allocate(4 << 20);
  ASSERT_EQ(quarry_record_stream(used, make_stream(static_cast<std::uint64_t>(side.handle))),
            QUARRY_OK);
  std::thread([&] {
    sim().set_callback_thread(true);
    ASSERT_EQ(quarry_driver_callback_begin(), QUARRY_OK);
    EXPECT_EQ(quarry_free_checked(plain), QUARRY_OK);
    EXPECT_EQ(quarry_free_checked(used), QUARRY_OK);
    void* ptr = nullptr;
    EXPECT_NE(quarry_malloc(&ptr, 100_MiB, 0, nullptr), QUARRY_OK);
    EXPECT_EQ(ptr, nullptr);
    ASSERT_EQ(quarry_driver_callback_end(), QUARRY_OK);
    sim().set_callback_thread(false);
  }).join();
  EXPECT_EQ(sim().misuse_count(), 0u);
  EXPECT_GT(stat("pending_bytes"), 0);
  allocate(512);  // the next ordinary call takes them on
  EXPECT_EQ(quarry_empty_cache(0), QUARRY_OK);
  EXPECT_EQ(stat("pending_bytes"), 0);
  EXPECT_EQ(stat("allocated_bytes.all.current"), 512);
}

TEST_F(CallbackApi, DriverCallbacksNestAndAnEndWithoutABeginIsRefused) {
  EXPECT_EQ(quarry_driver_callback_end(), QUARRY_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(quarry_driver_callback_begin(), QUARRY_OK);
  EXPECT_EQ(quarry_driver_callback_begin(), QUARRY_OK);
  EXPECT_EQ(quarry_driver_callback_end(), QUARRY_OK);
  EXPECT_NE(request(100_MiB), QUARRY_OK);  // still inside
  EXPECT_EQ(quarry_driver_callback_end(), QUARRY_OK);
  EXPECT_EQ(request(100_MiB), QUARRY_OK);
  EXPECT_EQ(quarry_driver_callback_end(), QUARRY_ERROR_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace quarry
