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

// The device may be waiting for what another thread launches after its next malloc.
TEST(LastRungTest, AThreadThatWaitsForTheDeviceKeepsNobodyFromGrowing) {
  World world(2 * kBlock + 4_MiB);
  const StreamRef other = world.shared_stream(0);
  const StreamRef own = world.shared_stream(1);
  const Held kept = world.allocate(other, kBlock).value();
  const Held pending = world.allocate(other, kBlock).value();
  world.record(pending, other, world.shared_stream(2));
  world.free(pending);
  std::optional<Held> grown;
  interrupt_once(world, DriverEntry::kSynchronizeEvent,
                 [&] { grown = world.allocate(other, 512); });
  const auto mine = world.allocate(own, kBlock);
  ASSERT_TRUE(grown.has_value());
  ASSERT_TRUE(mine.has_value());
  for (const Held& held : {kept, *grown, *mine})
    world.free(held);
  world.finish();
}

// Events cannot be made at first: the fence is sealed only after the round has waited.
TEST(LastRungTest, AFenceThatIsSealedLateIsWaitedForToo) {
  World world(2 * kBlock);
  const StreamRef own = world.shared_stream(0);
  const Held kept = world.allocate(own, kBlock).value();
  const Held pending = world.allocate(own, kBlock).value();
  world.record(pending, own, world.shared_stream(1));
  int failures_left = 6;
  world.sim().fail_calls_if(
      DriverEntry::kCreateEvent, [&failures_left](Bytes) { return failures_left-- > 0; },
      DriverCode::kUnknown);
  world.free(pending);
  const auto mine = world.allocate(own, kBlock);
  ASSERT_TRUE(mine.has_value()) << "a false out-of-memory";
  world.sim().clear_faults();
  world.free(kept);
  world.free(*mine);
  world.finish();
}

// A capture that begins and ends around the record takes the event along; its query says so, and
// the block then waits for a new one instead of for ever.
TEST(CaptureRaceTest, ABlockWhoseEventWasCapturedComesBack) {
  World world(4 * kBlock);
  const StreamRef own = world.shared_stream(0);
  const StreamRef side = world.shared_stream(1);
  const Held held = world.allocate(own, kBlock).value();
  world.record(held, own, side);
  world.driver().set_record_hook([&](HookedDriver::RecordMoment moment, StreamRef stream) {
    if (moment == HookedDriver::RecordMoment::kBefore) {
      static_cast<void>(world.sim().begin_capture(stream, CaptureMode::kRelaxed));
    } else {
      static_cast<void>(world.sim().end_capture(stream));
      world.driver().set_record_hook(nullptr);
    }
  });
  world.free(held);
  world.sim().advance_by_us(1000);
  for (int i = 0; i < 3; ++i)
    EXPECT_TRUE(world.allocator().empty_cache(0).is_ok());
  EXPECT_EQ(world.allocator().get_stats(0).value().pending_bytes, 0);
  world.finish();
}

}  // namespace
}  // namespace quarry::stress
