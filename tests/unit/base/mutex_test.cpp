// SPDX-License-Identifier: Apache-2.0
#include "base/mutex.hpp"

#include <gtest/gtest.h>

#include <condition_variable>
#include <thread>

namespace quarry {
namespace {

TEST(MutexTest, KeepsOtherThreadsOut) {
  Mutex mutex(LockRank::kDevice);
  int count = 0;
  const auto add = [&] {
    for (int i = 0; i < 20000; ++i) {
      MutexLock lock(mutex);
      ++count;
    }
  };
  std::thread other(add);
  add();
  other.join();
  EXPECT_EQ(count, 40000);
}

TEST(MutexTest, RisingRanksMayBeHeldTogether) {
  Mutex process(LockRank::kProcess), device(LockRank::kDevice), simulator(LockRank::kSimulator);
  for (int i = 0; i < 2; ++i) {
    MutexLock first(process);
    MutexLock second(device);
    MutexLock third(simulator);
  }
}

TEST(MutexTest, ALowerRankMayBeTakenOnceTheHigherOneIsReleased) {
  Mutex allocator(LockRank::kAllocator), device(LockRank::kDevice);
  { MutexLock lock(device); }
  MutexLock lock(allocator);
}

TEST(MutexTest, RanksHeldByAnotherThreadDoNotCount) {
  Mutex allocator(LockRank::kAllocator), device(LockRank::kDevice);
  MutexLock lock(device);
  std::thread([&] { MutexLock lower(allocator); }).join();
}

TEST(MutexTest, WaitingOnAConditionReleasesTheRank) {
  Mutex device(LockRank::kDevice);
  std::condition_variable_any changed;
  bool is_ready = false;
  std::thread other([&] {
    MutexLock lock(device);
    is_ready = true;
    changed.notify_all();
  });
  {
    MutexLock lock(device);
    while (!is_ready)
      changed.wait(device);
  }
  other.join();
  MutexLock again(device);
  EXPECT_TRUE(is_ready);
}

#ifndef NDEBUG
TEST(MutexDeathTest, ALowerRankUnderAHigherOneEndsDebugBuilds) {
  Mutex allocator(LockRank::kAllocator), device(LockRank::kDevice);
  MutexLock lock(device);
  EXPECT_DEATH(allocator.lock(), "invariant does not hold");
}

// Two devices' mutexes are of one rank: nobody holds both.
TEST(MutexDeathTest, TwoOfOneRankEndDebugBuilds) {
  Mutex one(LockRank::kDevice), two(LockRank::kDevice);
  MutexLock lock(one);
  EXPECT_DEATH(two.lock(), "invariant does not hold");
}

TEST(MutexDeathTest, TakingOneTwiceEndsDebugBuildsInsteadOfHanging) {
  Mutex mutex(LockRank::kDevice);
  MutexLock lock(mutex);
  EXPECT_DEATH(mutex.lock(), "invariant does not hold");
}
#endif

}  // namespace
}  // namespace quarry
