// SPDX-License-Identifier: Apache-2.0
// Cases from the field once more, where the memory in question is parked in magazines: of the
// thread that asks, of another one, or of one that has ended. The figures are the cases' own
// unless a test says otherwise. That every case holds with magazines on is shown by the other
// files, which run in both settings; here blocks are known to be parked at the moment that
// matters. Owns nothing but its scenarios and threads.
#include <algorithm>
#include <array>
#include <barrier>
#include <mutex>
#include <thread>
#include <vector>

#include "core/thread_state.hpp"
#include "tests/support/scenario.hpp"

namespace quarry::test {
namespace {

constexpr StreamHandle kPerThread = StreamHandle::kPerThread;
constexpr Bytes k64 = 67'108'864;

ScenarioOptions with_magazines(Bytes cap = sim::SimOptions{}.physical_bytes) {
  ScenarioOptions options = ScenarioOptions::with_cap(cap);
  options.config.thread_cache = true;
  options.sim.reuse_stream_handles = true;
  return options;
}

Bytes get_parked(Scenario& s, DeviceId device = 0) {
  return static_cast<Bytes>(s.stats(device).parked_bytes);
}

// Parks `count` blocks of this thread. Three requests make a size one that parks, even if the
// first of them is the one that makes the thread's magazines.
std::vector<Address> park(Scenario& s, Bytes bytes, StreamRef stream, std::size_t count = 1) {
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(s.free(s.malloc(bytes, stream)), StatusCode::kOk);
  std::vector<Address> blocks;
  for (std::size_t i = 0; i < count; ++i)
    blocks.push_back(s.malloc(bytes, stream));
  const Bytes before = get_parked(s, stream.device);
  for (const Address block : blocks)
    EXPECT_EQ(s.free(block), StatusCode::kOk);
  EXPECT_EQ(get_parked(s, stream.device), before + count * bytes);
  return blocks;
}
std::vector<Address> park(Scenario& s, Bytes bytes, std::size_t count = 1) {
  return park(s, bytes, StreamRef{0, kS0}, count);
}

// The case's eight segments, four of which a thread may park (256 MiB).
TEST(C04, ParkedSegmentsOfAnotherStreamAreGivenBackFirstToo) {
  Scenario s(with_magazines(671'088'640));
  const StreamHandle s1 = s.make_stream();
  const StreamHandle s2 = s.make_stream();
  std::vector<Address> others;
  for (int i = 0; i < 4; ++i)
    others.push_back(s.malloc(k64, s1));
  park(s, k64, {0, s1}, 4);
  for (const Address block : others)
    s.free(block);
  ASSERT_EQ(get_parked(s), 4 * k64);
  EXPECT_NE(s.malloc(536'870'912, s2), 0u);
  EXPECT_EQ(s.calls(DriverEntry::kFree), 8u);
  EXPECT_EQ(s.reserved(), 536'870'912u);
  EXPECT_EQ(s.stats().num_alloc_retries, 1);
}

TEST(C08, ParkedSegmentsAreGivenBackForALargerOne) {
  Scenario s(with_magazines(1'073'741'824));
  std::vector<Address> others;
  for (int i = 0; i < 6; ++i)
    others.push_back(s.malloc(k64));
  park(s, k64, 4);
  for (const Address block : others)
    s.free(block);
  EXPECT_NE(s.malloc(838'860'800), 0u);
  EXPECT_EQ(s.calls(DriverEntry::kFree), 10u);
  EXPECT_EQ(s.reserved(), 838'860'800u);
  EXPECT_EQ(s.stats().num_alloc_retries, 1);
  EXPECT_EQ(s.stats().num_ooms, 0);
}

TEST(C12, ParkedSegmentsAreFlushedWhenTheLimitRefuses) {
  Scenario s(with_magazines());
  ASSERT_TRUE(s.allocator().set_limit(0, 268'435'456).is_ok());
  park(s, k64, 3);
  EXPECT_NE(s.malloc(209'715'200), 0u);
  EXPECT_EQ(s.calls(DriverEntry::kFree), 3u);
  EXPECT_EQ(s.reserved(), 209'715'200u);
  EXPECT_EQ(s.stats().num_alloc_retries, 1);
  EXPECT_EQ(s.stats().num_ooms, 0);
}

// The fitting block is in the magazine of a thread that goes on living and makes no call.
TEST(C13, ABlockParkedByAnotherThreadIsUsedBeforeTheDriverIsAsked) {
  Scenario s(with_magazines(268'435'456));
  std::vector<Address> parked;
  std::barrier step(2);
  std::thread other([&] {
    parked = park(s, k64, 4);
    step.arrive_and_wait();
    step.arrive_and_wait();
  });
  step.arrive_and_wait();
  ASSERT_EQ(s.reserved(), 268'435'456u);
  const std::uint64_t allocations = s.calls(DriverEntry::kAllocate);
  const Address block = s.malloc(k64);
  EXPECT_NE(std::find(parked.begin(), parked.end(), block), parked.end());
  EXPECT_EQ(s.calls(DriverEntry::kAllocate), allocations);
  EXPECT_EQ(s.stats().num_alloc_retries, 0);
  step.arrive_and_wait();
  other.join();
}

// As the case, but the memory is parked by four threads, each of which goes on living; nothing is
// pending, so nothing is waited for.
TEST(C14, SegmentsThatOtherThreadsParkedAreReclaimable) {
  Scenario s(with_magazines(1'073'741'824));
  std::barrier step(5);
  std::mutex one_at_a_time;  // a scenario is not thread-safe
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      std::vector<Address> blocks;
      {
        std::lock_guard lock(one_at_a_time);
        park(s, k64);
        for (int block = 0; block < 4; ++block)
          blocks.push_back(s.malloc(k64));
      }
      step.arrive_and_wait();  // a miss of one empties the magazines of all: none comes after this
      {
        std::lock_guard lock(one_at_a_time);
        for (const Address block : blocks)
          s.free(block);
      }
      step.arrive_and_wait();
      step.arrive_and_wait();
    });
  }
  step.arrive_and_wait();
  step.arrive_and_wait();
  EXPECT_EQ(get_parked(s), 1'073'741'824u);
  EXPECT_NE(s.malloc(943'718'400), 0u);
  EXPECT_EQ(s.reserved(), 943'718'400u);
  EXPECT_EQ(s.stats().num_alloc_retries, 1);
  EXPECT_EQ(s.stats().num_ooms, 0);
  step.arrive_and_wait();
  for (std::thread& thread : threads)
    thread.join();
}

TEST(C22, AParkedBlockGoesBackOnlyWhenItsStreamIsIdle) {
  Scenario s(with_magazines(268'435'456));
  const StreamHandle s1 = s.make_stream();
  const Address x = park(s, 134'217'728, {0, s1}).front();
  ASSERT_EQ(s.malloc(134'217'728, s1), x);
  s.busy(s1);
  s.free(x);
  ASSERT_EQ(get_parked(s), 134'217'728u);
  EXPECT_FALSE(s.is_idle(s1));
  EXPECT_NE(s.malloc(201'326'592), 0u);
  EXPECT_TRUE(s.is_idle(s1));
  EXPECT_EQ(s.reserved(), 201'326'592u);
}

TEST(C23, WhatAThreadParksOfItsPerThreadStreamNoOtherThreadGets) {
  Scenario s(with_magazines());
  const Address x = park(s, 4096, {0, kPerThread}).front();
  s.busy(kPerThread);
  std::thread([&] {
    EXPECT_NE(s.malloc(4096, kPerThread), x);
    EXPECT_NE(s.malloc(4096, kPerThread), x);
    EXPECT_NE(s.malloc(4096, kPerThread), x);
  }).join();
  EXPECT_EQ(s.malloc(4096, kPerThread), x);  // its own thread has it at once
  s.complete(kPerThread);
}

// Freed by another thread, whose per-thread stream has the same handle: it does not park there.
TEST(C23, ABlockOfAnotherThreadsPerThreadStreamIsNotParkedByTheThreadThatFreesIt) {
  Scenario s(with_magazines());
  Address x = 0;
  StreamRef stream;
  std::thread([&] {
    stream = s.sim().get_per_thread_stream(0, sim::get_this_thread());
    x = s.malloc(4096, kPerThread);
    s.busy(kPerThread);
  }).join();
  park(s, 4096, {0, kPerThread});
  const Bytes before = get_parked(s);
  EXPECT_EQ(s.free(x), StatusCode::kOk);
  EXPECT_EQ(get_parked(s), before);
  for (int i = 0; i < 4; ++i)
    EXPECT_NE(s.malloc(4096, kPerThread), x);
  s.complete(stream);
}

TEST(C23, WhatAnEndedThreadParkedIsAnyonesOnceItsWorkIsDone) {
  Scenario s(with_magazines());
  Address x = 0;
  StreamRef stream;
  std::thread([&] {
    stream = s.sim().get_per_thread_stream(0, sim::get_this_thread());
    x = park(s, 1'048'576, {0, kPerThread}).front();
    s.busy(kPerThread);
    s.allocator().retire_thread_streams();
  }).join();
  EXPECT_EQ(get_parked(s), 0u) << "a retired stream's blocks are not parked";
  // Two blocks fill a segment; while the work runs they come from a new one.
  EXPECT_NE(s.malloc(1'048'576, kPerThread), x);
  EXPECT_NE(s.malloc(1'048'576, kPerThread), x);
  s.complete(stream);
  EXPECT_EQ(s.malloc(1'048'576, kPerThread), x);
  EXPECT_EQ(s.reserved(), 2u * 2_MiB);
}

// Never told that the thread ends: its parked blocks come back at a miss of their stream or
// empty_cache.
TEST(C23, WhatAThreadParkedThatEndsUnannouncedIsNotLost) {
  Scenario s(with_magazines());
  StreamRef stream;
  std::thread([&] {
    stream = s.sim().get_per_thread_stream(0, sim::get_this_thread());
    park(s, 1'048'576, {0, kPerThread}, 4);
    s.busy(kPerThread);
  }).join();
  EXPECT_EQ(get_parked(s), 4u * 1'048'576);
  EXPECT_EQ(s.empty_cache(), StatusCode::kOk);
  EXPECT_TRUE(s.is_idle(stream));
  EXPECT_EQ(s.reserved(), 0u);
}

TEST(C24, NewStreamUnderAnOldHandleGetsNothingThatWasParkedForTheOldOne) {
  Scenario s(with_magazines());
  const StreamHandle h1 = s.make_stream();
  const Address x = park(s, 4096, {0, h1}).front();
  ASSERT_EQ(s.malloc(4096, h1), x);
  static_cast<void>(s.sim().submit_work({0, h1}, sim::WorkTime::lasting_us(1000)));
  s.free(x);
  ASSERT_EQ(get_parked(s), 4096u);
  ASSERT_TRUE(s.allocator().retire_stream({0, h1}).is_ok());
  EXPECT_EQ(get_parked(s), 0u);
  ASSERT_EQ(s.sim().destroy_stream({0, h1}), DriverCode::kSuccess);
  ASSERT_EQ(s.make_stream(), h1);
  for (int i = 0; i < 4; ++i)
    EXPECT_NE(s.malloc(4096, h1), x);
  s.sim().advance_by_us(1000);
}

TEST(C24, TenThousandStreamsThatParkLeaveOneSegment) {
  Scenario s(with_magazines());
  for (int round = 0; round < 10'000; ++round) {
    const StreamHandle stream = s.make_stream();
    for (int i = 0; i < 3; ++i) {
      const Address x = s.malloc(4096, stream);
      ASSERT_NE(x, 0u);
      static_cast<void>(s.sim().submit_work({0, stream}, sim::WorkTime::lasting_us(10)));
      s.free(x);
    }
    ASSERT_TRUE(s.allocator().retire_stream({0, stream}).is_ok());
    ASSERT_EQ(s.sim().destroy_stream({0, stream}), DriverCode::kSuccess);
    s.sim().advance_by_us(30);
  }
  EXPECT_EQ(get_parked(s), 0u);
  EXPECT_EQ(s.reserved(), 2_MiB);
  EXPECT_EQ(s.calls(DriverEntry::kAllocate), 1u);
}

TEST(C27, EmptyingACacheTakesTheParkedBlocksOfItsOwnDeviceOnly) {
  ScenarioOptions options = with_magazines();
  options.sim.device_count = 2;
  Scenario s(options);
  const StreamHandle other = s.make_stream(1);
  park(s, k64, {0, kS0});
  const Address y = park(s, k64, {1, other}).front();
  s.busy(StreamRef{1, other});
  s.sim().set_current_device(1);
  EXPECT_EQ(s.empty_cache(0), StatusCode::kOk);
  EXPECT_EQ(s.stats(0).reserved_bytes.all.current, 0);
  EXPECT_EQ(get_parked(s, 1), k64);
  EXPECT_FALSE(s.is_idle(StreamRef{1, other})) << "the second device was made to wait";
  EXPECT_EQ(s.malloc(k64, StreamRef{1, other}), y);
  s.complete(StreamRef{1, other});
}

// A driver callback may park and may be served from its thread's magazine: neither needs the
// driver. What is parked there is not pending: it is on no list that an ordinary call works off.
TEST(C87, ACallbackThreadParksAndTakesWithoutADriverCall) {
  Scenario s(with_magazines());
  std::uint64_t calls = 0;
  Address x = 0;
  std::thread([&] {
    x = park(s, 4096).front();
    calls = s.sim().call_count();
    s.sim().set_callback_thread(true);
    {
      const DriverCallbackScope scope;
      EXPECT_EQ(s.malloc(4096), x);
      EXPECT_EQ(s.free(x), StatusCode::kOk);
      EXPECT_EQ(s.allocator().free(x).code(), StatusCode::kDoubleFree);
    }
    s.sim().set_callback_thread(false);
  }).join();
  EXPECT_EQ(s.sim().call_count(), calls);
  EXPECT_EQ(s.sim().misuse_count(), 0u);
  EXPECT_EQ(s.stats().pending_bytes, 0);
  EXPECT_EQ(get_parked(s), 4096u);
  EXPECT_EQ(s.empty_cache(), StatusCode::kOk);
  EXPECT_EQ(s.reserved(), 0u);
}

TEST(C88, OfTwoRacingFreesOfABlockThatParksExactlyOneSucceeds) {
  constexpr int kRounds = 2000;
  Scenario s(with_magazines());
  Allocator& allocator = s.allocator();
  park(s, 512);
  Address w = 0;
  std::array<StatusCode, 2> codes{};
  int wrong = 0;
  std::barrier start(2, [&]() noexcept { w = allocator.allocate({0, kS0}, 512).value(); });
  std::barrier end(2, [&]() noexcept {
    const bool is_first = codes[0] == StatusCode::kOk && codes[1] == StatusCode::kDoubleFree;
    const bool is_second = codes[1] == StatusCode::kOk && codes[0] == StatusCode::kDoubleFree;
    wrong += is_first || is_second ? 0 : 1;
  });
  const auto free_in_turns = [&](std::size_t self) {
    for (int round = 0; round < kRounds; ++round) {
      start.arrive_and_wait();
      codes[self] = allocator.free(w).code();
      end.arrive_and_wait();
    }
  };
  std::thread other(free_in_turns, 1);
  free_in_turns(0);
  other.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(s.allocated(), 0u);
  EXPECT_EQ(s.stats().invalid_frees, kRounds);
}

}  // namespace
}  // namespace quarry::test
