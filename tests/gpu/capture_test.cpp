// SPDX-License-Identifier: Apache-2.0
// Graph captures that are active while the allocator works beside them, on the real device: in
// every mode, of blocking and non-blocking streams, by the calling thread or another. The capture
// must survive whatever the allocator does on its own streams, and its graph must compute what was
// captured. Nothing allocates on the capturing stream (docs/design.md, "Not yet").
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <barrier>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "core/thread_state.hpp"
#include "tests/gpu/gpu_device.hpp"

namespace quarry::gpu {
namespace {

constexpr Bytes kGraphBytes = 8_MiB;

const char* get_mode_name(CaptureMode mode) {
  switch (mode) {
    case CaptureMode::kGlobal:
      return "Global";
    case CaptureMode::kThreadLocal:
      return "ThreadLocal";
    case CaptureMode::kRelaxed:
      return "Relaxed";
  }
  return "?";
}

// A capture on a stream of its own, of two kernels with time between them for others to act in.
// The graph writes its own memory, which was allocated before.
class Capture {
 public:
  Capture(Address memory, bool is_blocking) : memory_(memory), stream_(make_stream(is_blocking)) {}

  StreamRef stream() const { return stream_; }
  void begin(CaptureMode mode) {
    EXPECT_EQ(begin_capture(get_handle(stream_), static_cast<int>(mode)), 0);
    fill(memory_, kGraphBytes / 2, value_, get_handle(stream_));
  }
  // Ends it and runs the graph twice, over words that are wrong before.
  void end_and_check() {
    fill(memory_ + kGraphBytes / 2, kGraphBytes / 2, value_ + 1, get_handle(stream_));
    Graph graph(get_handle(stream_));
    EXPECT_EQ(graph.code(), 0) << "the capture was lost";
    if (graph.code() != 0) return;
    for (int run = 0; run < 2; ++run) {
      fill(memory_, kGraphBytes, 0, get_handle(stream_));
      graph.launch(get_handle(stream_));
      check(memory_, kGraphBytes / 2, value_, get_handle(stream_));
      check(memory_ + kGraphBytes / 2, kGraphBytes / 2, value_ + 1, get_handle(stream_));
    }
    synchronize(get_handle(stream_));
    ++value_;
  }

 private:
  const Address memory_;
  const StreamRef stream_;
  std::uint32_t value_ = 1000;
};

// Everything that the allocator does, on streams that do not capture. Launches kernels, and makes
// no other call to the driver of its own: those could lose a capture themselves.
class Bystander {
 public:
  // `may_set_limit`: nobody else needs memory meanwhile.
  Bystander(Device& device, bool may_set_limit)
      : device_(device), allocator_(device.allocator()), may_set_limit_(may_set_limit) {}
  ~Bystander() {
    device_.end_stream(own_);
    device_.end_stream(side_);
  }

  void act() {
    grow_and_give_back();
    park();
    free_with_foreign_use();
    free_in_callback();
    EXPECT_TRUE(allocator_.empty_cache(0).is_ok());
    run_out_of_memory();
    grow_and_give_back();
    // To the allocator it is a new stream when it is met again.
    EXPECT_TRUE(allocator_.retire_stream(side_).is_ok());
  }

 private:
  Address take(Bytes bytes) {
    const Address address = device_.allocate_filled(own_, bytes, ++value_);
    check(address, bytes, value_, get_handle(own_));
    return address;
  }
  void grow_and_give_back() {
    const Address large = take(64_MiB);
    const Address small = take(5000);
    device_.free(small);
    device_.free(large);
    EXPECT_TRUE(allocator_.empty_cache(0).is_ok());
  }
  void park() {
    for (int i = 0; i < 20; ++i)
      device_.free(take(4096));
  }
  void free_with_foreign_use() {
    for (int i = 0; i < 4; ++i) {
      const Address block = take(3_MiB);
      // Nothing is on this stream, so it need not be ordered after the other.
      EXPECT_TRUE(allocator_.record_stream(block, side_.handle).is_ok());
      device_.free(block);
    }
    device_.free(take(3_MiB));
  }
  void free_in_callback() {
    const Address block = take(3_MiB);
    EXPECT_TRUE(allocator_.record_stream(block, side_.handle).is_ok());
    {
      const DriverCallbackScope scope;
      device_.free(block);
    }
    device_.free(take(512));
  }
  // The last rung: waits, and gives everything back.
  void run_out_of_memory() {
    if (!may_set_limit_) return;
    device_.free(take(32_MiB));
    EXPECT_TRUE(allocator_.set_limit(0, device_.reserved() + 8_MiB).is_ok());
    EXPECT_EQ(allocator_.allocate(own_, 1_GiB).code(), StatusCode::kOutOfMemory);
    EXPECT_TRUE(allocator_.set_limit(0, kUnlimited).is_ok());
  }

