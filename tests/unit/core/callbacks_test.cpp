// SPDX-License-Identifier: Apache-2.0
#include "core/callbacks.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace quarry {
namespace {

TEST(CallbacksTest, WithoutCallbacksNothingIsFreedAndNobodyTold) {
  const Callbacks callbacks;
  EXPECT_FALSE(callbacks.has_free_memory_callbacks());
  EXPECT_FALSE(callbacks.free_memory(0, 1024));
  callbacks.notify_oom(OomReport{});
}

TEST(CallbacksTest, EveryObserverSeesTheReport) {
  Callbacks callbacks;
  std::vector<Bytes> seen;
  callbacks.add_oom_observer([&](const OomReport& r) { seen.push_back(r.segment_bytes); });
  callbacks.add_oom_observer([&](const OomReport& r) { seen.push_back(r.requested_bytes); });
  OomReport report;
  report.segment_bytes = 2_MiB;
  report.requested_bytes = 100;
  callbacks.notify_oom(report);
  EXPECT_EQ(seen, (std::vector<Bytes>{2_MiB, 100}));
}

TEST(CallbacksTest, EveryCallbackIsAskedEvenAfterOneDidSomething) {
  Callbacks callbacks;
  std::vector<std::string> asked;
  const auto add = [&](bool did_something) {
    callbacks.add_free_memory_callback([&asked, did_something](DeviceId device, Bytes bytes) {
      asked.push_back(std::to_string(device) + ":" + std::to_string(bytes));
      return did_something;
    });
  };
  add(false);
  EXPECT_FALSE(callbacks.free_memory(1, 512));
  add(true);
  add(false);
  EXPECT_TRUE(callbacks.has_free_memory_callbacks());
  EXPECT_TRUE(callbacks.free_memory(1, 512));
  EXPECT_EQ(asked, std::vector<std::string>(4, "1:512"));
}

TEST(CallbacksTest, ARemovedCallbackIsAskedNoMoreAndIdsAreNotReused) {
  Callbacks callbacks;
  int asked = 0;
  const CallbackId first = callbacks.add_free_memory_callback([&](DeviceId, Bytes) {
    ++asked;
    return true;
  });
  EXPECT_TRUE(callbacks.remove(first));
  EXPECT_FALSE(callbacks.remove(first));
  EXPECT_FALSE(callbacks.has_free_memory_callbacks());
  EXPECT_FALSE(callbacks.free_memory(0, 1));
  EXPECT_EQ(asked, 0);
  const CallbackId second = callbacks.add_oom_observer([](const OomReport&) {});
  EXPECT_NE(first, second);
  EXPECT_FALSE(callbacks.remove(first));
  EXPECT_TRUE(callbacks.remove(second));
}

TEST(CallbacksTest, ACallbackMayRemoveItselfAndAddOthersForTheNextRound) {
  Callbacks callbacks;
  int calls = 0, added = 0;
  CallbackId self{};
  self = callbacks.add_free_memory_callback([&](DeviceId, Bytes) {
    ++calls;
    EXPECT_TRUE(callbacks.remove(self));
    callbacks.add_free_memory_callback([&](DeviceId, Bytes) { return ++added > 0; });
    return false;
  });
  EXPECT_FALSE(callbacks.free_memory(0, 1024)) << "the new one is not asked in this round";
  EXPECT_TRUE(callbacks.free_memory(0, 1024));
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(added, 1);
}

TEST(CallbacksTest, ACallbackThatAnEarlierOneOfTheRoundRemovedIsNotCalled) {
  Callbacks callbacks;
  CallbackId observer{}, callback{};
  int calls = 0;
  callbacks.add_oom_observer([&](const OomReport&) { EXPECT_TRUE(callbacks.remove(observer)); });
  observer = callbacks.add_oom_observer([&](const OomReport&) { ++calls; });
  callbacks.notify_oom(OomReport{});
  callbacks.add_free_memory_callback([&](DeviceId, Bytes) { return callbacks.remove(callback); });
  callback = callbacks.add_free_memory_callback([&](DeviceId, Bytes) { return ++calls > 0; });
  EXPECT_TRUE(callbacks.free_memory(0, 1));
  EXPECT_EQ(calls, 0);
}

TEST(CallbacksTest, InsideACallbackNoneIsCalled) {
  Callbacks callbacks;
  int observed = 0, asked = 0;
  const auto call_all = [&] {
    if (observed + asked > 10) return;
    callbacks.notify_oom(OomReport{});
    EXPECT_FALSE(callbacks.free_memory(0, 1));
  };
  callbacks.add_oom_observer([&](const OomReport&) {
    ++observed;
    call_all();
  });
  callbacks.add_free_memory_callback([&](DeviceId, Bytes) {
    ++asked;
    call_all();
    return true;
  });
  callbacks.notify_oom(OomReport{});
  EXPECT_TRUE(callbacks.free_memory(0, 1));
  EXPECT_EQ(observed, 1);
  EXPECT_EQ(asked, 1);
}

TEST(CallbacksTest, ACallbackThatThrowsLeavesTheThreadOutsideOfIt) {
  Callbacks callbacks;
  int calls = 0;
  const CallbackId id = callbacks.add_oom_observer([&](const OomReport&) {
    ++calls;
    throw calls;
  });
  EXPECT_THROW(callbacks.notify_oom(OomReport{}), int);
  EXPECT_THROW(callbacks.notify_oom(OomReport{}), int) << "it is called again";
  std::thread([&] { EXPECT_TRUE(callbacks.remove(id)); }).join();
}

TEST(CallbacksTest, RemoveWaitsForACallInAnotherThread) {
  for (int round = 0; round < 50; ++round) {
    Callbacks callbacks;
    auto user = std::make_unique<std::atomic<int>>(0);
    std::atomic<bool> is_inside = false, is_about_to_remove = false;
    const CallbackId id = callbacks.add_oom_observer([&, at = user.get()](const OomReport&) {
      is_inside = true;
      while (!is_about_to_remove)
        std::this_thread::yield();
      for (int i = 0; i < 50; ++i) {
        std::this_thread::yield();
        ++*at;
      }
    });
    std::thread calling([&] { callbacks.notify_oom(OomReport{}); });
    while (!is_inside)
      std::this_thread::yield();
    is_about_to_remove = true;
    EXPECT_TRUE(callbacks.remove(id));
    EXPECT_EQ(*user, 50) << "the call was still under way";
    user.reset();
    calling.join();
  }
}

TEST(CallbacksTest, AFunctionLivesAsLongAsACallOfIt) {
  Callbacks callbacks;
  auto state = std::make_shared<int>(41);
  const std::weak_ptr<int> watch = state;
  CallbackId id{};
  int result = 0;
  id = callbacks.add_oom_observer([&, state](const OomReport&) {
    EXPECT_TRUE(callbacks.remove(id));
    result = *state + 1;
  });
  state.reset();
  callbacks.notify_oom(OomReport{});
  EXPECT_EQ(result, 42);
  EXPECT_TRUE(watch.expired());
}

TEST(CallbacksTest, CallsAndChangesOfSeveralThreadsMix) {
  Callbacks callbacks;
  std::atomic<int> calls = 0;
  const auto change = [&] {
    for (int i = 0; i < 300; ++i) {
      const CallbackId id = callbacks.add_free_memory_callback([&](DeviceId, Bytes) {
        ++calls;
        return false;
      });
      callbacks.free_memory(0, 1);
      EXPECT_TRUE(callbacks.remove(id));
    }
  };
  std::thread other(change);
  change();
  other.join();
  EXPECT_GE(calls, 600) << "each thread saw its own at least";
  EXPECT_FALSE(callbacks.has_free_memory_callbacks());
}

}  // namespace
}  // namespace quarry
