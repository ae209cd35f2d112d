// SPDX-License-Identifier: Apache-2.0
#include "patterns/workload.hpp"

#include <gtest/gtest.h>

namespace quarry::patterns {
namespace {

constexpr DeviceRates kRates{
    .tflops = 1, .memory_gb_per_s = 10, .link_gb_per_s = 2, .load_gb_per_s = 1};
constexpr Moment kLaunch = DeviceRates::kLaunchNs;

std::vector<TraceEvent> finish(Workload& workload) {
  Result<std::vector<TraceEvent>> rows = workload.finish();
  EXPECT_TRUE(rows.is_ok()) << rows.status().message();
  return rows.is_ok() ? std::move(rows).value() : std::vector<TraceEvent>();
}

TEST(WorkloadTest, WorkTakesWhatItsOperationsOrItsBytesNeed) {
  Workload workload(kRates, 0);
  workload.run(0, 5'000'000, 10);
  EXPECT_EQ(workload.now(0), 5'000 + kLaunch);
  workload.run(1, 1'000, 70'000);
  EXPECT_EQ(workload.now(1), 7'000 + kLaunch);
  workload.send(2, 8'000);
  EXPECT_EQ(workload.now(2), 4'000 + kLaunch);
  workload.load(6'000);
  EXPECT_EQ(workload.now(0), 5'000 + 6'000 + 2 * kLaunch);
}

TEST(WorkloadTest, ThreadsThatShareTheDeviceAreSlowerByTheirNumber) {
  Workload workload(kRates, 0);
  workload.share_device(4);
  workload.run(0, 5'000'000, 0);
  EXPECT_EQ(workload.now(0), 4 * 5'000 + kLaunch);
}

TEST(WorkloadTest, AStreamThatWaitsNeverStepsBack) {
  Workload workload(kRates, 0);
  workload.wait(0, 9'000);
  workload.wait(0, 1'000);
  EXPECT_EQ(workload.now(0), 9'000u);
}

TEST(WorkloadTest, RowsOfOneThreadKeepTheirOrderWhateverTheirStreams) {
  Workload workload(kRates, 0);
  workload.wait(1, 50'000);
  const Tensor late = workload.allocate(100, 1);
  const Tensor early = workload.allocate(200, 0);
  workload.record_stream(early, 1);
  workload.free(early);
  workload.free(late);
  const std::vector<TraceEvent> expected = {{50, 1, 100, 1, TraceOp::kAlloc},
                                            {50, 2, 200, 0, TraceOp::kAlloc},
                                            {50, 2, 0, 1, TraceOp::kRecordStream},
                                            {50, 2, 0, 0, TraceOp::kFree},
                                            {50, 1, 0, 1, TraceOp::kFree}};
  EXPECT_EQ(finish(workload), expected);
}

TEST(WorkloadTest, RowsOfSeveralThreadsComeInTheOrderOfTimeWithIdsInSequence) {
  Workload workload(kRates, 0);
  workload.assign_thread(1, 1);
  workload.wait(0, 30'000);
  const Tensor late = workload.allocate(100, 0);
  const Tensor early = workload.allocate(200, 1);
  workload.wait(1, 40'000);
  workload.free_by(late, 1);
  workload.free(early);
  const std::vector<TraceEvent> expected = {{0, 1, 200, 1, TraceOp::kAlloc},
                                            {30, 2, 100, 0, TraceOp::kAlloc},
                                            {40, 2, 0, 0, TraceOp::kFree},
                                            {40, 1, 0, 1, TraceOp::kFree}};
  EXPECT_EQ(finish(workload), expected);
}

TEST(WorkloadTest, CountsWhatIsKept) {
  Workload workload(kRates, 0);
  workload.keep(100);
  workload.keep_loaded(200);
  workload.free(workload.allocate(300));
  EXPECT_EQ(workload.kept_count(), 2u);
}

TEST(WorkloadTest, ARequestThatNoProgramMakesIsRefused) {
  Workload workload(kRates, 0);
  workload.allocate(multiply(1u << 31, 1u << 31, 1u << 31));
  EXPECT_EQ(workload.finish().status().message(),
            "these knobs ask for too much: allocation of id 1 with 18446744073709551615 bytes; a "
            "request is below 1152921504606846976 (1 EiB)");
}

TEST(WorkloadTest, ATraceThatIsTooLongIsRefused) {
  Workload workload(kRates, 0);
  while (!workload.is_full())
    workload.free(workload.allocate(1));
  workload.allocate(1);
  EXPECT_EQ(workload.finish().status().message(),
            "these knobs ask for too much: a trace of 5000000 rows or more");
}

TEST(WorkloadTest, AProductThatDoesNotFitIsTheLargestNumber) {
  EXPECT_EQ(multiply(3, 4, 5), 60u);
  EXPECT_EQ(multiply(~std::uint64_t{0}, 1), ~std::uint64_t{0});
  EXPECT_EQ(multiply(std::uint64_t{1} << 40, std::uint64_t{1} << 40), ~std::uint64_t{0});
}

}  // namespace
}  // namespace quarry::patterns
