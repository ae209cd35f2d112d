// SPDX-License-Identifier: Apache-2.0
// Cases from the field about threads: frees from driver callbacks and double frees. Each under its
// number and with its figures. The free gate is free_gate_test.cpp, forks are fork_test.cpp. No
// test sleeps: threads meet at the calls that they make. Owns nothing but scenarios and threads.
#include <atomic>
#include <barrier>
#include <thread>
#include <vector>

#include "core/thread_state.hpp"
#include "tests/support/scenario.hpp"

namespace quarry::test {
namespace {

// The calling thread is one that the driver runs: for the allocator, and for the simulator, which
// reports every driver call that is made on it.
class CallbackThread {
 public:
  explicit CallbackThread(SimDriver& sim) : sim_(sim) { sim_.set_callback_thread(true); }
  ~CallbackThread() { sim_.set_callback_thread(false); }
  CallbackThread(const CallbackThread&) = delete;
  CallbackThread& operator=(const CallbackThread&) = delete;

 private:
  SimDriver& sim_;
  DriverCallbackScope scope_;
};

TEST(C87, FreeFromACallbackOnlyQueues) {
  Scenario s;
  const StreamHandle s1 = s.make_stream();
  const Address plain = s.malloc(4'194'304);
  const Address recorded = s.malloc(4'194'304);
  s.record(recorded, s1);
  const std::uint64_t calls = s.sim().call_count();
  std::thread([&] {
    const CallbackThread callback(s.sim());
    EXPECT_EQ(s.free(plain), StatusCode::kOk);
    EXPECT_EQ(s.free(recorded), StatusCode::kOk);
    EXPECT_EQ(s.allocator().free(plain).code(), StatusCode::kDoubleFree);
  }).join();
  EXPECT_EQ(s.sim().call_count(), calls);
  EXPECT_EQ(s.sim().misuse_count(), 0u);
  DeviceStats stats = s.stats();
  EXPECT_EQ(stats.pending_bytes, 2 * 4'194'304);
  EXPECT_EQ(stats.allocated_bytes.all.current, 0);
  s.allocator().validate();

  // The next ordinary call takes both on. Nothing runs on s1, so both are free at once.
  EXPECT_EQ(s.malloc(4'194'304), plain);
  EXPECT_EQ(s.calls(DriverEntry::kRecordEvent), 1u);
  EXPECT_EQ(s.stats().pending_bytes, 0);
}

TEST(C87, BlockWithABusyStreamStaysPendingAfterTheCallback) {
  Scenario s;
  const StreamHandle s1 = s.make_stream();
  const Address x = s.malloc(4'194'304);
  s.busy(s1);
  s.record(x, s1);
  std::thread([&] {
    const CallbackThread callback(s.sim());
    EXPECT_EQ(s.free(x), StatusCode::kOk);
  }).join();
  EXPECT_NE(s.malloc(4'194'304), x);
  EXPECT_EQ(s.stats().pending_bytes, 4'194'304);
  s.complete(s1);
  EXPECT_EQ(s.malloc(4'194'304), x);
}

// Thresholds are looked at by the next malloc, so no free on a callback thread reaches the driver.
TEST(C87, FreeFromACallbackAboveTheThresholdMakesNoDriverCall) {
  ScenarioOptions options = ScenarioOptions::with_cap(1'073'741'824);
  options.config.garbage_collection_threshold = 0.1;
  options.config.upstream_quirks = false;
  Scenario s(options);
  std::vector<Address> blocks;
  for (int i = 0; i < 8; ++i)
    blocks.push_back(s.malloc(67'108'864));
  const std::uint64_t calls = s.sim().call_count();
  std::thread([&] {
    const CallbackThread callback(s.sim());
    for (const Address block : blocks)
      EXPECT_EQ(s.free(block), StatusCode::kOk);
  }).join();
  EXPECT_EQ(s.sim().call_count(), calls);
  EXPECT_NE(s.malloc(134'217'728), 0u);
  EXPECT_EQ(s.calls(DriverEntry::kFree), 7u);  // 512 MiB down to at most a tenth of 1 GiB
}

TEST(C87, CallbackFreesWhileAnotherThreadIsInsideTheDriver) {
  Scenario s;
  const Address x = s.malloc(4'194'304);
  std::atomic<bool> is_callback{false};
  std::atomic<bool> is_in_driver{false};
  std::atomic<bool> has_freed{false};
  std::thread callback_thread([&] {
    const CallbackThread callback(s.sim());
    is_callback = true;
    is_callback.notify_all();
    is_in_driver.wait(false);
    EXPECT_TRUE(s.allocator().free(x).is_ok());
    has_freed = true;
    has_freed.notify_all();
  });
  // The driver holds its own lock, as the real one does, until the callback has returned.
  s.sim().fail_calls_if(
      DriverEntry::kAllocate,
      [&](Bytes) {
        is_in_driver = true;
        is_in_driver.notify_all();
        has_freed.wait(false);
        return false;
      },
      DriverCode::kUnknown);
  is_callback.wait(false);
  EXPECT_TRUE(s.allocator().allocate({0, kS0}, 67'108'864).is_ok());
  callback_thread.join();
  s.sim().clear_faults();
  EXPECT_EQ(s.sim().misuse_count(), 0u);
  EXPECT_EQ(s.stats().pending_bytes, 4'194'304);
}

// What needs the driver is refused or does without it; nothing on a callback thread may reach it.
TEST(C87, OtherCallsFromACallbackMakeNoDriverCallEither) {
  Scenario s;
  const StreamHandle s1 = s.make_stream();
  const Address x = s.malloc(4'194'304);
  const Address y = s.malloc(4'194'304);
  s.free(y);
  const std::uint64_t calls = s.sim().call_count();
  std::thread([&] {
    const CallbackThread callback(s.sim());
    Allocator& allocator = s.allocator();
    EXPECT_EQ(allocator.allocate({0, kS0}, 4'194'304).value(), y);
    EXPECT_EQ(allocator.allocate({0, kS0}, 67'108'864).code(), StatusCode::kBusy);
    EXPECT_TRUE(allocator.record_stream(x, s1).is_ok());
    EXPECT_EQ(allocator.retire_stream({0, s1}).code(), StatusCode::kBusy);
    allocator.retire_thread_streams();
    EXPECT_EQ(allocator.empty_cache(0).code(), StatusCode::kBusy);
    EXPECT_TRUE(allocator.get_stats(0).is_ok());
    EXPECT_TRUE(allocator.find_block(x).is_ok());
  }).join();
  EXPECT_EQ(s.sim().call_count(), calls);
  EXPECT_EQ(s.sim().misuse_count(), 0u);
}

TEST(C88, SecondFreeIsRefusedAndChangesNothing) {
  Scenario s;
  const Address x = s.malloc(512);
  EXPECT_EQ(s.free(x), StatusCode::kOk);
  const DeviceStats before = s.stats();
  EXPECT_EQ(s.free(x), StatusCode::kDoubleFree);
  DeviceStats after = s.stats();
  EXPECT_EQ(after.invalid_frees, before.invalid_frees + 1);
  after.invalid_frees = before.invalid_frees;
  const auto expected = flatten(before);
  const auto found = flatten(after);
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_EQ(found[i].value, expected[i].value) << expected[i].name;

  const Address y = s.malloc(512);
  const Address z = s.malloc(512);
  EXPECT_GE(y < z ? z - y : y - z, 512u);
  EXPECT_TRUE(s.allocator().find_block(y).is_ok());
  EXPECT_TRUE(s.allocator().find_block(z).is_ok());
  EXPECT_EQ(s.calls(DriverEntry::kFree), 0u);
}

TEST(C88, DoubleFreeWhilePendingIsDetected) {
  Scenario s;
  const StreamHandle s1 = s.make_stream();
  const Address x = s.malloc(512);
  s.busy(s1);
  s.record(x, s1);
  EXPECT_EQ(s.free(x), StatusCode::kOk);
  EXPECT_EQ(s.free(x), StatusCode::kDoubleFree);
  EXPECT_EQ(s.active(), 512u);
  s.complete(s1);
  EXPECT_EQ(s.malloc(512), x);
  EXPECT_EQ(s.active(), 512u);
}

TEST(C88, OfTwoRacingFreesExactlyOneSucceeds) {
  constexpr int kRounds = 500;
  Scenario s;
  Allocator& allocator = s.allocator();
  Address w = 0;
  std::atomic<int> succeeded{0};
  std::atomic<int> refused{0};
  std::barrier start(2, [&]() noexcept { w = allocator.allocate({0, kS0}, 512).value(); });
  std::barrier end(2);
  const auto free_in_turns = [&] {
    for (int round = 0; round < kRounds; ++round) {
      start.arrive_and_wait();
      const StatusCode code = allocator.free(w).code();
      succeeded += code == StatusCode::kOk ? 1 : 0;
      refused += code == StatusCode::kDoubleFree ? 1 : 0;
      end.arrive_and_wait();
    }
  };
  std::thread other(free_in_turns);
  free_in_turns();
  other.join();
  EXPECT_EQ(succeeded, kRounds);
  EXPECT_EQ(refused, kRounds);
  EXPECT_EQ(s.allocated(), 0u);
  EXPECT_EQ(s.stats().invalid_frees, kRounds);
}

}  // namespace
}  // namespace quarry::test
