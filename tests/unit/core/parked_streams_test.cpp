// SPDX-License-Identifier: Apache-2.0
// Which threads' magazines a request empties that nothing free fits: those that may have parked
// blocks of its own stream, since no other block could serve it. All of them are emptied where
// memory goes back to the driver. Two threads that take turns; the other one lives to the end.
#include <gtest/gtest.h>

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/support/scenario.hpp"

namespace quarry::test {
namespace {

ScenarioOptions make_cached(Bytes cap) {
  ScenarioOptions options = ScenarioOptions::with_cap(cap);
  options.config.thread_cache = true;
  options.sim.reuse_stream_handles = true;
  return options;
}

// Runs one task at a time while the caller waits.
class OtherThread {
 public:
  OtherThread() : thread_([this] { serve(); }) {}
  ~OtherThread() {
    run({});
    thread_.join();
  }
  OtherThread(const OtherThread&) = delete;
  OtherThread& operator=(const OtherThread&) = delete;

  // Nothing: the thread ends.
  void run(const std::function<void()>& task) {
    std::unique_lock lock(mutex_);
    task_ = &task;
    changed_.notify_all();
    changed_.wait(lock, [this] { return task_ == nullptr; });
  }

 private:
  void serve() {
    std::unique_lock lock(mutex_);
    for (bool is_over = false; !is_over;) {
      changed_.wait(lock, [this] { return task_ != nullptr; });
      is_over = !*task_;
      if (!is_over) (*task_)();
      task_ = nullptr;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void()>* task_ = nullptr;  // null: it may be set
  std::thread thread_;                           // the last, which begins at once
};

class ParkedStreamsTest : public testing::Test {
 protected:
  static constexpr Bytes kFiller = 800'000;

  // Three requests make a size one that parks, even if the first of them makes the magazines.
  void park(Bytes bytes, StreamHandle stream) {
    for (int i = 0; i < 3; ++i)
      ASSERT_EQ(s_.free(s_.malloc(bytes, stream)), StatusCode::kOk);
  }
  // Three segments, each of two blocks: the stream may not grow beside parked blocks any more, and
  // has nothing free that would serve as much again.
  void fill_segments(StreamHandle stream) {
    const std::uint64_t before = s_.calls(DriverEntry::kAllocate);
    while (s_.calls(DriverEntry::kAllocate) < before + 3)
      ASSERT_NE(s_.malloc(kFiller, stream), 0u);
    ASSERT_NE(s_.malloc(kFiller, stream), 0u);
  }
  // A new handle, or an old one again.
  StreamHandle replace(StreamHandle stream) {
    EXPECT_TRUE(s_.allocator().retire_stream({0, stream}).is_ok());
    EXPECT_EQ(s_.sim().destroy_stream({0, stream}), DriverCode::kSuccess);
    return s_.make_stream();
  }
  Bytes parked() { return static_cast<Bytes>(s_.stats().parked_bytes); }

  Scenario s_{make_cached(1_GiB)};
  const StreamHandle a_ = s_.make_stream();
  const StreamHandle b_ = s_.make_stream();
  OtherThread other_;
};

TEST_F(ParkedStreamsTest, ASmallMissLeavesWhatOtherThreadsParkedOfTheirOwnStreams) {
  other_.run([this] { park(4096, b_); });
  fill_segments(a_);
  EXPECT_EQ(parked(), 4096u);
}

TEST_F(ParkedStreamsTest, ALargeMissLeavesWhatOtherThreadsParkedOfTheirOwnStreams) {
  other_.run([this] { park(64_MiB, b_); });
  ASSERT_NE(s_.malloc(32_MiB, a_), 0u);
  EXPECT_EQ(parked(), 64_MiB);
}

// Whether the blocks were held at the last miss, or parked.
TEST_F(ParkedStreamsTest, EveryLargeMissTakesBackAllLargeBlocksThatItsThreadParked) {
  park(64_MiB, a_);
  const Address held = s_.malloc(64_MiB, a_);
  const Address parked_then = s_.malloc(64_MiB, a_);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(s_.free(parked_then), StatusCode::kOk);
    ASSERT_EQ(parked(), 64_MiB);
    ASSERT_NE(s_.malloc(80_MiB, a_), 0u);
    EXPECT_EQ(parked(), 0u);
    ASSERT_EQ(s_.malloc(64_MiB, a_), parked_then);
  }
  ASSERT_EQ(s_.free(held), StatusCode::kOk);
  ASSERT_EQ(parked(), 64_MiB);
  ASSERT_NE(s_.malloc(80_MiB, a_), 0u);
  EXPECT_EQ(parked(), 0u);
}

TEST_F(ParkedStreamsTest, AMissLeavesWhatItsThreadParkedOfOtherStreams) {
  park(4096, b_);
  fill_segments(a_);
  EXPECT_EQ(parked(), 4096u);
}

TEST_F(ParkedStreamsTest, WhatItsThreadParkedIsLookedAtBeforeWhatOthersDid) {
  other_.run([this] { park(900'096, a_); });
  park(1_MiB, a_);
  const Address own = s_.malloc(1_MiB, a_);
  const Address others = s_.malloc(900'096, a_);
  fill_segments(a_);
  ASSERT_EQ(parked(), 0u);
  ASSERT_EQ(s_.free(own), StatusCode::kOk);
  other_.run([&] { EXPECT_EQ(s_.free(others), StatusCode::kOk); });
  ASSERT_EQ(parked(), 1_MiB + 900'096);
  const std::uint64_t calls = s_.calls(DriverEntry::kAllocate);
  EXPECT_NE(s_.malloc(kFiller, a_), 0u);
  EXPECT_EQ(parked(), 900'096u);
  EXPECT_NE(s_.malloc(kFiller, a_), 0u);
  EXPECT_EQ(parked(), 0u);
  EXPECT_EQ(s_.calls(DriverEntry::kAllocate), calls);
}

TEST_F(ParkedStreamsTest, ABlockThatAnotherThreadParkedIsUsedBeforeTheDriverIsAsked) {
  park(64_MiB, a_);
  const Address block = s_.malloc(64_MiB, a_);
  other_.run([&] {
    park(64_MiB, a_);
    EXPECT_EQ(s_.free(block), StatusCode::kOk);
  });
  ASSERT_EQ(parked(), 128_MiB);
  const std::uint64_t calls = s_.calls(DriverEntry::kAllocate);
  EXPECT_NE(s_.malloc(50_MiB, a_), 0u);
  EXPECT_NE(s_.malloc(50_MiB, a_), 0u);
  EXPECT_EQ(s_.calls(DriverEntry::kAllocate), calls);
}

// The other thread has asked for streams enough that it has forgotten the first; what it parked
// of it is not forgotten.
TEST_F(ParkedStreamsTest, ABlockOfAStreamThatItsThreadHasForgottenIsFound) {
  other_.run([this] {
    park(64_MiB, a_);
    for (int i = 0; i < 40; ++i)
      ASSERT_NE(s_.malloc(512, s_.make_stream()), 0u);
  });
  ASSERT_EQ(parked(), 64_MiB);
  const std::uint64_t calls = s_.calls(DriverEntry::kAllocate);
  EXPECT_NE(s_.malloc(50_MiB, a_), 0u);
  EXPECT_EQ(s_.calls(DriverEntry::kAllocate), calls);
}

// The other thread kept a magazine of the handle and never asks for anything of the new stream.
TEST_F(ParkedStreamsTest, ABlockThatAThreadParkedWithoutKnowingItsStreamIsFound) {
  other_.run([this] { park(64_MiB, b_); });
  const StreamHandle again = replace(b_);
  ASSERT_EQ(again, b_);
  ASSERT_EQ(s_.empty_cache(), StatusCode::kOk);
  const Address block = s_.malloc(64_MiB, again);
  other_.run([&] { EXPECT_EQ(s_.free(block), StatusCode::kOk); });
  ASSERT_EQ(parked(), 64_MiB);
  const std::uint64_t calls = s_.calls(DriverEntry::kAllocate);
  EXPECT_EQ(s_.malloc(50_MiB, again), block);
  EXPECT_EQ(s_.calls(DriverEntry::kAllocate), calls);
}

TEST_F(ParkedStreamsTest, ABlockThatAnEndedThreadParkedIsFound) {
  std::thread([this] { park(64_MiB, a_); }).join();
  ASSERT_EQ(parked(), 64_MiB);
  const std::uint64_t calls = s_.calls(DriverEntry::kAllocate);
  EXPECT_NE(s_.malloc(50_MiB, a_), 0u);
  EXPECT_EQ(s_.calls(DriverEntry::kAllocate), calls);
  EXPECT_EQ(parked(), 0u);
}

// More threads than a stream can tell apart.
TEST_F(ParkedStreamsTest, ABlockThatOneOfManyThreadsParkedIsFound) {
  std::vector<std::unique_ptr<OtherThread>> threads;
  for (int i = 0; i < 130; ++i) {
    threads.push_back(std::make_unique<OtherThread>());
    threads.back()->run([this] { park(512, b_); });
  }
  for (const auto& thread : {&threads[3], &threads[66], &threads[129]}) {
    (*thread)->run([this] { park(64_MiB, a_); });
    const std::uint64_t calls = s_.calls(DriverEntry::kAllocate);
    const Address block = s_.malloc(50_MiB, a_);
    EXPECT_EQ(s_.calls(DriverEntry::kAllocate), calls);
    ASSERT_EQ(s_.free(block), StatusCode::kOk);
  }
}

// Each thread counts for itself, and one that frees what others allocated counts downwards. Were
// that not taken into account now and then, the peak would rise by 40 MiB a round.
TEST_F(ParkedStreamsTest, APeakDoesNotRiseWithWhatAnotherThreadFrees) {
  constexpr int kBlocks = 60;
  constexpr Bytes kEach = 700'000;
  constexpr std::int64_t kHeld = kBlocks * std::int64_t{kEach};
  constexpr std::int64_t kUncounted = 16_MiB + 1_MiB;
  park(512, a_);
  other_.run([this] { park(512, b_); });
  for (int round = 0; round < 20; ++round) {
    std::vector<Address> blocks;
    for (int i = 0; i < kBlocks; ++i)
      blocks.push_back(s_.allocator().allocate({0, a_}, kEach).value());
    other_.run([&] {
      for (const Address block : blocks)
        ASSERT_TRUE(s_.allocator().free(block).is_ok());
    });
  }
  const std::int64_t peak = s_.stats().allocated_bytes.all.peak;
  EXPECT_GE(peak, kHeld);
  EXPECT_LE(peak, kHeld + kUncounted);
}

TEST_F(ParkedStreamsTest, MemoryThatIsShortEmptiesAllMagazines) {
  other_.run([this] { park(64_MiB, b_); });
  EXPECT_NE(s_.malloc(1000_MiB, a_), 0u) << s_.last_message();
  EXPECT_EQ(parked(), 0u);
}

TEST_F(ParkedStreamsTest, GarbageIsCollectedFromAllMagazines) {
  s_.configure([](Config& config) { config.garbage_collection_threshold = 0.2; });
  ASSERT_TRUE(s_.allocator().set_limit(0, 512_MiB).is_ok());
  other_.run([this] {
    park(64_MiB, b_);
    park(50_MiB, b_);
  });
  ASSERT_NE(s_.malloc(32_MiB, a_), 0u);
  EXPECT_EQ(parked(), 0u);
}

}  // namespace
}  // namespace quarry::test
