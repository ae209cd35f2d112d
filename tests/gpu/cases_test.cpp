// SPDX-License-Identifier: Apache-2.0
// Cases from the field on the real device, each under its number: C24 (stream handles that come
// back), C87 (frees from host functions), C88 (double frees). C74, calls that fail, is
// failing_calls_test.cpp. What the simulated device proves about order, kernels prove here about
// contents. Each with magazines and without.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <barrier>
#include <cstdio>
#include <set>
#include <string>
#include <thread>

#include "core/thread_state.hpp"
#include "tests/gpu/gpu_device.hpp"

namespace quarry::gpu {
namespace {

std::string name_of(const testing::TestParamInfo<bool>& tested) {
  return tested.param ? "Magazines" : "NoMagazines";
}

// --- C24 ---------------------------------------------------------------------------------------

class C24 : public testing::TestWithParam<bool> {
 protected:
  Device device_{GetParam()};
};

TEST_P(C24, NewStreamUnderAnOldHandleGetsNoMemoryThatTheOldOneUses) {
  constexpr Bytes kBytes = 4'194'304;
  int reused_handles = 0;
  for (std::uint32_t round = 0; round < 200; ++round) {
    const StreamRef old = make_stream();
    const Address x = device_.allocate_filled(old, kBytes, round);
    Signal signal;
    signal.hold(get_handle(old));
    fill(x, kBytes, round + 1, get_handle(old));  // still to come when the handle is given out
    device_.free(x);
    device_.end_stream(old);  // the driver may give the handle out again at once
    const StreamRef next = make_stream();
    reused_handles += next == old ? 1 : 0;
    const Address y = device_.allocate_filled(next, kBytes, ~round);
    EXPECT_NE(y, x);
    signal.raise();
    synchronize_device();
    check(y, kBytes, ~round, get_handle(next));
    const StreamRef any = make_stream();
    const Address z = device_.allocate_filled(any, kBytes, round);
    EXPECT_EQ(z, x) << "done, so any stream may have it";
    device_.free(y);
    device_.free(z);
    synchronize_device();
    device_.end_stream(next);
    device_.end_stream(any);
    EXPECT_TRUE(device_.allocator().empty_cache(0).is_ok());
  }
  EXPECT_EQ(take_wrong_words(), 0u);
  std::printf("C24 handles that came back: %d of 200\n", reused_handles);
}

TEST_P(C24, TenThousandStreamsLeaveOneSegment) {
  std::set<StreamHandle> handles;
  for (std::uint32_t round = 0; round < 10'000; ++round) {
    const StreamRef stream = make_stream();
    handles.insert(stream.handle);
    const Address x = device_.allocate_filled(stream, 4'194'304, round);
    ASSERT_NE(x, 0u);
    check(x, 4'194'304, round, get_handle(stream));
    device_.free(x);
    ASSERT_TRUE(device_.allocator().retire_stream(stream).is_ok());
    synchronize(get_handle(stream));
    destroy_stream(get_handle(stream));
  }
  EXPECT_EQ(take_wrong_words(), 0u);
  EXPECT_EQ(device_.reserved(), 20'971'520u);
  EXPECT_EQ(device_.stats().num_device_alloc, 1);
  EXPECT_EQ(device_.stats().parked_bytes, 0);
  std::printf("C24 handles of 10000 streams: %zu\n", handles.size());
  EXPECT_TRUE(device_.allocator().empty_cache(0).is_ok());
  EXPECT_EQ(device_.reserved(), 0u);
}

INSTANTIATE_TEST_SUITE_P(OnTheDevice, C24, testing::Bool(), name_of);

// --- C87 ---------------------------------------------------------------------------------------

// Counts the driver calls that are made on threads that the driver itself calls.
class CallbackWatcher final : public test::ForwardingDriver {
 public:
  using ForwardingDriver::ForwardingDriver;
  std::uint64_t count() const { return count_; }

 protected:
  DriverCode before(DriverEntry) noexcept override {
    count_ += is_driver_callback_thread() ? 1 : 0;
    return DriverCode::kSuccess;
  }

 private:
  std::atomic<std::uint64_t> count_{0};
};

// What a host function of the driver does with the blocks of one round.
struct Callback {
  Allocator* allocator = nullptr;
  StreamRef stream;
  std::array<Address, 3> blocks{};
  std::atomic<int> wrong{0};
  std::atomic<bool> is_done{false};

