// SPDX-License-Identifier: Apache-2.0
// What the allocator believes of captures when the driver does not say, and what pools lend when
// it must be waited for.
#include "tests/support/capture_scenario.hpp"

namespace quarry::test {
namespace {

constexpr PoolId kP{0, 1};

class UnknownCaptureTest : public testing::Test {
 protected:
  UnknownCaptureTest() { s_.retain_pool(kP); }
  // The driver does not say any more whether a stream captures.
  void fail_questions() {
    s_.sim().fail_calls_if(
        DriverEntry::kGetCaptureInfo, [](Bytes) { return true; }, DriverCode::kUnknown);
  }
  CaptureScenario s_;
  const StreamHandle side_ = s_.make_stream();
};

// Of whatever pool the memory were, the graph would go on using it.
TEST_F(UnknownCaptureTest, ARequestIsRefused) {
  s_.begin_capture(side_, kP);
  const Address first = s_.malloc(1_MiB, side_);
  fail_questions();
  EXPECT_EQ(s_.malloc(1_MiB, side_), 0u);
  EXPECT_EQ(s_.last_code(), StatusCode::kDriverError);
  EXPECT_EQ(s_.allocator().allocate_in_pool({0, side_}, 1_MiB, 512, kP).code(),
            StatusCode::kDriverError);
  s_.sim().clear_faults();
  EXPECT_NE(s_.malloc(1_MiB, side_), 0u);
  s_.free(first);
  EXPECT_NE(s_.end_capture(side_, kP), sim::GraphId::kNone);
}

// The legacy stream never captures, and the driver's refusal to say so does not matter.
TEST_F(UnknownCaptureTest, TheLegacyStreamIsServedWhileABlockingOneCaptures) {
  const StreamHandle blocking = s_.sim().create_stream(0, sim::StreamKind::kBlocking).handle;
  s_.begin_capture(blocking, kP);
  const auto block = s_.allocator().allocate({0, kS0}, 1_MiB);
  EXPECT_TRUE(block.is_ok());
  EXPECT_TRUE(s_.allocator().free(block.value()).is_ok());
  EXPECT_NE(s_.end_capture(blocking, kP), sim::GraphId::kNone);
}

// A block that two streams of a capture use waits for its end.
TEST_F(UnknownCaptureTest, ACaptureHasNotEnded) {
  const StreamHandle other = s_.make_stream();
  s_.begin_capture(side_, kP);
  const Address shared = s_.malloc(8_MiB, side_);
  s_.fork(side_, other);
  s_.record(shared, other);
  s_.free(shared);
  const std::int64_t pending = s_.stats().pending_bytes;
  EXPECT_EQ(pending, 8'388'608);
  fail_questions();
  s_.pool(kP);  // brings in what has become free
  s_.sim().clear_faults();
  EXPECT_EQ(s_.stats().pending_bytes, pending);
  EXPECT_NE(s_.malloc(8_MiB, side_), shared);
  s_.fork(other, side_);
  EXPECT_NE(s_.end_capture(side_, kP), sim::GraphId::kNone);
}

// What a pool lends may have to be waited for, as the default pool's own memory.
TEST(LendingTest, ABlockThatIsStillInUseIsWaitedForBeforeMemoryIsOut) {
  CaptureScenario s(40_MiB);
  const StreamHandle side = s.make_stream();
  PoolOptions options;
  options.use_on_oom = true;
  s.retain_pool(kP, options);
  ASSERT_TRUE(s.allocator().begin_pool({Route::Kind::kThread, 0, kP, {}, {}}).is_ok());
  EXPECT_NE(s.malloc(2_MiB, kS0), 0u);  // keeps the segment of 20 MiB
  const Address used = s.malloc(16_MiB, kS0);
  EXPECT_TRUE(s.allocator().end_pool(0, kP).is_ok());
  EXPECT_NE(s.malloc(20_MiB, kS0), 0u);
  s.record(used, side);
  s.busy(side);
  s.free(used);
  EXPECT_EQ(s.malloc(16_MiB, kS0), used);
}

}  // namespace
}  // namespace quarry::test
