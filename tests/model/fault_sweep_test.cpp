// SPDX-License-Identifier: Apache-2.0
// Errors of the driver: every call of every entry in four programs, with and without private pools
// and graphs, in plain and in expandable segments, fails once with out-of-memory and once with
// another error (records also with "not permitted"). QUARRY_MODEL_SEED=N tries other programs.
#include <gtest/gtest.h>

#include <cstdlib>
#include <ostream>
#include <span>

#include "core/allocator.hpp"
#include "sim/sim_driver.hpp"
#include "tests/model/fault_sweep.hpp"
#include "tests/model/generator.hpp"
#include "tests/model/runner.hpp"

namespace quarry::model {
namespace {

// The time that a sweep takes grows with their square.
#if defined(__SANITIZE_ADDRESS__)
constexpr std::size_t kOperations = 600;
#else
constexpr std::size_t kOperations = 2000;
#endif
constexpr std::size_t kOperationsWithPools = 1300;  // which make more calls

struct Program {
  const char* name;
  std::uint64_t seed;
  bool has_pools;
  bool is_expandable;
};

void PrintTo(const Program& program, std::ostream* out) {
  *out << program.name;
}

class FaultSweepTest : public testing::TestWithParam<Program> {};

Case make_case(const Program& program) {
  const char* const offset = std::getenv("QUARRY_MODEL_SEED");
  std::uint64_t seed =
      1000 * program.seed + (offset == nullptr ? 0 : std::strtoull(offset, nullptr, 10));
  Case made;
  do {
    Entropy entropy(seed++);
    made = generate_case(entropy, program.has_pools ? kOperationsWithPools : kOperations,
                         Repertoire::kOneThread);
  } while (made.options.has_pools != program.has_pools);
  made.options.expandable = program.is_expandable;
  made.options.made_streams = 3;
  made.options.physical_bytes = 128_MiB;  // small: with retries and out-of-memory results
  return made;
}

constexpr DriverEntry kEntries[] = {DriverEntry::kGetMemoryInfo,
                                    DriverEntry::kAllocate,
                                    DriverEntry::kFree,
                                    DriverEntry::kCreateEvent,
                                    DriverEntry::kDestroyEvent,
                                    DriverEntry::kRecordEvent,
                                    DriverEntry::kQueryEvent,
                                    DriverEntry::kSynchronizeEvent,
                                    DriverEntry::kGetCaptureStatus,
                                    DriverEntry::kExchangeCaptureMode};
constexpr DriverEntry kExpandableEntries[] = {
    DriverEntry::kReserveAddresses, DriverEntry::kFreeAddresses, DriverEntry::kCreateExtent,
    DriverEntry::kReleaseExtent,    DriverEntry::kMap,           DriverEntry::kUnmap,
    DriverEntry::kSetAccess,        DriverEntry::kWaitEvent};

TEST_P(FaultSweepTest, EveryCallOfEveryEntryMayFail) {
  const Program& program = GetParam();
  const Case experiment = make_case(program);
  ASSERT_TRUE(run_isolated(experiment).has_passed());

  const SweepResult result = sweep_faults(experiment);
  for (const std::string& failure : result.failures)
    ADD_FAILURE() << failure;
  const auto expect_tried = [&result](std::span<const DriverEntry> entries) {
    for (const DriverEntry entry : entries) {
      const std::uint64_t tried = result.tried[static_cast<std::size_t>(entry)];
      EXPECT_GT(tried, 0u) << get_name(entry);
      RecordProperty(std::string(get_name(entry)), std::to_string(tried));
    }
  };
  expect_tried(kEntries);
  if (program.is_expandable) expect_tried(kExpandableEntries);
  EXPECT_GT(result.failed_requests, 20u);
  const auto asked = result.tried[static_cast<std::size_t>(DriverEntry::kGetCaptureInfo)];
  EXPECT_EQ(asked > 100, program.has_pools);
}

INSTANTIATE_TEST_SUITE_P(Program, FaultSweepTest,
                         testing::Values(Program{"WithPools", 1, true, false},
                                         Program{"WithoutPools", 2, false, false},
                                         Program{"ExpandableWithPools", 8, true, true},
                                         Program{"Expandable", 4, false, true}),
                         [](const auto& tested) { return tested.param.name; });

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