  static void run(void* self) { static_cast<Callback*>(self)->free_all(); }
  void expect(StatusCode code, StatusCode expected) { wrong += code == expected ? 0 : 1; }
  void free_all() {
    const DriverCallbackScope scope;
    for (const Address block : blocks)
      expect(allocator->free(block).code(), StatusCode::kOk);
    expect(allocator->free(blocks[0]).code(), StatusCode::kDoubleFree);
    expect(allocator->empty_cache(0).code(), StatusCode::kBusy);
    expect(allocator->allocate(stream, Bytes{1} << 40).code(), StatusCode::kBusy);
    is_done = true;
  }
};

class C87 : public testing::TestWithParam<bool> {
 protected:
  WatchedDevice<CallbackWatcher> device_{GetParam()};
  const StreamRef stream_ = make_stream();
  const StreamRef side_ = make_stream();
};

// The driver's free waits for the host function, which frees too: nothing may wait for the other.
TEST_P(C87, HostFunctionsFreeWhileTheMainThreadIsInsideTheDriver) {
  constexpr Bytes kBytes = 1_MiB;
  int met_in_the_driver = 0;
  for (std::uint32_t round = 0; round < 300; ++round) {
    Callback callback;
    callback.allocator = &device_.allocator();
    callback.stream = stream_;
    for (std::uint32_t i = 0; i < 3; ++i)
      callback.blocks[i] = device_.allocate_filled(stream_, kBytes, round + i);
    order(get_handle(stream_), get_handle(side_));
    check(callback.blocks[1], kBytes, round + 1, get_handle(side_));
    ASSERT_TRUE(device_.allocator().record_stream(callback.blocks[1], side_.handle).is_ok());
    spin(get_handle(stream_), 2000);
    for (std::uint32_t i = 0; i < 3; ++i)
      check(callback.blocks[i], kBytes, round + i, get_handle(stream_));
    launch_host_function(get_handle(stream_), &Callback::run, &callback);

    // Grows and gives back, which waits for the streams, and so for the host function.
    const auto large = device_.allocator().allocate(side_, 64_MiB + round % 7 * 2_MiB);
    ASSERT_TRUE(large.is_ok());
    device_.free(large.value());
    met_in_the_driver += callback.is_done ? 0 : 1;
    EXPECT_TRUE(device_.allocator().empty_cache(0).is_ok());
    synchronize(get_handle(stream_));
    ASSERT_TRUE(callback.is_done);
    EXPECT_EQ(callback.wrong, 0) << "round " << round;
    synchronize(get_handle(side_));
    EXPECT_TRUE(device_.allocator().empty_cache(0).is_ok());
    EXPECT_EQ(device_.stats().pending_bytes, 0);
    EXPECT_EQ(device_.reserved(), 0u) << "the next ordinary call takes all on";
  }
  EXPECT_EQ(take_wrong_words(), 0u);
  EXPECT_EQ(device_.watcher().count(), 0u) << "driver calls on a thread of the driver";
  EXPECT_GT(met_in_the_driver, 0);
  std::printf("C87 rounds in which the host function came after the main thread: %d of 300\n",
              met_in_the_driver);
  device_.end_stream(stream_);
  device_.end_stream(side_);
}

// Frees of blocks with and without foreign uses are pending until an ordinary call.
TEST_P(C87, FreeFromAHostFunctionOnlyQueues) {
  Callback callback;
  callback.allocator = &device_.allocator();
  callback.stream = stream_;
  // A size that was asked for once, on a thread without magazines: nothing parks.
  for (std::uint32_t i = 0; i < 3; ++i)
    callback.blocks[i] = device_.allocate_filled(stream_, 4_MiB + i * 512, i);
  ASSERT_TRUE(device_.allocator().record_stream(callback.blocks[2], side_.handle).is_ok());
  launch_host_function(get_handle(stream_), &Callback::run, &callback);
  synchronize(get_handle(stream_));
  ASSERT_TRUE(callback.is_done);
  EXPECT_EQ(callback.wrong, 0);
  EXPECT_EQ(device_.watcher().count(), 0u);
  DeviceStats stats = device_.stats();
  EXPECT_EQ(stats.pending_bytes, static_cast<std::int64_t>(3 * 4_MiB + 3 * 512));
  EXPECT_EQ(stats.allocated_bytes.all.current, 0);
  device_.allocator().validate();
  const auto next = device_.allocator().allocate(stream_, 4_MiB);
  ASSERT_TRUE(next.is_ok());
  EXPECT_LE(device_.stats().pending_bytes, static_cast<std::int64_t>(4_MiB + 2 * 512))
      << "all but the one with a foreign use";
  device_.free(next.value());
  synchronize_device();
  EXPECT_TRUE(device_.allocator().empty_cache(0).is_ok());
  EXPECT_EQ(device_.reserved(), 0u);
  device_.end_stream(stream_);
  device_.end_stream(side_);
}

INSTANTIATE_TEST_SUITE_P(OnTheDevice, C87, testing::Bool(), name_of);

// --- C88 ---------------------------------------------------------------------------------------

class C88 : public testing::TestWithParam<bool> {
 protected:
  void expect_usable_and_distinct(Bytes bytes) {
    std::array<Address, 4> blocks{};
    for (std::uint32_t i = 0; i < blocks.size(); ++i)
      blocks[i] = device_.allocate_filled(stream_, bytes, i + 40);
    EXPECT_EQ(std::set<Address>(blocks.begin(), blocks.end()).size(), blocks.size());
    for (std::uint32_t i = 0; i < blocks.size(); ++i)
      check(blocks[i], bytes, i + 40, get_handle(stream_));
    EXPECT_EQ(take_wrong_words(), 0u);
    for (const Address block : blocks)
      device_.free(block);
  }

