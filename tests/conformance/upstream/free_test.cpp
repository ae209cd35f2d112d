// SPDX-License-Identifier: Apache-2.0
// free and record_stream: which events are recorded and when, and when a pending block is free.
#include <gtest/gtest.h>

#include "tests/support/scenario.hpp"

namespace quarry::test {
namespace {

class UpstreamFree : public testing::Test {
 protected:
  std::uint64_t records() const { return s_.calls(DriverEntry::kRecordEvent); }
  Scenario s_;
};

TEST_F(UpstreamFree, RecordStreamItselfRecordsNothing) {
  const StreamHandle side = s_.make_stream();
  const Address p = s_.malloc(4096);
  s_.record(p, side);
  EXPECT_EQ(records(), 0u);
  s_.free(p);
  EXPECT_EQ(records(), 1u);
}

TEST_F(UpstreamFree, TheBlocksOwnStreamIsIgnored) {
  const StreamHandle side = s_.make_stream();
  const Address p = s_.malloc(4096, side);
  s_.record(p, side);
  s_.busy(side);
  s_.free(p);
  EXPECT_EQ(records(), 0u);
  EXPECT_EQ(s_.active(), 0u);
  EXPECT_EQ(s_.malloc(4096, side), p);
}

TEST_F(UpstreamFree, OneEventIsRecordedForEachStreamHoweverOftenItWasRecorded) {
  const StreamHandle side[3] = {s_.make_stream(), s_.make_stream(), s_.make_stream()};
  const Address p = s_.malloc(4096);
  for (int i = 0; i < 5; ++i) {
    for (const StreamHandle stream : side)
      s_.record(p, stream);
  }
  s_.free(p);
  EXPECT_EQ(records(), 3u);
}

TEST_F(UpstreamFree, TheEventCoversWhatWasSubmittedUntilTheFree) {
  const StreamHandle side = s_.make_stream();
  const Address p = s_.malloc(4096);
  s_.record(p, side);
  s_.busy(side);  // after the record, before the free
  s_.free(p);
  EXPECT_NE(s_.malloc(4096), p);
  s_.complete(side);
  EXPECT_EQ(s_.malloc(4096), p);

  s_.record(p, side);
  s_.free(p);
  s_.busy(side);  // after the free
  EXPECT_EQ(s_.malloc(4096), p);
}

TEST_F(UpstreamFree, ABlockOfSeveralStreamsWaitsForTheLast) {
  const StreamHandle one = s_.make_stream(), two = s_.make_stream();
  const Address p = s_.malloc(4096);
  s_.record(p, one);
  s_.record(p, two);
  s_.busy(one);
  s_.busy(two);
  s_.free(p);
  s_.complete(two);
  EXPECT_NE(s_.malloc(4096), p);
  s_.complete(one);
  EXPECT_EQ(s_.malloc(4096), p);
}

TEST_F(UpstreamFree, PendingBlocksAreLookedAtByTheNextMalloc) {
  const StreamHandle side = s_.make_stream();
  const Address p = s_.malloc(4096);
  s_.record(p, side);
  s_.busy(side);
  s_.free(p);
  s_.complete(side);
  EXPECT_EQ(s_.active(), 4096u);
  s_.free(0);
  EXPECT_EQ(s_.active(), 4096u);
  s_.malloc(512);
  EXPECT_EQ(s_.active(), 512u);
}

TEST_F(UpstreamFree, AFreeWithoutOtherStreamsMakesNoDriverCall) {
  const Address p = s_.malloc(4096);
  s_.sim().reset_call_counts();
  s_.free(p);
  EXPECT_EQ(s_.sim().call_count(), 0u);
}

// In a capture nothing is recorded, queried or freed that would lose it; afterwards all goes on.
TEST_F(UpstreamFree, ACaptureOnTheUsedStreamDefersTheEvent) {
  const StreamHandle side = s_.make_stream();
  const Address p = s_.malloc(4096), q = s_.malloc(4096);
  s_.record(p, side);
  s_.record(q, side);
  s_.free(p);
  ASSERT_EQ(s_.sim().begin_capture({0, side}, CaptureMode::kGlobal), DriverCode::kSuccess);
  s_.sim().reset_call_counts();
  s_.free(q);
  EXPECT_EQ(records(), 0u);
  EXPECT_NE(s_.malloc(3_MiB), 0u) << "growing does not lose it either";
  EXPECT_EQ(s_.malloc(4096), p) << "the event from before the capture is seen";
  EXPECT_TRUE(s_.sim().end_capture({0, side}).is_ok());
  EXPECT_EQ(s_.malloc(4096), q);
}

TEST_F(UpstreamFree, AnInvalidPointerIsNamedAsPyTorchDoes) {
  EXPECT_EQ(s_.free(0x1234), StatusCode::kInvalidPointer);
  EXPECT_NE(s_.last_message().find("invalid device pointer: 0x1234"), std::string::npos);
}

}  // namespace
}  // namespace quarry::test
