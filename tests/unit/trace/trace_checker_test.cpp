// SPDX-License-Identifier: Apache-2.0
// The meaning of traces: what is refused, in which words, and the trace's own figures.
#include "trace/trace_checker.hpp"

#include <gtest/gtest.h>

namespace quarry {
namespace {

TraceEvent alloc(std::uint64_t id, Bytes bytes) {
  return {0, id, bytes, 0, TraceOp::kAlloc};
}
TraceEvent free_of(std::uint64_t id) {
  return {0, id, 0, kNoTraceStream, TraceOp::kFree};
}
TraceEvent record(std::uint64_t id) {
  return {0, id, 0, 1, TraceOp::kRecordStream};
}

class TraceCheckerTest : public testing::Test {
 protected:
  std::string check(const TraceEvent& event) {
    return explain(checker_.check(event, slot_), event);
  }
  TraceChecker checker_;
  TraceSlot slot_ = 0;
};

TEST_F(TraceCheckerTest, TellsAFreeOfAnUnknownIdFromADoubleFree) {
  EXPECT_EQ(check(alloc(1, 10)), "");
  EXPECT_EQ(check(free_of(1)), "");
  EXPECT_EQ(check(free_of(1)), "free of id 1, which was freed already");
  EXPECT_EQ(check(free_of(2)), "free of id 2, which was never allocated");
}

TEST_F(TraceCheckerTest, RefusesAnIdThatLives) {
  EXPECT_EQ(check(alloc(1, 10)), "");
  EXPECT_EQ(check(alloc(1, 20)), "allocation of id 1, which is allocated already");
}

TEST_F(TraceCheckerTest, AcceptsAnIdAgainAfterItsFree) {
  EXPECT_EQ(check(alloc(1, 10)), "");
  EXPECT_EQ(check(free_of(1)), "");
  EXPECT_EQ(check(alloc(1, 10)), "");
  EXPECT_EQ(check(free_of(1)), "");
}

TEST_F(TraceCheckerTest, RefusesRecordsOfTheDead) {
  EXPECT_EQ(check(record(1)), "record_stream of id 1, which was never allocated");
  EXPECT_EQ(check(alloc(1, 10)), "");
  EXPECT_EQ(check(record(1)), "");
  EXPECT_EQ(check(free_of(1)), "");
  EXPECT_EQ(check(record(1)), "record_stream of id 1, which was freed already");
}

TEST_F(TraceCheckerTest, RefusesRowsThatContradictTheAllocation) {
  EXPECT_EQ(check({0, 1, 1000, 3, TraceOp::kAlloc}), "");
  EXPECT_EQ(check({0, 1, 999, 3, TraceOp::kFree}),
            "free of id 1 with bytes 999, which is not what its allocation asked for");
  EXPECT_EQ(check({0, 1, 1024, 4, TraceOp::kRecordStream}),
            "record_stream of id 1 with bytes 1024, which is not what its allocation asked for");
  EXPECT_EQ(check({0, 1, 1000, 4, TraceOp::kFree}),
            "free of id 1 with stream 4, which is not that of its allocation");
  EXPECT_EQ(check({0, 1, 1000, 4, TraceOp::kRecordStream}), "");
  EXPECT_EQ(checker_.totals().frees, 0u);
  EXPECT_EQ(check({0, 1, 1000, 3, TraceOp::kFree}), "");
}

TEST_F(TraceCheckerTest, RefusesRequestsOfAnExbibyteAndMore) {
  EXPECT_EQ(check(alloc(1, kMaxTraceRequest - 1)), "");
  EXPECT_EQ(check(alloc(2, kMaxTraceRequest)),
            "allocation of id 2 with 1152921504606846976 bytes; a request is below "
            "1152921504606846976 (1 EiB)");
  EXPECT_EQ(check(alloc(3, kUnlimited)),
            "allocation of id 3 with 18446744073709551615 bytes; a request is below "
            "1152921504606846976 (1 EiB)");
}

TEST_F(TraceCheckerTest, RefusesMoreLivingBytesThanCanBeCounted) {
  for (std::uint64_t id = 0; id < 15; ++id)
    EXPECT_EQ(check(alloc(id, kMaxTraceRequest - 1)), "");
  EXPECT_EQ(check(alloc(15, kMaxTraceRequest - 1)),
            "allocation of id 15 with 1152921504606846975 bytes makes the living requests exceed "
            "64 bits");
}

TEST_F(TraceCheckerTest, CountsLiveRequestsInMultiplesOf512) {
  EXPECT_EQ(check(alloc(1, 0)), "");
  EXPECT_EQ(checker_.totals().peak_bytes, 0u);
  EXPECT_EQ(check(alloc(2, 1)), "");
  EXPECT_EQ(check(alloc(3, 513)), "");
  EXPECT_EQ(check(free_of(2)), "");
  EXPECT_EQ(check(alloc(4, 512)), "");
  EXPECT_EQ(checker_.totals().live_bytes, 1536u);
  EXPECT_EQ(checker_.totals().peak_bytes, 1536u);
  EXPECT_EQ(checker_.totals().allocs, 4u);
  EXPECT_EQ(checker_.totals().frees, 1u);
}

TEST_F(TraceCheckerTest, GivesTheSlotOfTheAllocationToItsOtherRows) {
  EXPECT_EQ(check(alloc(70, 1)), "");
  const TraceSlot slot = slot_;
  EXPECT_EQ(check(alloc(71, 1)), "");
  EXPECT_NE(slot_, slot);
  EXPECT_EQ(check(record(70)), "");
  EXPECT_EQ(slot_, slot);
  EXPECT_EQ(check(free_of(70)), "");
  EXPECT_EQ(slot_, slot);
}

}  // namespace
}  // namespace quarry
