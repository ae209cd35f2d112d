// SPDX-License-Identifier: Apache-2.0
// What other threads do while one climbs the last rung of the ladder and has let go of the lock:
// scripted, so that each race happens every time.
#include <thread>

#include "tests/stress/stress_world.hpp"

namespace quarry::stress {
namespace {

constexpr Bytes kBlock = 16_MiB;

// Runs `act` on a thread of its own, to its end, at the first call of that entry from now on.
void interrupt_once(World& world, DriverEntry at, const std::function<void()>& act) {
  world.driver().set_hook([&world, at, act](DriverEntry entry) {
    if (entry != at) return;
    world.driver().set_hook(nullptr);
    std::thread(act).join();
  });
}

// Device of four blocks; the other thread holds at most three, so one is always this thread's.
TEST(LastRungTest, BlocksThatBecomePendingDuringTheWaitAreWaitedForToo) {
  World world(4 * kBlock);
  const StreamRef other = world.shared_stream(0);
  const StreamRef own = world.shared_stream(1);
  const StreamRef side = world.shared_stream(2);
  Held first = world.allocate(other, kBlock).value();
  const Held second = world.allocate(other, kBlock).value();
  const Held pending = world.allocate(other, kBlock).value();
  const Held cached = world.allocate(other, kBlock).value();
  world.record(pending, other, side);
  world.free(pending);
  world.free(cached);
  std::vector<Held> others{second};
  interrupt_once(world, DriverEntry::kSynchronizeEvent, [&] {
    world.record(first, other, side);
    world.free(first);
    others.push_back(world.allocate(other, kBlock).value());
    others.push_back(world.allocate(other, kBlock).value());
  });
  const auto mine = world.allocate(own, kBlock);
  EXPECT_EQ(others.size(), 3u) << "the race did not happen";
  ASSERT_TRUE(mine.has_value()) << "a false out-of-memory";
  world.free(*mine);
  for (const Held& held : others)
    world.free(held);
  world.finish();
}

// A block that is freed while vacant segments go back is vacant itself, and goes back too.
TEST(LastRungTest, BlocksFreedDuringTheReleaseAreReleasedToo) {
  World world(2 * kBlock);
  const StreamRef other = world.shared_stream(0);
  const StreamRef own = world.shared_stream(1);
  const Held first = world.allocate(other, kBlock).value();
  const Held second = world.allocate(other, kBlock).value();
  world.free(second);
  interrupt_once(world, DriverEntry::kFree, [&] { world.free(first); });
  // Needs both blocks' room. The other thread holds nothing when this is answered.
  const auto mine = world.allocate(own, 2 * kBlock);
  ASSERT_TRUE(mine.has_value()) << "a false out-of-memory";
  world.free(*mine);
  world.finish();
}

}  // namespace
}  // namespace quarry::stress
