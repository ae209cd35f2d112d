// SPDX-License-Identifier: Apache-2.0
#include "bench/policy_model/recycling_model.hpp"

#include <gtest/gtest.h>

namespace quarry::policy_model {
namespace {

class TraceBuilder {
 public:
  TraceSlot allocate(Bytes bytes, std::uint32_t stream = 0) {
    add(TraceOp::kAlloc, trace_.slot_count, bytes, stream);
    return trace_.slot_count++;
  }
  void free(TraceSlot slot) { add(TraceOp::kFree, slot, 0, 0); }
  const PolicyTrace& get() const { return trace_; }

 private:
  void add(TraceOp op, TraceSlot slot, Bytes bytes, std::uint32_t stream) {
    trace_.events.push_back({trace_.events.size(), op, slot, bytes, stream});
    trace_.span_us = trace_.events.size();
  }

  PolicyTrace trace_;
};

RecyclingOptions make_options(std::uint64_t lag_us) {
  RecyclingOptions options;
  options.lag_us = lag_us;
  options.slack = 0;
  options.time_budget = 0;
  return options;
}

// Two blocks of 16 MiB with a held one between them; both are freed, then one of 32 is asked for.
PolicyTrace make_scattered(std::uint32_t last_stream) {
  TraceBuilder trace;
  const TraceSlot low = trace.allocate(16_MiB);
  trace.allocate(2_MiB);
  const TraceSlot high = trace.allocate(16_MiB);
  trace.free(low);
  trace.free(high);
  trace.allocate(32_MiB, last_stream);
  return trace.get();
}

TEST(RecyclingModelTest, IdleExtentsMoveToWhereTheyAreNeeded) {
  const RecyclingResult result = replay_recycling(make_scattered(0), make_options(0));
  EXPECT_EQ(result.peak_reserved_bytes, 34_MiB);
  EXPECT_EQ(result.created, 17u);
  EXPECT_EQ(result.moved, 8u);
  EXPECT_EQ(result.most_retiring_bytes, 0u);
}

TEST(RecyclingModelTest, AStreamsOwnExtentsMoveAtOnceAndTheirAddressesRetire) {
  const RecyclingResult result = replay_recycling(make_scattered(0), make_options(1000));
  EXPECT_EQ(result.peak_reserved_bytes, 34_MiB);
  EXPECT_EQ(result.moved, 8u);
  EXPECT_EQ(result.waits, 0u);
  EXPECT_EQ(result.most_retiring_bytes, 16_MiB);
}

TEST(RecyclingModelTest, PassedExtentsAloneDoNotHelpAHostThatRunsAhead) {
  RecyclingOptions options = make_options(1000);
  options.recycle = Recycle::kPassed;
  const RecyclingResult result = replay_recycling(make_scattered(0), options);
  EXPECT_EQ(result.moved, 0u);
  EXPECT_EQ(result.peak_reserved_bytes, 50_MiB);
}

TEST(RecyclingModelTest, AnotherStreamWaitsRatherThanGrowsBeyondTheBudget) {
  const RecyclingResult result = replay_recycling(make_scattered(1), make_options(1000));
  EXPECT_EQ(result.peak_reserved_bytes, 34_MiB);
  EXPECT_EQ(result.waits, 1u);
  RecyclingOptions options = make_options(1000);
  options.allows_waits = false;
  EXPECT_EQ(replay_recycling(make_scattered(1), options).peak_reserved_bytes, 66_MiB);
}

}  // namespace
}  // namespace quarry::policy_model
