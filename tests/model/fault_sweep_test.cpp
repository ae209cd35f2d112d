// SPDX-License-Identifier: Apache-2.0
// Errors of the driver: every call of every entry in two programs, one of them with private pools
// and graphs, fails once with out-of-memory and once with another error (records also with "not
// permitted"). QUARRY_MODEL_SEED=N tries other programs.
#include <gtest/gtest.h>

#include <cstdlib>

#include "core/allocator.hpp"
#include "sim/sim_driver.hpp"
#include "tests/model/fault_sweep.hpp"
#include "tests/model/generator.hpp"
#include "tests/model/runner.hpp"

namespace quarry::model {
namespace {

// The time that a sweep takes grows with their square.
#if defined(__SANITIZE_ADDRESS__)
constexpr std::size_t kOperations = 1200;
#else
constexpr std::size_t kOperations = 2000;
#endif
constexpr std::size_t kOperationsWithPools = 1300;  // which make more calls

class FaultSweepTest : public testing::TestWithParam<std::uint64_t> {};

TEST_P(FaultSweepTest, EveryCallOfEveryEntryMayFail) {
  const char* const offset = std::getenv("QUARRY_MODEL_SEED");
  std::uint64_t seed =
      1000 * GetParam() + (offset == nullptr ? 0 : std::strtoull(offset, nullptr, 10));
  const bool has_pools = GetParam() == 1;
  Case experiment;
  do {
    Entropy entropy(seed++);
    experiment = generate_case(entropy, has_pools ? kOperationsWithPools : kOperations,
                               Repertoire::kOneThread);
  } while (experiment.options.has_pools != has_pools);
  experiment.options.made_streams = 3;
  experiment.options.physical_bytes = 128_MiB;  // small: with retries and out-of-memory results
  ASSERT_TRUE(run_isolated(experiment).has_passed());

  const SweepResult result = sweep_faults(experiment);
  for (const std::string& failure : result.failures)
    ADD_FAILURE() << failure;
  for (const DriverEntry entry :
       {DriverEntry::kGetMemoryInfo, DriverEntry::kAllocate, DriverEntry::kFree,
        DriverEntry::kCreateEvent, DriverEntry::kDestroyEvent, DriverEntry::kRecordEvent,
        DriverEntry::kQueryEvent, DriverEntry::kSynchronizeEvent, DriverEntry::kGetCaptureStatus,
        DriverEntry::kExchangeCaptureMode}) {
    EXPECT_GT(result.tried[static_cast<std::size_t>(entry)], 0u) << get_name(entry);
    RecordProperty(std::string(get_name(entry)),
                   std::to_string(result.tried[static_cast<std::size_t>(entry)]));
  }
  EXPECT_GT(result.failed_requests, 20u);
  const auto asked = result.tried[static_cast<std::size_t>(DriverEntry::kGetCaptureInfo)];
  EXPECT_EQ(asked > 100, has_pools);
}

// The first with private pools and graphs.
INSTANTIATE_TEST_SUITE_P(Program, FaultSweepTest, testing::Values(1u, 2u));

// The calls before there is an allocator.
TEST(FaultTest, AnAllocatorThatCannotLearnItsDevicesIsNotMade) {
  for (const DriverEntry entry :
       {DriverEntry::kGetDeviceCount, DriverEntry::kGetDeviceProperties}) {
    for (const DriverCode code : get_codes(entry)) {
      SimDriver sim;
      sim.fail_call(entry, 1, code);
      const auto made = Allocator::create(sim, Config{});
      EXPECT_EQ(made.code(), StatusCode::kDriverError) << get_name(entry);
      EXPECT_TRUE(Allocator::create(sim, Config{}).is_ok());
    }
  }
}

}  // namespace
}  // namespace quarry::model