  Device& device_;
  Allocator& allocator_;
  const bool may_set_limit_;
  const StreamRef own_ = make_stream();
  const StreamRef side_ = make_stream();
  std::uint32_t value_ = 0;
};

// Mode; whether the capturing stream is a blocking one; whether the same thread acts; magazines.
using Setting = std::tuple<CaptureMode, bool, bool, bool>;

class GpuCapture : public testing::TestWithParam<Setting> {};

TEST_P(GpuCapture, ACaptureSurvivesAndItsGraphIsRight) {
  const auto [mode, is_blocking, is_same_thread, thread_cache] = GetParam();
  Device device(thread_cache);
  const StreamRef setup = make_stream();
  const Address memory = device.allocate_filled(setup, kGraphBytes, 0);
  Bystander bystander(device, true);
  bystander.act();  // loads the kernels, which is not for a capture to live through
  synchronize_device();
  Capture capture(memory, is_blocking);
  for (int round = 0; round < 5; ++round) {
    if (is_same_thread) {
      capture.begin(mode);
      bystander.act();
      capture.end_and_check();
      continue;
    }
    std::barrier step(2);
    std::thread other([&, mode = mode] {
      capture.begin(mode);
      step.arrive_and_wait();
      step.arrive_and_wait();
      capture.end_and_check();
    });
    step.arrive_and_wait();
    bystander.act();
    step.arrive_and_wait();
    other.join();
  }
  EXPECT_EQ(take_wrong_words(), 0u);
  device.end_stream(capture.stream());
  device.free(memory);
  device.end_stream(setup);
  device.allocator().validate();
}

std::string name_setting(const testing::TestParamInfo<Setting>& tested) {
  const auto [mode, is_blocking, is_same_thread, thread_cache] = tested.param;
  return std::string(get_mode_name(mode)) + (is_blocking ? "Blocking" : "NonBlocking") +
         (is_same_thread ? "SameThread" : "OtherThread") +
         (thread_cache ? "Magazines" : "NoMagazines");
}

INSTANTIATE_TEST_SUITE_P(Beside, GpuCapture,
                         testing::Combine(testing::Values(CaptureMode::kGlobal,
                                                          CaptureMode::kThreadLocal,
                                                          CaptureMode::kRelaxed),
                                          testing::Bool(), testing::Bool(), testing::Bool()),
                         name_setting);

// Captures come and go at moments that nobody chose.
TEST(GpuCaptureStorm, CapturesOfOneThreadSurviveTheTrafficOfOthers) {
  constexpr int kThreads = 4;
  constexpr int kCaptures = 300;
  Device device(true);
  const StreamRef setup = make_stream();
  const Address memory = device.allocate_filled(setup, kGraphBytes, 0);
  std::vector<std::unique_ptr<Bystander>> bystanders;
  for (int i = 0; i < kThreads; ++i) {
    bystanders.push_back(std::make_unique<Bystander>(device, false));
    bystanders.back()->act();
  }
  Capture capture(memory, false);
  synchronize_device();
  std::atomic<bool> is_over{false};
  std::atomic<int> acts{0};
  std::vector<std::thread> threads;
  for (auto& bystander : bystanders) {
    threads.emplace_back([&, actor = bystander.get()] {
      while (!is_over) {
        actor->act();
        ++acts;
      }
    });
  }
  std::mt19937 random(1);
  for (int i = 0; i < kCaptures && !HasFailure(); ++i) {
    capture.begin(static_cast<CaptureMode>(random() % 3));
    const int before = acts;
    while (acts == before)  // every capture has somebody beside it
      std::this_thread::yield();
    capture.end_and_check();
  }
  is_over = true;
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(take_wrong_words(), 0u);
  std::printf("captures=%d beside acts=%d of %d threads\n", kCaptures, acts.load(), kThreads);
  device.end_stream(capture.stream());
  device.free(memory);
  bystanders.clear();
  device.end_stream(setup);
  device.allocator().validate();
}

// What the core relies on for streams of other threads (served_captures.hpp). Of the two questions
// this one may be asked at any time.
TEST(GpuCaptureStorm, WhetherAStreamCapturesMayBeAskedWhileItsCaptureEnds) {
  constexpr int kAskers = 3;
  constexpr int kCaptures = 5000;
  Device device(true);
  const StreamRef stream = make_stream();
  std::atomic<bool> is_over{false};
  std::atomic<std::uint64_t> active{0};
  std::atomic<std::uint64_t> failed{0};
  std::vector<std::thread> askers;
  for (int i = 0; i < kAskers; ++i) {
    askers.emplace_back([&] {
      while (!is_over) {
        const auto status = device.driver().get_capture_status(stream);
        failed += status.is_ok() ? 0 : 1;
        active += status.value == CaptureStatus::kActive ? 1 : 0;
      }
    });
  }
  for (int i = 0; i < kCaptures; ++i) {
    EXPECT_EQ(begin_capture(get_handle(stream), i % 3), 0);
    Graph graph(get_handle(stream));
    EXPECT_EQ(graph.code(), 0);
  }
  is_over = true;
  for (std::thread& asker : askers)
    asker.join();
  EXPECT_EQ(failed.load(), 0u);
  EXPECT_GT(active.load(), 0u);
  std::printf("captures=%d asked=active %llu times by %d threads\n", kCaptures,
              static_cast<unsigned long long>(active.load()), kAskers);
  device.end_stream(stream);
}

}  // namespace
}  // namespace quarry::gpu
