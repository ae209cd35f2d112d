// SPDX-License-Identifier: Apache-2.0
// QUARRY_DISABLE=1: every request and free is one of the driver's, and everything else answers.
#include <memory>
#include <utility>

#include "tests/unit/api/api_fixture.hpp"
#include "tests/unit/api/hooked_driver.hpp"

namespace quarry {
namespace {

using testing_support::ApiTest;
using testing_support::error_says;
using testing_support::HookedDriver;
using testing_support::make_stream;

class KillSwitch : public ApiTest {
 protected:
  void SetUp() override {
    ProcessOptions options;
    options.is_disabled = true;
    start(options);
  }
  quarry_status request(std::size_t bytes) {
    void* ptr = nullptr;
    return quarry_malloc(&ptr, bytes, 0, nullptr);
  }
};

TEST_F(KillSwitch, EachMallocAndEachFreeIsOneOfTheDrivers) {
  for (int i = 1; i <= 3; ++i) {
    void* ptr = allocate(4 << 20);
    EXPECT_EQ(sim().call_count(DriverEntry::kAllocate), static_cast<std::uint64_t>(i));
    EXPECT_EQ(quarry_free_checked(ptr), QUARRY_OK);
    EXPECT_EQ(sim().call_count(DriverEntry::kFree), static_cast<std::uint64_t>(i));
    EXPECT_EQ(sim().get_holdings(0).plain_allocations, 0u);
  }
}

TEST_F(KillSwitch, StatisticsCountWhatIsHeld) {
  void* ptr = allocate(3000);
  EXPECT_EQ(stat("allocated_bytes.all.current"), 3000);
  EXPECT_EQ(stat("reserved_bytes.small_pool.current"), 3000);
  EXPECT_EQ(stat("requested_bytes.all.current"), 3000);
  EXPECT_EQ(stat("num_device_alloc"), 1);
  EXPECT_EQ(stat("cached_bytes"), 0);
  quarry_free(ptr);
  EXPECT_EQ(stat("allocated_bytes.all.current"), 0);
  EXPECT_EQ(stat("allocated_bytes.all.peak"), 3000);
  EXPECT_EQ(stat("num_device_free"), 1);
  EXPECT_EQ(quarry_reset_peak_stats(0), QUARRY_OK);
  EXPECT_EQ(quarry_reset_accumulated_stats(0), QUARRY_OK);
  EXPECT_EQ(stat("allocated_bytes.all.peak"), 0);
  EXPECT_EQ(stat("num_device_free"), 0);
}

TEST_F(KillSwitch, ZeroNullHugeAndWrongArgumentsAnswerAsEver) {
  void* ptr = reinterpret_cast<void*>(1);
  EXPECT_EQ(quarry_malloc(&ptr, 0, 0, nullptr), QUARRY_OK);
  EXPECT_EQ(ptr, nullptr);
  EXPECT_EQ(request(~std::size_t{0}), QUARRY_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(quarry_malloc(&ptr, 512, 7, nullptr), QUARRY_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(quarry_malloc_aligned(&ptr, 512, 3, 0, nullptr), QUARRY_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(quarry_free_checked(nullptr), QUARRY_OK);
  EXPECT_EQ(quarry_free_checked(&ptr), QUARRY_ERROR_INVALID_POINTER);
  ptr = allocate(1000);
  EXPECT_EQ(quarry_record_stream(ptr, make_stream(2)), QUARRY_OK);
  EXPECT_EQ(quarry_record_stream(&ptr, make_stream(2)), QUARRY_ERROR_INVALID_POINTER);
  EXPECT_EQ(quarry_record_stream(static_cast<char*>(ptr) + 8, make_stream(2)),
            QUARRY_ERROR_INVALID_POINTER);
  EXPECT_TRUE(error_says("8 bytes inside a live block"));
  EXPECT_EQ(quarry_free_sized(ptr, 999), QUARRY_ERROR_SIZE_MISMATCH);
  EXPECT_EQ(quarry_free_checked(ptr), QUARRY_ERROR_INVALID_POINTER);
  EXPECT_EQ(quarry_stream_retire(0, nullptr), QUARRY_OK);
  EXPECT_EQ(quarry_stream_retire(7, nullptr), QUARRY_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(quarry_empty_cache(0), QUARRY_OK);
}

TEST_F(KillSwitch, AlignmentAndBlockInfoHold) {
  allocate(512);
  void* ptr = nullptr;
  ASSERT_EQ(quarry_malloc_aligned(&ptr, 3000, 65536, 1, make_stream(2)), QUARRY_OK);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(ptr) % 65536, 0u);
  quarry_block_info info = {};
  info.struct_size = sizeof(info);
  ASSERT_EQ(quarry_get_block_info(static_cast<char*>(ptr) + 2999, &info), QUARRY_OK);
  EXPECT_EQ(info.address, ptr);
  EXPECT_EQ(info.requested_bytes, 3000u);
  EXPECT_EQ(info.device, 1);
  EXPECT_EQ(info.stream, make_stream(2));
  EXPECT_EQ(quarry_free_on_stream(ptr, nullptr), QUARRY_OK);
  EXPECT_EQ(sim().get_holdings(1).plain_allocations, 0u);
}

TEST_F(KillSwitch, LimitsAndConfigurationHold) {
  ASSERT_EQ(quarry_set_limit(0, 1_MiB), QUARRY_OK);
  EXPECT_EQ(request(2_MiB), QUARRY_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(sim().call_count(DriverEntry::kAllocate), 0u);
  ASSERT_EQ(quarry_set_limit(0, QUARRY_UNLIMITED), QUARRY_OK);
  ASSERT_EQ(quarry_configure("per_process_memory_fraction:0.25"), QUARRY_OK);
  double fraction = 0;
  EXPECT_EQ(quarry_get_memory_fraction(0, &fraction), QUARRY_OK);
  EXPECT_EQ(fraction, 0.25);
  EXPECT_EQ(request(300_MiB), QUARRY_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(request(200_MiB), QUARRY_OK);
  EXPECT_EQ(stat("num_ooms"), 2);
}

TEST_F(KillSwitch, CallbacksAreAskedAndTold) {
  struct Seen {
    void* block = nullptr;
    int told = 0;
  } seen;
  seen.block = allocate(800_MiB);
  const quarry_free_memory_callback on_short = [](int, std::uint64_t, void* user) {
    auto* held = static_cast<Seen*>(user);
    if (held->block == nullptr) return 0;
    quarry_free(std::exchange(held->block, nullptr));
    return 1;
  };
  const quarry_oom_callback on_oom = [](const quarry_oom_report* report, void* user) {
    EXPECT_EQ(report->requested_bytes, 2_GiB);
    EXPECT_EQ(report->reason, QUARRY_OOM_IMPOSSIBLE);
    ++static_cast<Seen*>(user)->told;
  };
  ASSERT_EQ(quarry_add_free_memory_callback(on_short, &seen, nullptr), QUARRY_OK);
  ASSERT_EQ(quarry_add_oom_callback(on_oom, &seen, nullptr), QUARRY_OK);
  EXPECT_EQ(request(600_MiB), QUARRY_OK);
  EXPECT_EQ(seen.block, nullptr);
  EXPECT_EQ(request(2_GiB), QUARRY_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(seen.told, 1);
}

TEST_F(KillSwitch, AFreeWhereTheDriverMustNotBeCalledWaitsForTheNextCall) {
  void* in_callback = allocate(4 << 20);
  void* under_guard = allocate(4 << 20);
  ASSERT_EQ(quarry_driver_callback_begin(), QUARRY_OK);
  sim().set_callback_thread(true);
  EXPECT_EQ(quarry_free_checked(in_callback), QUARRY_OK);
  EXPECT_EQ(request(512), QUARRY_ERROR_BUSY);
  sim().set_callback_thread(false);
  ASSERT_EQ(quarry_driver_callback_end(), QUARRY_OK);
  ASSERT_EQ(quarry_driver_free_guard_lock(), QUARRY_OK);
  EXPECT_EQ(quarry_free_checked(under_guard), QUARRY_OK);
  EXPECT_EQ(sim().call_count(DriverEntry::kFree), 0u);
  ASSERT_EQ(quarry_driver_free_guard_unlock(), QUARRY_OK);
  EXPECT_EQ(request(512), QUARRY_OK);
  EXPECT_EQ(sim().call_count(DriverEntry::kFree), 2u);
  EXPECT_EQ(sim().misuse_count(), 0u);
}

TEST_F(KillSwitch, ADriverErrorIsReportedAndNothingIsLeftBehind) {
  sim().fail_call(DriverEntry::kAllocate, 1, DriverCode::kIllegalAddress);
  EXPECT_EQ(request(512), QUARRY_ERROR_DRIVER);
  EXPECT_TRUE(error_says("CUDA_ERROR_ILLEGAL_ADDRESS"));
  EXPECT_EQ(stat("allocation.all.allocated"), 0);
  EXPECT_EQ(stat("reserved_bytes.all.peak"), 0);
  void* ptr = allocate(512);
  sim().fail_call(DriverEntry::kFree, 1, DriverCode::kIllegalAddress);
  EXPECT_EQ(quarry_free_checked(ptr), QUARRY_ERROR_DRIVER);
  EXPECT_EQ(stat("driver_free_failures"), 1);
}

// A second request while the first is inside the driver, as another thread may make it.
TEST(KillSwitchLimit, HoldsForRequestsThatAreUnderWayTogether) {
  quarry_status inner = QUARRY_OK;
  bool is_inside = false;
  const auto hook = [&](DriverEntry entry) {
    if (entry != DriverEntry::kAllocate || std::exchange(is_inside, true)) return;
    void* ptr = nullptr;
    inner = quarry_malloc(&ptr, 6_MiB, 0, nullptr);
  };
  ProcessOptions options;
  options.is_disabled = true;
  ASSERT_TRUE(
      start_process(std::make_unique<HookedDriver>(std::make_unique<SimDriver>(), hook), options)
          .is_ok());
  ASSERT_EQ(quarry_set_limit(0, 10_MiB), QUARRY_OK);
  void* ptr = nullptr;
  EXPECT_EQ(quarry_malloc(&ptr, 6_MiB, 0, nullptr), QUARRY_OK);
  EXPECT_EQ(inner, QUARRY_ERROR_OUT_OF_MEMORY);
  quarry_free(ptr);
  EXPECT_EQ(quarry_malloc(&ptr, 6_MiB, 0, nullptr), QUARRY_OK);
  ASSERT_EQ(quarry_shutdown(), QUARRY_OK);
}

}  // namespace
}  // namespace quarry
