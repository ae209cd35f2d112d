// SPDX-License-Identifier: Apache-2.0
#include "core/free_gate.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace quarry {
namespace {

// Gives another thread every chance to go wrong. Nothing depends on how long it takes.
void let_others_run() {
  for (int i = 0; i < 50; ++i)
    std::this_thread::yield();
}

TEST(FreeGateTest, OpenGateLetsFreesPass) {
  FreeGate gate;
  EXPECT_TRUE(gate.enter());
  EXPECT_TRUE(gate.enter()) << "several at once";
  gate.leave();
  gate.leave();
}

TEST(FreeGateTest, TheHolderItselfIsRefusedInsteadOfWaiting) {
  FreeGate gate;
  gate.lock();
  EXPECT_TRUE(gate.is_held_by_this_thread());
  EXPECT_FALSE(gate.enter());
  EXPECT_TRUE(gate.unlock());
  EXPECT_FALSE(gate.is_held_by_this_thread());
  EXPECT_TRUE(gate.enter());
  gate.leave();
}

TEST(FreeGateTest, HoldsAreCountedAThread) {
  FreeGate gate;
  gate.lock();
  gate.lock();
  EXPECT_TRUE(gate.unlock());
  EXPECT_TRUE(gate.is_held_by_this_thread());
  EXPECT_FALSE(gate.enter());
  EXPECT_TRUE(gate.unlock());
  EXPECT_FALSE(gate.unlock()) << "it is not held any more";
}

TEST(FreeGateTest, UnlockingAnothersHoldFailsAndKeepsIt) {
  FreeGate gate;
  gate.lock();
  std::thread([&gate] {
    EXPECT_FALSE(gate.is_held_by_this_thread());
    EXPECT_TRUE(gate.is_held());
    EXPECT_FALSE(gate.unlock());
  }).join();
  EXPECT_TRUE(gate.is_held_by_this_thread());
  EXPECT_TRUE(gate.unlock());
  EXPECT_FALSE(gate.is_held());
}

TEST(FreeGateTest, AFreeOfAnotherThreadWaitsForTheLastHolder) {
  for (int round = 0; round < 50; ++round) {
    FreeGate gate;
    std::atomic<bool> is_released = false;
    std::atomic<bool> is_about_to_enter = false;
    gate.lock();
    std::thread freeing([&] {
      is_about_to_enter = true;
      EXPECT_TRUE(gate.enter());
      EXPECT_TRUE(is_released) << "a free began under the gate";
      gate.leave();
    });
    std::thread([&] {
      gate.lock();
      EXPECT_TRUE(gate.unlock()) << "one holder of two";
    }).join();
    while (!is_about_to_enter)
      std::this_thread::yield();
    let_others_run();
    is_released = true;
    EXPECT_TRUE(gate.unlock());
    freeing.join();
  }
}

TEST(FreeGateTest, LockWaitsForFreesUnderWay) {
  for (int round = 0; round < 50; ++round) {
    FreeGate gate;
    std::atomic<bool> has_left = false;
    std::atomic<bool> is_about_to_lock = false;
    EXPECT_TRUE(gate.enter());
    std::thread holder([&] {
      is_about_to_lock = true;
      gate.lock();
      EXPECT_TRUE(has_left) << "a free was under way inside the gate";
      EXPECT_TRUE(gate.unlock());
    });
    while (!is_about_to_lock)
      std::this_thread::yield();
    let_others_run();
    has_left = true;
    gate.leave();
    holder.join();
  }
}

// A holder that locks again while a free waits must not wait for it: both would wait for ever.
TEST(FreeGateTest, LockingAgainNeverWaitsForFreesThatWait) {
  FreeGate gate;
  gate.lock();
  std::thread freeing([&] {
    EXPECT_TRUE(gate.enter());
    gate.leave();
  });
  let_others_run();
  gate.lock();
  EXPECT_TRUE(gate.unlock());
  EXPECT_TRUE(gate.unlock());
  freeing.join();
}

TEST(FreeGateTest, TryEnterTellsWhoHoldsItAndNeverWaits) {
  using Entry = FreeGate::Entry;
  FreeGate gate;
  EXPECT_EQ(gate.try_enter(), Entry::kEntered);
  gate.leave();
  gate.lock();
  EXPECT_EQ(gate.try_enter(), Entry::kHeldByThisThread);
  std::thread([&gate] { EXPECT_EQ(gate.try_enter(), Entry::kHeldByOthers); }).join();
  EXPECT_TRUE(gate.unlock());
  EXPECT_EQ(gate.try_enter(), Entry::kEntered);
  std::thread locker([&gate] {
    gate.lock();  // waits for the free under way
    EXPECT_TRUE(gate.unlock());
  });
  gate.leave();
  locker.join();
}

TEST(FreeGateTest, WaitingForTheOpenGateEndsWithTheLastHold) {
  FreeGate gate;
  gate.wait_until_open();
  for (int round = 0; round < 50; ++round) {
    std::atomic<bool> is_released = false;
    gate.lock();
    gate.lock();
    std::thread waiting([&] {
      gate.wait_until_open();
      EXPECT_TRUE(is_released);
    });
    EXPECT_TRUE(gate.unlock());
    let_others_run();
    is_released = true;
    EXPECT_TRUE(gate.unlock());
    waiting.join();
  }
}

// Else threads that free all the time, one before the other has left, keep it out for ever.
TEST(FreeGateTest, WhileALockerWaitsNoFreeBegins) {
  FreeGate gate;
  ASSERT_TRUE(gate.enter());
  std::thread locker([&gate] {
    gate.lock();
    EXPECT_TRUE(gate.unlock());
  });
  auto entry = FreeGate::Entry::kEntered;
  for (int i = 0; i < 1'000'000 && entry == FreeGate::Entry::kEntered; ++i) {
    entry = gate.try_enter();
    if (entry == FreeGate::Entry::kEntered) gate.leave();
    std::this_thread::yield();
  }
  EXPECT_EQ(entry, FreeGate::Entry::kHeldByOthers);
  gate.leave();
  gate.wait_until_open();
  locker.join();
}

TEST(FreeGateTest, DroppingTheHoldsOfAThreadOpensTheGateAndKeepsThoseOfOthers) {
  FreeGate gate;
  gate.lock();
  std::thread([&gate] {
    EXPECT_EQ(gate.drop_holds_of_this_thread(), 0u);
    gate.lock();
    gate.lock();
    EXPECT_EQ(gate.drop_holds_of_this_thread(), 2u);
    EXPECT_FALSE(gate.is_held_by_this_thread());
    EXPECT_EQ(gate.try_enter(), FreeGate::Entry::kHeldByOthers);
  }).join();
  std::thread waiting([&gate] { gate.wait_until_open(); });
  let_others_run();
  EXPECT_EQ(gate.drop_holds_of_this_thread(), 1u);
  waiting.join();
  EXPECT_TRUE(gate.enter());
  gate.leave();
}

TEST(FreeGateTest, ManyThreadsNeverFreeWhileAnyHoldsIt) {
  FreeGate gate;
  std::atomic<int> holders = 0;
  std::atomic<int> frees = 0;
  const auto hold = [&] {
    for (int i = 0; i < 500; ++i) {
      gate.lock();
      ++holders;
      EXPECT_EQ(frees, 0);
      --holders;
      EXPECT_TRUE(gate.unlock());
    }
  };
  const auto free = [&] {
    for (int i = 0; i < 500; ++i) {
      EXPECT_TRUE(gate.enter());
      ++frees;
      EXPECT_EQ(holders, 0);
      --frees;
      gate.leave();
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back(hold);
    threads.emplace_back(free);
  }
  for (std::thread& thread : threads)
    thread.join();
}

}  // namespace
}  // namespace quarry
