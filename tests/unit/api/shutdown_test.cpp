// SPDX-License-Identifier: Apache-2.0
// quarry_shutdown where it must not be, next to threads that end, and starts that fail. What it
// gives back is memory_test.cpp, the calls after it are configure_test.cpp.
#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/unit/api/api_fixture.hpp"
#include "tests/unit/api/hooked_driver.hpp"

namespace quarry {
namespace {

using testing_support::ApiTest;
using testing_support::error_says;
using testing_support::HookedDriver;
using testing_support::make_stream;

// The handle of the calling thread's per-thread default stream: such threads have duties at exit.
const quarry_stream kOwnStream = make_stream(2);

class ShutdownApi : public ApiTest {
 protected:
  void expect_refused(const char* reason) {
    EXPECT_EQ(quarry_shutdown(), QUARRY_ERROR_BUSY);
    EXPECT_TRUE(error_says(reason));
  }
};

TEST_F(ShutdownApi, IsRefusedInsideACallback) {
  const quarry_oom_callback callback = [](const quarry_oom_report*, void*) {
    EXPECT_EQ(quarry_shutdown(), QUARRY_ERROR_BUSY);
    EXPECT_TRUE(error_says("inside a callback"));
  };
  ASSERT_EQ(quarry_add_oom_callback(callback, nullptr, nullptr), QUARRY_OK);
  allocate(512);
  void* ptr = nullptr;
  EXPECT_EQ(quarry_malloc(&ptr, 2_GiB, 0, nullptr), QUARRY_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(stat("allocated_bytes.all.current"), 512) << "nothing was done";
}

TEST_F(ShutdownApi, IsRefusedInsideADriverCallback) {
  allocate(512);
  ASSERT_EQ(quarry_driver_callback_begin(), QUARRY_OK);
  expect_refused("inside a driver callback");
  ASSERT_EQ(quarry_driver_callback_end(), QUARRY_OK);
  EXPECT_EQ(stat("allocated_bytes.all.current"), 512) << "nothing was done";
}

TEST_F(ShutdownApi, IsRefusedWhileAnyThreadHoldsTheDriverFreeGuard) {
  allocate(512);
  ASSERT_EQ(quarry_driver_free_guard_lock(), QUARRY_OK);
  expect_refused("driver-free guard");
  std::thread([this] { expect_refused("driver-free guard"); }).join();
  ASSERT_EQ(quarry_driver_free_guard_unlock(), QUARRY_OK);
  EXPECT_EQ(stat("allocated_bytes.all.current"), 512) << "nothing was done";
}

TEST_F(ShutdownApi, DoesNotWaitForAThreadThatEndedUnderTheGuard) {
  for (const bool is_disabled : {false, true}) {
    ASSERT_EQ(quarry_shutdown(), QUARRY_OK);
    ProcessOptions options;
    options.is_disabled = is_disabled;
    start(options);
    allocate(512);
    std::thread([] { EXPECT_EQ(quarry_driver_free_guard_lock(), QUARRY_OK); }).join();
    EXPECT_EQ(quarry_shutdown(), QUARRY_OK);
  }
}

TEST(PassThroughTest, ItsEndDoesNotWaitForTheFreeGate) {
  SimDriver sim;
  auto made = PassThrough::create(sim, Config{});
  ASSERT_TRUE(made.is_ok());
  ASSERT_TRUE(made.value()->allocate({0, StreamHandle::kLegacy}, 512).is_ok());
  std::thread([&] { made.value()->free_gate().lock(); }).join();
  std::move(made).value().reset();
  EXPECT_EQ(sim.get_holdings(0).plain_allocations, 0u);
}

TEST_F(ShutdownApi, MayMeetThreadsThatEnd) {
  constexpr int kThreads = 4;
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> ready = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&] {
        quarry_free(allocate(512, 0, kOwnStream));
        ++ready;
      });
    }
    while (ready < kThreads)
      std::this_thread::yield();
    EXPECT_EQ(quarry_shutdown(), QUARRY_OK);
    for (std::thread& thread : threads)
      thread.join();
    start({});
  }
}

// The thread is held inside a call for device 1, where it has a stream. Nothing holds device 0.
TEST(ShutdownWithAHookedDriver, FreesNothingWhileAThreadIsRetiringItsStreams) {
  std::atomic<bool> is_ending = false, is_inside = false, is_about_to_stop = false;
  std::atomic<int> frees = 0;
  int frees_meanwhile = -1;
  const auto hook = [&](DriverEntry entry) {
    if (entry == DriverEntry::kFree) ++frees;
    if (entry != DriverEntry::kRecordEvent || !is_ending.exchange(false)) return;
    is_inside = true;
    while (!is_about_to_stop)
      std::this_thread::yield();
    for (int i = 0; i < 10'000 && frees == 0; ++i)
      std::this_thread::yield();
    frees_meanwhile = frees;
  };
  sim::SimOptions options;
  options.device_count = 2;
  auto driver = std::make_unique<HookedDriver>(std::make_unique<SimDriver>(options), hook);
  ASSERT_TRUE(start_process(std::move(driver), {}).is_ok());
  void* held = nullptr;
  ASSERT_EQ(quarry_malloc(&held, 512, 0, nullptr), QUARRY_OK);
  std::thread ending([&] {
    void* ptr = nullptr;
    EXPECT_EQ(quarry_malloc(&ptr, 512, 1, kOwnStream), QUARRY_OK);
    quarry_free(ptr);
    is_ending = true;
  });
  while (!is_inside)
    std::this_thread::yield();
  is_about_to_stop = true;
  EXPECT_EQ(quarry_shutdown(), QUARRY_OK);
  ending.join();
  EXPECT_EQ(frees_meanwhile, 0);
  EXPECT_EQ(frees, 2);
}

// A phase that stayed "changing" would block every later call.
TEST(StartThatThrows, LeavesTheNextStartFree) {
  EXPECT_THROW(static_cast<void>(start_process(
                   []() -> Result<std::unique_ptr<Process>> { throw std::length_error("x"); })),
               std::length_error);
  EXPECT_THROW(
      static_cast<void>(start_process([]() -> Result<std::unique_ptr<Process>> { throw 5; })),
      int);
  ASSERT_TRUE(start_process(std::make_unique<SimDriver>(), {}).is_ok());
  EXPECT_EQ(quarry_shutdown(), QUARRY_OK);
}

}  // namespace
}  // namespace quarry
