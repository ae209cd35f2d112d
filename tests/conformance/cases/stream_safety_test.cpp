// SPDX-License-Identifier: Apache-2.0
// Cases from the field about memory that another stream may still use: per-thread streams, handles
// that come back, slow streams, other devices. Each under its number and with its figures. The
// simulator's oracle watches all of them. Owns nothing but its scenarios and threads.
#include <thread>
#include <vector>

#include "tests/support/scenario.hpp"

namespace quarry::test {
namespace {

constexpr StreamHandle kPerThread = StreamHandle::kPerThread;

// What a thread leaves behind on its per-thread default stream.
struct Left {
  Address address = 0;
  StreamRef stream;  // a name that holds in every thread
};

// Runs a thread that allocates on its per-thread default stream, queues endless work there, frees
// the block, and ends (with or without saying so).
Left leave_block_of_ended_thread(Scenario& s, bool retires) {
  Left left;
  std::thread thread([&] {
    left.stream = s.sim().get_per_thread_stream(0, sim::get_this_thread());
    left.address = s.malloc(1'048'576, kPerThread);
    s.busy(kPerThread);
    s.free(left.address);
    if (retires) s.allocator().retire_thread_streams();
  });
  thread.join();
  return left;
}

TEST(C23, ThePerThreadStreamIsAnotherInEachThread) {
  Scenario s;
  const Address x = s.malloc(1'048'576, kPerThread);
  s.busy(kPerThread);
  s.free(x);
  Address y = 0;
  std::thread([&] { y = s.malloc(1'048'576, kPerThread); }).join();
  EXPECT_NE(y, 0u);
  EXPECT_NE(y, x);
  EXPECT_EQ(s.malloc(1'048'576, kPerThread), x);  // its own thread may have it at once
  s.complete(kPerThread);
}

TEST(C23, HandlesZeroAndOneAreTheSameLegacyStream) {
  Scenario s;
  const Address x = s.malloc(1'048'576, StreamHandle::kLegacy);
  s.busy(StreamHandle::kLegacy);
  s.free(x);
  EXPECT_EQ(s.malloc(1'048'576, StreamHandle::kLegacyExplicit), x);
  EXPECT_NE(s.malloc(1'048'576, kPerThread), x + 1'048'576);  // the rest stays with the legacy one
  s.complete(StreamHandle::kLegacy);
}

TEST(C23, MemoryOfAnEndedThreadIsAnyonesOnceItsWorkIsDone) {
  Scenario s;
  const Left left = leave_block_of_ended_thread(s, true);
  // Segments of 2 MiB hold two blocks; while the work runs none of the thread's is given away.
  const Address y = s.malloc(1'048'576, kPerThread);
  EXPECT_NE(y, left.address);
  EXPECT_NE(s.malloc(1'048'576, kPerThread), left.address);
  EXPECT_EQ(s.reserved(), 2u * 2_MiB);
  s.complete(left.stream);
  EXPECT_EQ(s.malloc(1'048'576, kPerThread), left.address);
  EXPECT_EQ(s.reserved(), 2u * 2_MiB);
}

TEST(C23, MemoryOfAThreadThatEndsUnannouncedIsNotLost) {
  Scenario s;
  const Left left = leave_block_of_ended_thread(s, false);
  EXPECT_NE(s.malloc(1'048'576, kPerThread), left.address);
  EXPECT_EQ(s.reserved(), 2u * 2_MiB);
  EXPECT_EQ(s.empty_cache(), StatusCode::kOk);
  EXPECT_TRUE(s.is_idle(left.stream));
  EXPECT_EQ(s.reserved(), 2_MiB);
}

ScenarioOptions with_reused_handles() {
  ScenarioOptions options;
  options.sim.reuse_stream_handles = true;
  return options;
}

// Without the notification the danger stands, and docs/design.md says so: the contract is that
// every stream is retired before it is destroyed.
TEST(C24, NewStreamUnderAnOldHandleGetsNoMemoryThatTheOldOneUses) {
  Scenario s(with_reused_handles());
  const StreamHandle h1 = s.make_stream();
  const Address x = s.malloc(4'194'304, h1);
  static_cast<void>(s.sim().submit_work({0, h1}, sim::WorkTime::lasting_us(1000)));
  s.free(x);
  ASSERT_TRUE(s.allocator().retire_stream({0, h1}).is_ok());
  ASSERT_EQ(s.sim().destroy_stream({0, h1}), DriverCode::kSuccess);
  ASSERT_EQ(s.make_stream(), h1);
  const Address y = s.malloc(4'194'304, h1);
  EXPECT_NE(y, 0u);
  EXPECT_NE(y, x);
  EXPECT_EQ(s.reserved(), 2u * 20'971'520);

  s.sim().advance_by_us(1000);
  const StreamHandle any = s.make_stream();
  EXPECT_EQ(s.malloc(4'194'304, any), x);
  EXPECT_EQ(s.reserved(), 2u * 20'971'520);
}

TEST(C24, MemoryOfARetiredStreamIsReturnedByEmptyCache) {
  Scenario s(with_reused_handles());
  const StreamHandle h1 = s.make_stream();
  const Address x = s.malloc(4'194'304, h1);
  static_cast<void>(s.sim().submit_work({0, h1}, sim::WorkTime::lasting_us(1000)));
  s.free(x);
  ASSERT_TRUE(s.allocator().retire_stream({0, h1}).is_ok());
  ASSERT_EQ(s.sim().destroy_stream({0, h1}), DriverCode::kSuccess);
  EXPECT_EQ(s.empty_cache(), StatusCode::kOk);
  EXPECT_EQ(s.reserved(), 0u);
}

TEST(C24, TenThousandStreamsLeaveOneSegment) {
  Scenario s(with_reused_handles());
  std::uint64_t first_events = 0;
  for (int round = 0; round < 10'000; ++round) {
    const StreamHandle stream = s.make_stream();
    const Address x = s.malloc(4'194'304, stream);
    ASSERT_NE(x, 0u);
    static_cast<void>(s.sim().submit_work({0, stream}, sim::WorkTime::lasting_us(10)));
    s.free(x);
    ASSERT_TRUE(s.allocator().retire_stream({0, stream}).is_ok());
    ASSERT_EQ(s.sim().destroy_stream({0, stream}), DriverCode::kSuccess);
    s.sim().advance_by_us(10);
    if (round == 0) first_events = s.calls(DriverEntry::kCreateEvent);
  }
  EXPECT_EQ(s.reserved(), 20'971'520u);
  EXPECT_EQ(s.calls(DriverEntry::kAllocate), 1u);
  EXPECT_EQ(s.calls(DriverEntry::kCreateEvent), first_events);
  // The last stream's memory has become idle with the others'; nothing is kept by stream.
  s.free(s.malloc(4'194'304));
  EXPECT_LE(s.allocator().get_stream_caches(0).value().size(), 2u);
}

TEST(C26, SlowStreamHoldsBackOnlyItsOwnBlocks) {
  Scenario s;
  const StreamHandle s1 = s.make_stream();
  const StreamHandle s2 = s.make_stream();
  const Address a = s.malloc(67'108'864);
  const Address b = s.malloc(33'554'432);
  s.busy(s1);
  s.record(a, s1);
  s.record(b, s2);
  s.free(a);
  s.free(b);
  s.complete(s2);
  EXPECT_EQ(s.malloc(33'554'432), b);
  EXPECT_EQ(s.calls(DriverEntry::kAllocate), 2u);
  EXPECT_EQ(s.calls(DriverEntry::kSynchronizeEvent), 0u);
  EXPECT_EQ(s.reserved(), 100'663'296u);
  EXPECT_EQ(s.active() - 67'108'864u, 33'554'432u);
  EXPECT_FALSE(s.is_idle(s1));

  s.complete(s1);
  EXPECT_EQ(s.malloc(67'108'864), a);
}

TEST(C26, BlockOfTwoStreamsReturnsWhenBothAreDone) {
  for (const bool is_first_done_first : {true, false}) {
    Scenario s;
    const StreamHandle s1 = s.make_stream();
    const StreamHandle s2 = s.make_stream();
    const Address x = s.malloc(33'554'432);
    s.busy(s1);
    s.busy(s2);
    s.record(x, s1);
    s.record(x, s2);
    s.free(x);
    s.complete(is_first_done_first ? s1 : s2);
    const Address y = s.malloc(33'554'432);
    EXPECT_NE(y, x);
    s.complete(is_first_done_first ? s2 : s1);
    EXPECT_EQ(s.malloc(33'554'432), x);
  }
}

// The case is about expandable segments, whose unmapping needs an explicit wait; here plain ones,
// whose driver free waits for its own device by itself.
void empty_first_device_while_second_is_current(StreamHandle stream) {
  ScenarioOptions options;
  options.sim.device_count = 2;
  Scenario s(options);
  const StreamRef other{1, s.make_stream(1)};
  const StreamRef side{0, s.make_stream(0)};
  const Address x = s.malloc(67'108'864, StreamRef{0, stream});
  const Address y = s.malloc(67'108'864, other);
  const Address z = s.malloc(67'108'864, StreamRef{0, stream});
  s.busy(side);
  s.record(z, side.handle);
  s.busy(StreamRef{0, stream});
  s.busy(other);
  s.free(x);
  s.free(y);
  s.free(z);

  s.sim().set_current_device(1);
  EXPECT_EQ(s.empty_cache(0), StatusCode::kOk);
  EXPECT_EQ(s.sim().get_current_device(), 1);
  EXPECT_TRUE(s.is_idle(StreamRef{0, stream}));
  EXPECT_TRUE(s.is_idle(side));
  EXPECT_FALSE(s.is_idle(other)) << "the second device was made to wait";
  EXPECT_EQ(s.stats(0).reserved_bytes.all.current, 0);
  EXPECT_EQ(s.stats(1).reserved_bytes.all.current, 67'108'864);
  EXPECT_EQ(s.sim().get_holdings(0).plain_allocations, 0u);
  EXPECT_EQ(s.sim().get_holdings(1).plain_allocations, 1u);

  EXPECT_EQ(s.empty_cache(1), StatusCode::kOk);
  EXPECT_TRUE(s.is_idle(other));
  EXPECT_EQ(s.stats(1).reserved_bytes.all.current, 0);
}

TEST(C27, EmptyingACacheWaitsForItsOwnDeviceOnly) {
  empty_first_device_while_second_is_current(StreamHandle::kLegacy);
}

TEST(C27, EmptyingACacheWaitsForThePerThreadStreamOfItsOwnDevice) {
  empty_first_device_while_second_is_current(kPerThread);
}

}  // namespace
}  // namespace quarry::test
