// SPDX-License-Identifier: Apache-2.0
// Case C89: use after a fork. At the level of the core, where the child is told by mark_forked;
// that the process's allocator calls it by itself is tested in tests/unit/api. Each child makes
// its checks, and its exit code says which of them failed first. Owns its devices and allocators.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <thread>

#include "tests/support/scenario.hpp"

namespace quarry::test {
namespace {

constexpr StreamRef kLegacy{0, StreamHandle::kLegacy};

struct Process {
  SimDriver sim;
  std::unique_ptr<Allocator> allocator = Allocator::create(sim, make_config()).value();
  Address cached = 0;  // freed by the parent
  Address held = 0;

  Process() {
    cached = allocator->allocate(kLegacy, 4'194'304).value();
    held = allocator->allocate(kLegacy, 1'048'576).value();
    EXPECT_TRUE(allocator->free(cached).is_ok());
  }
};

// The exit code of a child that runs `body`; a child that hangs is ended by the alarm.
int run_in_child(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    _exit(body());
  }
  int state = 0;
  EXPECT_EQ(waitpid(child, &state, 0), child);
  EXPECT_TRUE(WIFEXITED(state)) << "the child was ended by signal " << WTERMSIG(state);
  return WIFEXITED(state) ? WEXITSTATUS(state) : -1;
}

// 0, or the number of the first call that did not answer "forked".
int call_everything(Process& process) {
  Allocator& a = *process.allocator;
  const StatusCode codes[] = {
      a.get_stats(0).code(),
      a.allocate(kLegacy, 512).code(),
      a.allocate(kLegacy, 4'194'304).code(),
      a.free(process.held).code(),
      a.free_sized(process.held, 1'048'576).code(),
      a.free_on_stream(process.held, StreamHandle::kPerThread).code(),
      a.free(process.cached).code(),
      a.record_stream(process.held, StreamHandle::kPerThread).code(),
      a.retire_stream(kLegacy).code(),
      a.empty_cache(0).code(),
      a.find_block(process.held).code(),
      a.reset_peak_stats(0).code(),
      a.set_limit(0, 1).code(),
      a.get_memory_fraction(0).code(),
  };
  int number = 0;
  for (const StatusCode code : codes) {
    ++number;
    if (code != StatusCode::kForked) return number;
  }
  a.retire_thread_streams();
  return 0;
}

void expect_parent_goes_on(Process& process) {
  const auto again = process.allocator->allocate(kLegacy, 4'194'304);
  ASSERT_TRUE(again.is_ok());
  EXPECT_EQ(again.value(), process.cached);
  process.allocator->validate();
}

TEST(C89, ChildGetsAClearStatusAndMakesNoDriverCall) {
  Process process;
  const int code = run_in_child([&process] {
    const std::uint64_t calls = process.sim.call_count();
    process.allocator->mark_forked();
    if (const int wrong = call_everything(process)) return wrong;
    const Status status = process.allocator->allocate(kLegacy, 512).status();
    if (status.message().find("forked") == std::string_view::npos) return 101;
    process.allocator.reset();
    return process.sim.call_count() == calls ? 0 : 102;
  });
  EXPECT_EQ(code, 0);
  expect_parent_goes_on(process);
}

TEST(C89, ChildThatDoesNothingEndsQuietly) {
  Process process;
  EXPECT_EQ(run_in_child([&process] {
              const std::uint64_t calls = process.sim.call_count();
              process.allocator->mark_forked();
              process.allocator.reset();
              return process.sim.call_count() == calls ? 0 : 102;
            }),
            0);
  expect_parent_goes_on(process);
}

// At the fork another thread is inside a free: it holds the device's lock and, in the driver, the
// simulator's own. The child inherits both locked, so it ends only if it touches neither.
TEST(C89, ChildDoesNotHangOnALockThatAnotherThreadHeld) {
  Process process;
  std::atomic<bool> is_inside{false};
  std::atomic<bool> may_go_on{false};
  const Address recorded = process.allocator->allocate(kLegacy, 4'194'304).value();
  const StreamRef other = process.sim.create_stream(0, sim::StreamKind::kNonBlocking);
  ASSERT_TRUE(process.allocator->record_stream(recorded, other.handle).is_ok());
  process.sim.fail_calls_if(
      DriverEntry::kRecordEvent,
      [&](Bytes) {
        is_inside = true;
        is_inside.notify_all();
        may_go_on.wait(false);
        return false;
      },
      DriverCode::kUnknown);
  std::thread thread([&] { EXPECT_TRUE(process.allocator->free(recorded).is_ok()); });
  is_inside.wait(false);
  const int code = run_in_child([&process] {
    process.allocator->mark_forked();
    if (const int wrong = call_everything(process)) return wrong;
    process.allocator.reset();
    return 0;
  });
  may_go_on = true;
  may_go_on.notify_all();
  thread.join();
  EXPECT_EQ(code, 0);
  process.sim.clear_faults();
  expect_parent_goes_on(process);
}

}  // namespace
}  // namespace quarry::test
