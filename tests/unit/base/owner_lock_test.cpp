// SPDX-License-Identifier: Apache-2.0
// An owner and others in each other's way. ThreadSanitizer runs the fence only, so that with
// membarrier nothing but the two tests that count changes would notice a missing barrier: with two
// processors, in optimised code, most runs lose some without the call in order_owners (11 of 15 on
// a crowded machine), or with the owner's read-modify-write made a load (14 of 15).
#include "base/owner_lock.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

namespace quarry {
namespace {

// The process's choice is not the lock's here, and a barrier too many would hide a missing fence.
void order_owners(OwnerOrder order) {
  if (order == OwnerOrder::kByMembarrier) OwnerLock::order_owners();
}

void come_instead(OwnerLock& lock, OwnerOrder order) QUARRY_NO_THREAD_SAFETY_ANALYSIS {
  lock.ask();
  order_owners(order);
  lock.wait_for_owner();
}

class OwnerLockTest : public testing::TestWithParam<OwnerOrder> {
 protected:
  void SetUp() override {
    if (GetParam() == OwnerOrder::kByMembarrier &&
        get_owner_order().order != OwnerOrder::kByMembarrier) {
      GTEST_SKIP() << get_owner_order().why;
    }
  }
};

TEST_P(OwnerLockTest, TheOwnerComesInUnlessAnotherHasAsked) QUARRY_NO_THREAD_SAFETY_ANALYSIS {
  OwnerLock lock(GetParam());
  ASSERT_TRUE(lock.try_enter());
  lock.leave();
  std::thread(come_instead, std::ref(lock), GetParam()).join();
  EXPECT_TRUE(lock.is_asked());
  EXPECT_FALSE(lock.try_enter());
  lock.let_in();
  EXPECT_FALSE(lock.is_asked());
  EXPECT_TRUE(lock.try_enter());
  lock.leave();
}

TEST_P(OwnerLockTest, TheOwnerWaitsUntilItIsLetIn) QUARRY_NO_THREAD_SAFETY_ANALYSIS {
  OwnerLock lock(GetParam());
  int value = 0;
  come_instead(lock, GetParam());
  std::thread owner([&] {
    const OwnerHold hold(lock);
    EXPECT_EQ(value, 1);
    value = 2;
  });
  value = 1;
  lock.let_in();
  owner.join();
  EXPECT_EQ(value, 2);
}

TEST_P(OwnerLockTest, AnotherWaitsUntilTheOwnerIsOutside) QUARRY_NO_THREAD_SAFETY_ANALYSIS {
  OwnerLock lock(GetParam());
  int value = 0;
  ASSERT_TRUE(lock.try_enter());
  std::thread other([&]() QUARRY_NO_THREAD_SAFETY_ANALYSIS {
    come_instead(lock, GetParam());
    EXPECT_EQ(value, 1);
    lock.let_in();
  });
  while (!lock.is_asked())
    std::this_thread::yield();
  value = 1;
  lock.leave();
  other.join();
}

// What a lock guards, and how to tell that it did: a number that both sides change in two steps
// comes out right only if they are never inside at once, and each sees what the other wrote.
struct alignas(64) Guarded {
  explicit Guarded(OwnerOrder order) : lock(order) {}

  void own(const std::atomic<bool>& is_over) QUARRY_NO_THREAD_SAFETY_ANALYSIS {
    // More than the nearest cache holds. What the owner stores next waits behind stores that are
    // not near; without a barrier, its load does not. How many show that best, is up to the
    // machine.
    constexpr std::size_t kWords = 1 << 16;
    constexpr std::size_t kStride = 8 * 1021;
    std::vector<std::atomic<std::uint64_t>> far(kWords);
    std::size_t place = 0;
    while (!is_over.load(std::memory_order_relaxed)) {
      for (std::uint64_t i = 0; i <= by_owner / 8192 % 3; ++i) {
        place = (place + kStride) % kWords;
        far[place].store(place, std::memory_order_relaxed);
      }
      lock.enter();
      both = both + 1;
      lock.leave();
      ++by_owner;
    }
  }
  void change_instead() QUARRY_NO_THREAD_SAFETY_ANALYSIS {
    both = both + 1;
    ++by_others;
    lock.let_in();
  }

  OwnerLock lock;
  std::uint64_t both = 0;
  std::uint64_t by_others = 0;
  alignas(64) std::uint64_t by_owner = 0;
};

// Time for an owner to come in a number of times.
void pause(std::uint64_t round) {
  static std::atomic<std::uint64_t> counted{0};
  for (std::uint64_t i = 0; i < round * 7 % 4001; ++i)
    counted.store(i, std::memory_order_relaxed);
}

TEST_P(OwnerLockTest, NeverAreBothInside) {
  constexpr std::uint64_t kRounds = 100'000;
  Guarded guarded(GetParam());
  std::atomic<bool> is_over{false};
  std::thread owner([&] { guarded.own(is_over); });
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    come_instead(guarded.lock, GetParam());
    guarded.change_instead();
    pause(round);
  }
  is_over.store(true);
  owner.join();
  EXPECT_EQ(guarded.both, guarded.by_others + guarded.by_owner);
}

// As a device empties the magazines of its threads: it asks all, orders once, and lets each go as
// it has finished with it. Two threads take turns at that.
TEST_P(OwnerLockTest, OneBarrierIsEnoughForManyOwners) {
  constexpr std::uint64_t kRounds = 20'000;
  std::array<Guarded, 3> all{Guarded(GetParam()), Guarded(GetParam()), Guarded(GetParam())};
  std::atomic<bool> is_over{false};
  std::vector<std::thread> owners;
  for (Guarded& guarded : all)
    owners.emplace_back([&] { guarded.own(is_over); });
  SpinLock turn;
  const auto come = [&]() QUARRY_NO_THREAD_SAFETY_ANALYSIS {
    for (std::uint64_t round = 0; round < kRounds; ++round) {
      const SpinLockHold hold(turn);
      for (Guarded& each : all)
        each.lock.ask();
      order_owners(GetParam());
      for (Guarded& each : all) {
        each.lock.wait_for_owner();
        each.change_instead();
      }
      pause(round);
    }
  };
  std::thread second(come);
  come();
  second.join();
  is_over.store(true);
  for (std::thread& owner : owners)
    owner.join();
  for (const Guarded& each : all)
    EXPECT_EQ(each.both, each.by_others + each.by_owner);
}

TEST(OwnerOrderTest, TheChoiceHasAReasonAndStays) {
  EXPECT_FALSE(get_owner_order().why.empty());
  EXPECT_EQ(&get_owner_order(), &get_owner_order());
}

INSTANTIATE_TEST_SUITE_P(Orders, OwnerLockTest,
                         testing::Values(OwnerOrder::kByMembarrier, OwnerOrder::kByFence),
                         [](const auto& order) {
                           return order.param == OwnerOrder::kByFence ? "ByFence" : "ByMembarrier";
                         });

}  // namespace
}  // namespace quarry
