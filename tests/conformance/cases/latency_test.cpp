// SPDX-License-Identifier: Apache-2.0
// Cases from the field about calls that make a program slow, as counts of driver calls and as
// virtual time; how fast is measured in bench/. Each under its number. Owns nothing but scenarios.
#include <vector>

#include "tests/support/scenario.hpp"

namespace quarry::test {
namespace {

constexpr int kRounds = 100'000;

std::uint64_t count_event_calls(const Scenario& s) {
  return s.calls(DriverEntry::kCreateEvent) + s.calls(DriverEntry::kRecordEvent) +
         s.calls(DriverEntry::kQueryEvent) + s.calls(DriverEntry::kSynchronizeEvent) +
         s.calls(DriverEntry::kRecordContextEvent) + s.calls(DriverEntry::kWaitEvent);
}

TEST(C94, FreeWithoutForeignUseMakesNoDriverCall) {
  Scenario s;
  Allocator& allocator = s.allocator();
  const auto run = [&] {
    const Address p = allocator.allocate({0, kS0}, 65'536).value();
    ASSERT_TRUE(allocator.free(p).is_ok());
  };
  run();
  s.sim().reset_call_counts();
  for (int i = 0; i < kRounds; ++i)
    run();
  EXPECT_EQ(s.sim().call_count(), 0u);
}

// `work_us`: how long the other stream works on each block; 10 us pass from round to round.
void expect_few_calls_with_foreign_use(std::uint64_t work_us, std::uint64_t most_events) {
  Scenario s;
  Allocator& allocator = s.allocator();
  const StreamHandle s1 = s.make_stream();
  for (int i = 0; i < kRounds; ++i) {
    const Address p = allocator.allocate({0, kS0}, 65'536).value();
    if (work_us > 0) {
      static_cast<void>(s.sim().submit_work(
          {0, s1}, sim::WorkTime::until_ns(s.sim().now_ns() + work_us * 1000)));
    }
    ASSERT_TRUE(allocator.record_stream(p, s1).is_ok());
    ASSERT_TRUE(allocator.free(p).is_ok());
    s.sim().advance_by_us(10);
  }
  EXPECT_LE(s.calls(DriverEntry::kRecordEvent), std::uint64_t{kRounds});
  EXPECT_LE(s.calls(DriverEntry::kCreateEvent), most_events);
  EXPECT_LE(s.calls(DriverEntry::kQueryEvent), 2u * kRounds);
  EXPECT_EQ(s.calls(DriverEntry::kSynchronizeEvent), 0u);
  EXPECT_EQ(s.calls(DriverEntry::kFree), 0u);
  EXPECT_EQ(s.calls(DriverEntry::kAllocate), 1u);
  EXPECT_GT(count_event_calls(s), 0u);
}

TEST(C94, FreeWithForeignUseRecordsOneEventAndReusesIt) {
  expect_few_calls_with_foreign_use(0, 1);
}

TEST(C94, EventsAreAsManyAsFencesAreOutstandingAtOnce) {
  expect_few_calls_with_foreign_use(95, 11);  // ten blocks at work while the next is made
}

// Plain segments. Driver frees, which would serialise the streams, do not occur.
TEST(C95, FreesInTheLaunchLoopLeaveEightStreamsOverlapping) {
  constexpr std::size_t kStreams = 8;
  constexpr int kLaunches = 50;
  constexpr std::uint64_t kKernelUs = 10'000;
  Scenario s;
  std::vector<StreamHandle> streams;
  for (std::size_t i = 0; i < kStreams; ++i)
    streams.push_back(s.make_stream());
  const auto launch_on_all = [&] {
    for (const StreamHandle stream : streams) {
      const Address p = s.malloc(4'194'304, stream);
      static_cast<void>(s.sim().submit_work({0, stream}, sim::WorkTime::lasting_us(kKernelUs)));
      s.free(p);
    }
  };
  launch_on_all();
  s.sim().reset_call_counts();
  for (int i = 1; i < kLaunches; ++i)
    launch_on_all();
  EXPECT_EQ(s.sim().call_count(), 0u);
  EXPECT_EQ(s.sim().now_ns(), 0u) << "the host was made to wait";
  EXPECT_EQ(s.reserved(), kStreams * 20'971'520u);
  for (const StreamHandle stream : streams)
    static_cast<void>(s.sim().user_synchronizes({0, stream}));
  EXPECT_EQ(s.sim().now_ns(), kLaunches * kKernelUs * 1000);
}

}  // namespace
}  // namespace quarry::test
