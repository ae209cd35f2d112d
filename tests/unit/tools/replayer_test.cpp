// SPDX-License-Identifier: Apache-2.0
// The replay loop: how rows become requests, GPU work and counted results.
#include "tools/replayer.hpp"

#include <gtest/gtest.h>

namespace quarry::tools {
namespace {

TraceEvent alloc(std::uint64_t time_us, std::uint64_t id, Bytes bytes, std::uint64_t stream = 0) {
  return {time_us, id, bytes, stream, TraceOp::kAlloc};
}
TraceEvent free_of(std::uint64_t time_us, std::uint64_t id) {
  return {time_us, id, 0, kNoTraceStream, TraceOp::kFree};
}
TraceEvent record(std::uint64_t time_us, std::uint64_t id, std::uint64_t stream) {
  return {time_us, id, 0, stream, TraceOp::kRecordStream};
}

ReplayResult replay(const ReplayOptions& options, const std::vector<TraceEvent>& events) {
  Result<std::unique_ptr<Replayer>> replayer = Replayer::create(options);
  EXPECT_TRUE(replayer.is_ok());
  const Status status = replayer.value()->replay(events);
  EXPECT_EQ(status.message(), "");
  Result<ReplayResult> result = replayer.value()->finish();
  EXPECT_EQ(result.status().message(), "");
  return std::move(result).value();
}

ReplayOptions make_options() {
  ReplayOptions options;
  options.validate = true;
  return options;
}

TEST(Replayer, ReproducesTheSizesOfSegments) {
  // 20 MiB for 1 MiB < size < 10 MiB, multiples of 2 MiB from there, 2 MiB up to 1 MiB.
  const ReplayResult result = replay(
      make_options(), {alloc(0, 1, 5_MiB), alloc(1, 2, 17_MiB), alloc(2, 3, 1), free_of(3, 2)});
  EXPECT_EQ(result.peak_reserved_bytes, 20_MiB + 18_MiB + 2_MiB);
  EXPECT_EQ(result.trace.peak_bytes, 22_MiB + 512);
  EXPECT_EQ(result.trace.allocs, 3u);
  EXPECT_EQ(result.trace.frees, 1u);
  EXPECT_EQ(result.hazards, 0u);
}

TEST(Replayer, CountsOutOfMemoryAndTheRowsThatFollow) {
  ReplayOptions options = make_options();
  options.device_memory_bytes = 64_MiB;
  const ReplayResult result =
      replay(options, {alloc(0, 1, 32_MiB), alloc(1, 2, 40_MiB), record(2, 2, 1), free_of(3, 2),
                       free_of(4, 1), alloc(5, 2, 40_MiB), free_of(6, 2)});
  EXPECT_EQ(result.ooms, 1u);
  EXPECT_EQ(result.rows_after_oom, 2u);
  EXPECT_EQ(result.trace.peak_bytes, 72_MiB);
  EXPECT_EQ(result.peak_allocated_bytes, 40_MiB);
}

TEST(Replayer, CountsEmptyRequests) {
  const ReplayResult result =
      replay(make_options(), {alloc(0, 1, 0), record(1, 1, 1), free_of(2, 1), alloc(3, 2, 0)});
  EXPECT_EQ(result.empty_requests, 2u);
  EXPECT_EQ(result.rows_after_oom, 0u);
  EXPECT_EQ(result.peak_reserved_bytes, 0u);
}

// A block that another stream uses comes back when that stream's work has ended: at once, or after
// the lag.
TEST(Replayer, LetsRecordedStreamsHoldABlockForTheLag) {
  const std::vector<TraceEvent> events = {
      alloc(0, 1, 30_MiB),    record(10, 1, 7), free_of(20, 1),
      alloc(30, 2, 30_MiB),   free_of(40, 2),   alloc(2000, 3, 30_MiB),
      alloc(2001, 4, 30_MiB), free_of(2002, 3), free_of(2003, 4)};
  EXPECT_EQ(replay(make_options(), events).peak_reserved_bytes, 60_MiB);
  const std::vector<TraceEvent> first_five(events.begin(), events.begin() + 5);
  EXPECT_EQ(replay(make_options(), first_five).peak_reserved_bytes, 30_MiB);
  ReplayOptions late = make_options();
  late.gpu_lag_us = 1000;
  EXPECT_EQ(replay(late, first_five).peak_reserved_bytes, 60_MiB);
  EXPECT_EQ(replay(late, first_five).peak_active_bytes, 60_MiB);
  EXPECT_EQ(replay(late, events).peak_reserved_bytes, 60_MiB);
  EXPECT_EQ(replay(late, events).hazards, 0u);
}

TEST(Replayer, GivesTheSameFiguresWithTheOracleOff) {
  ReplayOptions options = make_options();
  options.gpu_lag_us = 500;
  std::vector<TraceEvent> events;
  for (std::uint64_t i = 0; i < 3000; ++i) {
    events.push_back(alloc(i * 10, i, 1_MiB + (i * 7919 % 97) * 64_KiB, i % 3));
    if (i % 5 == 0) events.push_back(record(i * 10 + 1, i, 3 + i % 2));
    if (i >= 20) events.push_back(free_of(i * 10 + 2, i - 20));
  }
  const ReplayResult with_oracle = replay(options, events);
  options.oracle = false;
  const ReplayResult without = replay(options, events);
  EXPECT_EQ(with_oracle.hazards, 0u);
  EXPECT_EQ(with_oracle.peak_reserved_bytes, without.peak_reserved_bytes);
  EXPECT_EQ(with_oracle.driver_calls, without.driver_calls);
}

TEST(Replayer, ComparesItsSegmentsWithTheRecordedOnes) {
  ReplayOptions options = make_options();
  options.compare_segments = true;
  const TraceEvent segment = {0, 0, 20_MiB, 0, TraceOp::kSegmentAlloc};
  const ReplayResult equal = replay(options, {segment, alloc(0, 1, 5_MiB), alloc(1, 2, 512)});
  EXPECT_EQ(equal.segment_difference, "");
  EXPECT_EQ(equal.equal_segments, 1u);
  const ReplayResult other = replay(options, {segment, alloc(0, 1, 12_MiB)});
  EXPECT_EQ(other.segment_difference,
            "segment 1 has 12,582,912 bytes in the replay and 20,971,520 in the recording");
}

TEST(Replayer, StopsAtARowThatMakesNoSense) {
  Result<std::unique_ptr<Replayer>> replayer = Replayer::create(make_options());
  const Status status = replayer.value()->replay(
      std::vector<TraceEvent>{alloc(0, 1, 512), free_of(1, 1), free_of(2, 1), alloc(3, 2, 1)});
  EXPECT_EQ(status.message(), "free of id 1, which was freed already");
  EXPECT_EQ(replayer.value()->event_count(), 3u);
}

TEST(Replayer, SurvivesTimesBeyondItsClock) {
  const ReplayResult result =
      replay(make_options(), {alloc(~0ull, 1, 512), free_of(~0ull, 1), alloc(0, 2, 512)});
  EXPECT_EQ(result.trace.allocs, 2u);
}

}  // namespace
}  // namespace quarry::tools
