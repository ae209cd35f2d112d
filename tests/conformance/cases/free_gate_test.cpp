// SPDX-License-Identifier: Apache-2.0
// Case C84: a guard under which no driver free begins, held around the launches of a collective.
// No test sleeps: a thread that is to be waited for shows by its calls where it is. A deadlock
// ends the test by an alarm. Owns nothing but scenarios and threads.
#include <unistd.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "tests/support/scenario.hpp"

namespace quarry::test {
namespace {

class C84 : public ::testing::Test {
 protected:
  C84() : s_(1'073'741'824) {
    alarm(60);
    // Looks at every driver free as it begins; fails none.
    s_.sim().fail_calls_if(
        DriverEntry::kFree,
        [this](Bytes) {
          ++frees_;
          if (holders_ > 0) ++violations_;
          return false;
        },
        DriverCode::kUnknown);
  }
  ~C84() override {
    alarm(0);
    EXPECT_EQ(violations_, 0) << "a driver free began while the gate was held";
    s_.sim().clear_faults();
  }

  void lock_gate() {
    s_.allocator().free_gate().lock();
    ++holders_;
  }
  void unlock_gate() {
    --holders_;
    EXPECT_TRUE(s_.allocator().free_gate().unlock());
  }
  Result<Address> allocate(Bytes bytes) { return s_.allocator().allocate({0, kS0}, bytes); }
  // Caches one segment of this size.
  void cache(Bytes bytes) { ASSERT_TRUE(s_.allocator().free(allocate(bytes).value()).is_ok()); }

  Scenario s_;
  std::atomic<int> holders_{0};
  std::atomic<int> frees_{0};
  std::atomic<int> violations_{0};
};

TEST_F(C84, AHolderThatRunsShortDoesNotWaitForTheDevice) {
  const Address pending = s_.malloc(838'860'800);
  const StreamHandle side = s_.make_stream();
  s_.busy(side);  // as behind the half of a collective that is launched
  ASSERT_EQ(s_.record(pending, side), StatusCode::kOk);
  ASSERT_EQ(s_.free(pending), StatusCode::kOk);
  lock_gate();
  EXPECT_EQ(allocate(838'860'800).code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(s_.calls(DriverEntry::kSynchronizeEvent), 0u);
  unlock_gate();
  EXPECT_TRUE(allocate(838'860'800).is_ok());
}

TEST_F(C84, MallocThatMustReleaseWaitsAndNobodyElseDoes) {
  cache(838'860'800);
  cache(512);
  lock_gate();
  const std::uint64_t before = s_.calls(DriverEntry::kAllocate);
  std::thread second([&] { EXPECT_TRUE(allocate(943'718'400).is_ok()); });
  // By now the driver has refused it, so all that is left is to release the cached segment.
  while (s_.calls(DriverEntry::kAllocate) == before || s_.stats().num_alloc_retries == 0)
    std::this_thread::yield();

  // The holder goes on: hits, even of the very segment that is to be released, and growth.
  EXPECT_TRUE(allocate(512).is_ok());
  const auto cached = allocate(838'860'800);
  ASSERT_TRUE(cached.is_ok());
  EXPECT_EQ(s_.calls(DriverEntry::kAllocate), before + 1);
  const auto grown = allocate(4'194'304);
  ASSERT_TRUE(grown.is_ok());
  EXPECT_EQ(s_.calls(DriverEntry::kAllocate), before + 2);
  EXPECT_TRUE(s_.allocator().free(cached.value()).is_ok());
  EXPECT_TRUE(s_.allocator().free(grown.value()).is_ok());
  // So do others.
  std::thread third([&] {
    EXPECT_TRUE(allocate(512).is_ok());
    EXPECT_TRUE(s_.allocator().free(allocate(4'194'304).value()).is_ok());
  });
  third.join();
  EXPECT_EQ(frees_, 0);
  unlock_gate();
  second.join();
  EXPECT_GT(frees_, 0);
  EXPECT_EQ(s_.stats().num_alloc_retries, 1);
}

TEST_F(C84, EmptyCacheWaitsForTheGate) {
  cache(67'108'864);
  lock_gate();
  std::thread second([&] { EXPECT_TRUE(s_.allocator().empty_cache(0).is_ok()); });
  while (s_.stats().num_sync_all_streams == 0)
    std::this_thread::yield();
  const auto cached = allocate(67'108'864);  // still there to be used
  EXPECT_EQ(s_.calls(DriverEntry::kAllocate), 1u);
  EXPECT_TRUE(s_.allocator().free(cached.value()).is_ok());
  EXPECT_EQ(frees_, 0);
  unlock_gate();
  second.join();
  EXPECT_EQ(frees_, 1);
  EXPECT_EQ(s_.reserved(), 0u);
}

TEST_F(C84, HolderThatIsShortOfMemoryIsToldWhy) {
  cache(838'860'800);
  OomReport report;
  s_.allocator().callbacks().add_oom_observer([&report](const OomReport& r) { report = r; });
  lock_gate();
  EXPECT_EQ(allocate(943'718'400).code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(report.reason, OomReport::Reason::kFreeForbidden);
  EXPECT_EQ(s_.allocator().empty_cache(0).code(), StatusCode::kBusy);
  EXPECT_EQ(frees_, 0);
  EXPECT_EQ(s_.reserved(), 838'860'800u);
  unlock_gate();
  EXPECT_TRUE(allocate(943'718'400).is_ok());
}

// Also while another thread waits for the gate: the two must not wait for each other.
TEST_F(C84, HolderThatIsShortOfMemoryDoesNotWaitForThoseAtTheGate) {
  cache(838'860'800);
  lock_gate();
  std::thread second([&] { EXPECT_TRUE(allocate(943'718'400).is_ok()); });
  while (s_.stats().num_alloc_retries == 0)
    std::this_thread::yield();
  EXPECT_EQ(allocate(1'006'632'960).code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(s_.allocator().empty_cache(0).code(), StatusCode::kBusy);
  unlock_gate();
  second.join();
}

TEST_F(C84, GarbageStaysWhileTheGateIsShut) {
  s_.configure([](Config& config) {
    config.garbage_collection_threshold = 0.1;
    config.upstream_quirks = false;
  });
  cache(209'715'200);
  lock_gate();
  std::thread second([&] { EXPECT_TRUE(allocate(268'435'456).is_ok()); });
  second.join();  // without waiting for the gate
  EXPECT_EQ(frees_, 0);
  unlock_gate();
  EXPECT_TRUE(allocate(314'572'800).is_ok());
  EXPECT_EQ(frees_, 1);
}

TEST_F(C84, ThreadsThatLockAllocateAndReleaseNeverBlockEachOther) {
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 4; ++seed) {
    threads.emplace_back([this, seed] {
      std::mt19937 random(seed);
      for (int round = 0; round < 500; ++round) {
        const bool is_holder = random() % 2 == 0;
        if (is_holder) lock_gate();
        const auto block = allocate(1 + random() % 536'870'912);
        EXPECT_TRUE(!block.is_ok() || s_.allocator().free(block.value()).is_ok());
        if (random() % 8 == 0) {
          const StatusCode code = s_.allocator().empty_cache(0).code();
          EXPECT_EQ(code == StatusCode::kBusy, is_holder && code != StatusCode::kOk);
        }
        if (is_holder) unlock_gate();
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_GT(frees_, 0);
  EXPECT_EQ(s_.allocated(), 0u);
}

}  // namespace
}  // namespace quarry::test
