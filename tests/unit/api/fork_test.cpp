// SPDX-License-Identifier: Apache-2.0
// C89: what the child of a fork may do, whatever the parent's other threads were doing.
#include <atomic>
#include <cstdlib>
#include <semaphore>
#include <thread>

#include "quarry/quarry_pool.h"
#include "tests/unit/api/api_fixture.hpp"
#include "tests/unit/api/child_process.hpp"
#include "tests/unit/api/hooked_driver.hpp"

namespace quarry {
namespace {

using testing_support::ApiTest;
using testing_support::HookedDriver;
using testing_support::left_well;
using testing_support::make_stream;
using testing_support::run_in_child;

class Fork : public ApiTest {};

// Every function that needs the allocator, with a pointer of the parent's.
void expect_forked_everywhere(void* parents) {
  void* ptr = reinterpret_cast<void*>(1);
  CHILD_EXPECT(quarry_malloc(&ptr, 512, 0, nullptr) == QUARRY_ERROR_FORKED);
  CHILD_EXPECT(ptr == nullptr);
  CHILD_EXPECT(std::string(quarry_get_last_error()).find("forked") != std::string::npos);
  CHILD_EXPECT(quarry_malloc_aligned(&ptr, 512, 4096, 0, nullptr) == QUARRY_ERROR_FORKED);
  CHILD_EXPECT(quarry_free_checked(parents) == QUARRY_ERROR_FORKED);
  CHILD_EXPECT(quarry_free_sized(parents, 1) == QUARRY_ERROR_FORKED);
  CHILD_EXPECT(quarry_free_on_stream(parents, nullptr) == QUARRY_ERROR_FORKED);
  CHILD_EXPECT(quarry_record_stream(parents, nullptr) == QUARRY_ERROR_FORKED);
  quarry_free(parents);
  quarry_free(nullptr);
  CHILD_EXPECT(quarry_stream_retire(0, nullptr) == QUARRY_ERROR_FORKED);
  CHILD_EXPECT(quarry_empty_cache(0) == QUARRY_ERROR_FORKED);
  CHILD_EXPECT(quarry_configure("max_split_size_mb:64") == QUARRY_ERROR_FORKED);
  CHILD_EXPECT(quarry_init(nullptr) == QUARRY_ERROR_FORKED);
  CHILD_EXPECT(quarry_shutdown() == QUARRY_ERROR_FORKED);
  CHILD_EXPECT(quarry_driver_free_guard_lock() == QUARRY_ERROR_FORKED);
  quarry_pool pool = QUARRY_POOL_DEFAULT;
  CHILD_EXPECT(quarry_pool_create(0, nullptr, &pool) == QUARRY_ERROR_FORKED);
  CHILD_EXPECT(quarry_pool_release(1) == QUARRY_ERROR_FORKED);
  std::int64_t value = 0;
  CHILD_EXPECT(quarry_get_stat(0, "num_ooms", &value) == QUARRY_ERROR_FORKED);
  quarry_stats stats = {};
  stats.struct_size = sizeof(stats);
  CHILD_EXPECT(quarry_get_stats(0, &stats) == QUARRY_ERROR_FORKED);
}

TEST_F(Fork, C89TheChildIsToldAndMakesNoDriverCall) {
  void* cached = allocate(4194304);
  quarry_free(cached);
  void* held = allocate(512);
  EXPECT_TRUE(left_well(run_in_child([&] {
    const auto calls = sim().call_count();
    expect_forked_everywhere(held);
    CHILD_EXPECT(sim().call_count() == calls);
  })));
  EXPECT_EQ(allocate(4194304), cached);  // the parent goes on
}

TEST_F(Fork, C89TheChildExitsCleanlyWithItsHandlers) {
  allocate(4194304, 0, make_stream(2));
  EXPECT_TRUE(left_well(run_in_child([] {}, std::exit)));
  EXPECT_TRUE(left_well(run_in_child([] { quarry_free(nullptr); }, std::exit)));
}

TEST_F(Fork, AGrandchildIsToldToo) {
  void* held = allocate(512);
  EXPECT_TRUE(left_well(run_in_child(
      [&] { CHILD_EXPECT(left_well(run_in_child([&] { expect_forked_everywhere(held); }))); })));
}

TEST_F(Fork, AfterAShutdownTheChildIsToldOfThat) {
  ASSERT_EQ(quarry_shutdown(), QUARRY_OK);
  EXPECT_TRUE(left_well(run_in_child([] {
    void* ptr = nullptr;
    CHILD_EXPECT(quarry_malloc(&ptr, 512, 0, nullptr) == QUARRY_ERROR_SHUT_DOWN);
  })));
}

// Holds one thread inside a driver call until told to go on.
struct Gate {
  std::atomic<bool> is_armed{false};
  std::atomic<DriverEntry> at{DriverEntry::kRecordEvent};
  std::binary_semaphore reached{0};
  std::binary_semaphore go_on{0};

