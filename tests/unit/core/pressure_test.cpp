// SPDX-License-Identifier: Apache-2.0
// Requests under odd conditions: aligned ones in a full device, streams that do not end, and a
// driver that is sick.
#include <gtest/gtest.h>

#include "tests/support/scenario.hpp"

namespace quarry::test {
namespace {

TEST(PressureTest, AnAlignedRequestTakesAFreeBlockThatFitsAsItLies) {
  Scenario s(22_MiB);
  const Address first = s.malloc(20_MiB, kS0, 2_MiB);
  ASSERT_NE(first, 0u);
  ASSERT_NE(s.malloc(1'500'000), 0u);  // in what the alignment left over
  ASSERT_EQ(s.free(first), StatusCode::kOk);
  EXPECT_EQ(s.malloc(20_MiB, kS0, 2_MiB), first);
}

TEST(PressureTest, TheLegacyStreamCannotBeRetired) {
  Scenario s;
  for (const StreamHandle handle : {StreamHandle::kLegacy, StreamHandle::kLegacyExplicit}) {
    EXPECT_EQ(s.allocator().retire_stream({0, handle}).code(), StatusCode::kInvalidArgument);
  }
}

TEST(PressureTest, ASickDriverIsNotTakenForACapture) {
  Scenario s;
  const StreamHandle stream = s.make_stream();
  ASSERT_EQ(s.free(s.malloc(512, stream)), StatusCode::kOk);
  s.sim().fail_call(DriverEntry::kGetCaptureStatus, 1, DriverCode::kIllegalAddress);
  const Status status = s.allocator().retire_stream({0, stream});
  EXPECT_EQ(status.code(), StatusCode::kDriverError) << status.message();
  EXPECT_TRUE(s.allocator().retire_stream({0, stream}).is_ok());
}

TEST(PressureTest, AHolderOfTheGateIsToldAtOnceThatTheCacheCannotBeEmptied) {
  Scenario s;
  const StreamHandle side = s.make_stream();
  const Address block = s.malloc(1_MiB);
  s.busy(side);
  ASSERT_EQ(s.record(block, side), StatusCode::kOk);
  ASSERT_EQ(s.free(block), StatusCode::kOk);
  s.allocator().free_gate().lock();
  EXPECT_EQ(s.empty_cache(), StatusCode::kBusy);
  EXPECT_EQ(s.calls(DriverEntry::kSynchronizeEvent), 0u);
  EXPECT_TRUE(s.allocator().free_gate().unlock());
  EXPECT_EQ(s.empty_cache(), StatusCode::kOk);
}

}  // namespace
}  // namespace quarry::test
