// SPDX-License-Identifier: Apache-2.0
// What a malloc and a free that the cache serves do not do: allocate host memory, call the driver,
// take a mutex, which other threads could hold. Through the C API, and each shown by counting. A
// program of its own, because call_counts.cpp replaces functions of the C runtime.
#include <gtest/gtest.h>
#include <quarry/quarry.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <semaphore>
#include <thread>
#include <utility>

#include "api/process.hpp"
#include "sim/sim_driver.hpp"
#include "tests/conformance/cases/call_counts.hpp"
#include "tests/unit/api/hooked_driver.hpp"

namespace quarry {
namespace {

using test::before_lock;
using test::call_counts;
using test::CallCounts;
using testing_support::HookedDriver;

thread_local std::uint64_t driver_calls = 0;

void reset_counts() {
  call_counts = {};
  driver_calls = 0;
}

class HitPath : public ::testing::Test {
 protected:
  void SetUp() override {
    auto sim = std::make_unique<SimDriver>();
    sim_ = sim.get();
    auto driver = std::make_unique<HookedDriver>(std::move(sim), [this](DriverEntry entry) {
      ++driver_calls;
      hold_if_armed(entry);
    });
    ASSERT_TRUE(start_process(std::move(driver), {}).is_ok());
  }
  void TearDown() override { ASSERT_EQ(quarry_shutdown(), QUARRY_OK); }

  quarry_stream make_stream() {
    const StreamRef stream = sim_->create_stream(0, sim::StreamKind::kNonBlocking);
    return reinterpret_cast<quarry_stream>(static_cast<std::uintptr_t>(stream.handle));
  }

  // A round holds a block of each size at once. False if anything failed.
  static bool run_rounds(int rounds, quarry_stream stream) {
    constexpr std::array<std::size_t, 4> kSizes = {512, 65'536, 1 << 20, 64 << 20};
    bool is_good = true;
    for (int i = 0; i < rounds; ++i) {
      std::array<void*, kSizes.size()> held{};
      for (std::size_t j = 0; j < kSizes.size(); ++j)
        is_good &= quarry_malloc(&held[j], kSizes[j], 0, stream) == QUARRY_OK;
      for (void* ptr : held)
        is_good &= quarry_free_checked(ptr) == QUARRY_OK;
    }
    return is_good;
  }
  static constexpr int kWarmRounds = 8;
  static constexpr int kRounds = 2500;  // of four hits

  // Holds the thread that enters `kRecordEvent` next, with the device's mutex in its hands.
  std::atomic<bool> is_armed_{false};
  std::binary_semaphore held_{0};
  std::binary_semaphore go_on_{0};
  SimDriver* sim_ = nullptr;

 private:
  void hold_if_armed(DriverEntry entry) {
    if (entry != DriverEntry::kRecordEvent || !is_armed_.exchange(false)) return;
    held_.release();
    go_on_.acquire();
  }
};

TEST_F(HitPath, TenThousandHitsAllocateNoHostMemoryCallNoDriverAndTakeNoMutex) {
  const quarry_stream stream = make_stream();
  reset_counts();
  ASSERT_TRUE(run_rounds(kWarmRounds, stream));
  // What is counted is there to be counted.
  EXPECT_GT(call_counts.host_allocations, 0u);
  EXPECT_GT(driver_calls, 0u);
#if !QUARRY_TEST_IS_SANITIZED
  EXPECT_GT(call_counts.mutex_locks, 0u);
#endif

  reset_counts();
  const bool is_good = run_rounds(kRounds, stream);
  const CallCounts counts = call_counts;
  const std::uint64_t calls = driver_calls;
  EXPECT_TRUE(is_good);
  EXPECT_EQ(counts.host_allocations, 0u);
  EXPECT_EQ(calls, 0u);
  EXPECT_EQ(counts.mutex_locks, 0u);
}

TEST_F(HitPath, TenThousandHitsGoOnWhileAnotherThreadHoldsTheDevicesMutex) {
  const quarry_stream stream = make_stream();
  const quarry_stream side = make_stream();
  ASSERT_TRUE(run_rounds(kWarmRounds, stream));
  void* used_elsewhere = nullptr;
  ASSERT_EQ(quarry_malloc(&used_elsewhere, 4096, 0, stream), QUARRY_OK);
  ASSERT_EQ(quarry_record_stream(used_elsewhere, side), QUARRY_OK);
  is_armed_ = true;
  std::thread holder([&] { EXPECT_EQ(quarry_free_checked(used_elsewhere), QUARRY_OK); });
  held_.acquire();

  bool has_let_go = false;
  // A hit that asks for a mutex is a failure and not a deadlock.
  const std::function<void()> let_go = [&] {
    if (!std::exchange(has_let_go, true)) go_on_.release();
  };
  before_lock = &let_go;
  const bool is_good = run_rounds(kRounds, stream);
  before_lock = nullptr;
  EXPECT_TRUE(is_good);
  EXPECT_FALSE(has_let_go) << "a hit asked for a mutex";
  let_go();
  holder.join();
}

// The stream may not grow beside parked blocks any more, and has nothing else that fits.
TEST_F(HitPath, AMissThatTheThreadsOwnParkedBlocksCanServeTakesNoMutex) {
  constexpr std::size_t kFiller = 800'000;  // two fill a segment
  const quarry_stream stream = make_stream();
  ASSERT_TRUE(run_rounds(kWarmRounds, stream));
  reset_counts();
  void* held = nullptr;
  for (std::uint64_t seen = 0, segments = 0; segments < 4; seen = driver_calls) {
    ASSERT_EQ(quarry_malloc(&held, kFiller, 0, stream), QUARRY_OK);
    segments += driver_calls > seen;
  }
  ASSERT_EQ(quarry_malloc(&held, kFiller, 0, stream), QUARRY_OK);
  ASSERT_EQ(quarry_malloc(&held, 1 << 20, 0, stream), QUARRY_OK);
  void* filler = nullptr;
  ASSERT_EQ(quarry_malloc(&filler, kFiller, 0, stream), QUARRY_OK);
  ASSERT_EQ(quarry_free_checked(held), QUARRY_OK);
  ASSERT_EQ(peek_allocator()->get_stats(0).value().parked_bytes, 65 << 20);

  reset_counts();
  const quarry_status status = quarry_malloc(&filler, kFiller, 0, stream);
  const CallCounts counts = call_counts;
  EXPECT_EQ(status, QUARRY_OK);
  EXPECT_EQ(filler, held);
  EXPECT_EQ(counts.mutex_locks, 0u);
  EXPECT_EQ(driver_calls, 0u);
}

}  // namespace
}  // namespace quarry