  void pass(DriverEntry entry) {
    if (entry != at || !is_armed.exchange(false)) return;
    reached.release();
    go_on.acquire();
  }
};

class ForkWhileAThreadIsInside : public ::testing::Test {
 protected:
  std::unique_ptr<Driver> make_gated_driver() {
    auto sim = std::make_unique<SimDriver>();
    sim_ = sim.get();
    return std::make_unique<HookedDriver>(std::move(sim),
                                          [this](DriverEntry entry) { gate_.pass(entry); });
  }
  void TearDown() override { ASSERT_EQ(quarry_shutdown(), QUARRY_OK); }

  Gate gate_;
  SimDriver* sim_ = nullptr;
};

TEST_F(ForkWhileAThreadIsInside, C89TheDeviceLockHeldByAnotherThreadDoesNotMatter) {
  ASSERT_TRUE(start_process(make_gated_driver(), {}).is_ok());
  void* ptr = nullptr;
  ASSERT_EQ(quarry_malloc(&ptr, 512, 0, nullptr), QUARRY_OK);
  const StreamRef side = sim_->create_stream(0, sim::StreamKind::kNonBlocking);
  ASSERT_EQ(quarry_record_stream(ptr, make_stream(static_cast<std::uint64_t>(side.handle))),
            QUARRY_OK);
  // The event of a recorded stream is recorded under the device lock.
  gate_.is_armed = true;
  std::thread inside([&] { EXPECT_EQ(quarry_free_checked(ptr), QUARRY_OK); });
  gate_.reached.acquire();
  EXPECT_TRUE(left_well(run_in_child([&] { expect_forked_everywhere(ptr); })));
  gate_.go_on.release();
  inside.join();
}

TEST_F(ForkWhileAThreadIsInside, C89AnAllocatorInTheMakingCountsAsMade) {
  gate_.at = DriverEntry::kGetDeviceCount;
  gate_.is_armed = true;
  std::thread inside([&] { EXPECT_TRUE(start_process(make_gated_driver(), {}).is_ok()); });
  gate_.reached.acquire();
  EXPECT_TRUE(left_well(run_in_child([] {
    int anything = 0;
    expect_forked_everywhere(&anything);
  })));
  gate_.go_on.release();
  inside.join();
}

TEST_F(ForkWhileAThreadIsInside, C89TheDriverFreeGuardHeldByAnotherThreadDoesNotMatter) {
  ASSERT_TRUE(start_process(make_gated_driver(), {}).is_ok());
  void* ptr = nullptr;
  ASSERT_EQ(quarry_malloc(&ptr, 512, 0, nullptr), QUARRY_OK);
  std::binary_semaphore locked{0};
  std::binary_semaphore unlock{0};
  std::thread inside([&] {
    EXPECT_EQ(quarry_driver_free_guard_lock(), QUARRY_OK);
    locked.release();
    unlock.acquire();
    EXPECT_EQ(quarry_driver_free_guard_unlock(), QUARRY_OK);
  });
  locked.acquire();
  EXPECT_TRUE(left_well(run_in_child([&] { expect_forked_everywhere(ptr); })));
  unlock.release();
  inside.join();
}

class ForkUnderTheKillSwitch : public ApiTest {
 protected:
  void SetUp() override {
    ProcessOptions options;
    options.is_disabled = true;
    start(options);
  }
};

TEST_F(ForkUnderTheKillSwitch, TheChildIsToldAndMakesNoDriverCall) {
  void* held = allocate(512);
  EXPECT_TRUE(left_well(run_in_child([&] {
    const auto calls = sim().call_count();
    expect_forked_everywhere(held);
    CHILD_EXPECT(sim().call_count() == calls);
  })));
  EXPECT_EQ(quarry_free_checked(held), QUARRY_OK);
}

}  // namespace
}  // namespace quarry