  Device device_{GetParam()};
  const StreamRef stream_ = make_stream();
};

TEST_P(C88, SecondFreeIsRefusedAndTheBlockServesOneUserOnly) {
  for (const Bytes bytes : {Bytes{512}, 1_MiB, 4_MiB, 64_MiB}) {
    for (int i = 0; i < 3; ++i)
      device_.free(device_.allocate_filled(stream_, bytes, 1));
    const Address x = device_.allocate_filled(stream_, bytes, 1);
    device_.free(x);
    EXPECT_EQ(device_.allocator().free(x).code(), StatusCode::kDoubleFree);
    EXPECT_EQ(device_.allocator().free(x).code(), StatusCode::kDoubleFree);
    expect_usable_and_distinct(bytes);
  }
  EXPECT_EQ(device_.stats().num_device_free, 0) << "given to the driver by a second free";
  EXPECT_EQ(device_.stats().invalid_frees, 8);
  device_.end_stream(stream_);
}

TEST_P(C88, DoubleFreeWhilePendingIsDetected) {
  const StreamRef side = make_stream();
  const Address x = device_.allocate_filled(stream_, 4096, 1);
  Signal signal;
  signal.hold(get_handle(side));
  ASSERT_TRUE(device_.allocator().record_stream(x, side.handle).is_ok());
  device_.free(x);
  EXPECT_EQ(device_.allocator().free(x).code(), StatusCode::kDoubleFree);
  EXPECT_EQ(device_.stats().pending_bytes, 4096);
  signal.raise();
  synchronize_device();
  expect_usable_and_distinct(4096);
  EXPECT_EQ(device_.stats().pending_bytes, 0);
  device_.end_stream(side);
  device_.end_stream(stream_);
}

TEST_P(C88, OfTwoRacingFreesExactlyOneSucceeds) {
  constexpr int kRounds = 20'000;
  Allocator& allocator = device_.allocator();
  Address w = 0;
  int wrong = 0;
  std::array<StatusCode, 2> codes{};
  std::barrier start(2, [&]() noexcept { w = allocator.allocate(stream_, 512).value(); });
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
  EXPECT_EQ(device_.stats().allocated_bytes.all.current, 0);
  EXPECT_EQ(device_.stats().invalid_frees, kRounds);
  allocator.validate();
  expect_usable_and_distinct(512);
  device_.end_stream(stream_);
}

INSTANTIATE_TEST_SUITE_P(OnTheDevice, C88, testing::Bool(), name_of);

}  // namespace
}  // namespace quarry::gpu
