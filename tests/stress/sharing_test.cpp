// SPDX-License-Identifier: Apache-2.0
// Threads that allocate, pin and free in expandable segments while the kind of extents changes, a
// peer is let in, and the cache is emptied. Whoever asks between two changes gets the kind that
// holds then; what is pinned stays: the oracle knows it as registered.
#include <atomic>
#include <thread>
#include <vector>

#include "tests/stress/stress_world.hpp"

namespace quarry::stress {
namespace {

using HandleType = ExtentKind::HandleType;

Config make_config(std::uint64_t change) {
  Config config;
  config.expandable_segments = true;
  const bool has_handles = change % 2 == 0;
  config.extent_handle_types = has_handles ? HandleType::kFileDescriptor : HandleType::kNone;
  config.rdma = change % 3 == 0;
  return config;
}

class Scene {
 public:
  Scene() {
    world.driver().set_hook([](DriverEntry) { std::this_thread::yield(); });
  }

  // Even: the settings of this change hold; odd: the next ones are being set.
  std::atomic<std::uint64_t> phase{0};
  std::atomic<std::uint64_t> checks{0};
  std::atomic<std::uint64_t> pins{0};
  std::atomic<bool> is_over{false};
  World world{512_MiB, 3, make_config(0), 2};

  void change(std::uint64_t number) {
    ++phase;
    world.allocator().configure(make_config(number));
    ++phase;
  }
  void churn(int number);

 private:
  std::optional<Held> allocate_checked(StreamRef stream, Bytes bytes);
};

std::optional<Held> Scene::allocate_checked(StreamRef stream, Bytes bytes) {
  const std::uint64_t before = phase;
  const auto held = world.allocate(stream, bytes);
  if (!held || before % 2 != 0 || phase != before) return held;
  const Config config = make_config(before / 2);
  EXPECT_EQ(world.sim().find_extent_kind(held->address),
            (ExtentKind{config.extent_handle_types, config.rdma}));
  ++checks;
  return held;
}

void Scene::churn(int number) {
  const StreamRef own = world.sim().create_stream(0, sim::StreamKind::kNonBlocking);
  model::Entropy entropy(static_cast<std::uint64_t>(number) + 1);
  while (!is_over) {
    std::vector<Held> held;
    for (int i = 0; i < 12; ++i) {
      const Bytes bytes = entropy.pick({Bytes{512}, Bytes{40'000}, Bytes{40'000}, 1_MiB, 5_MiB});
      if (const auto got = allocate_checked(own, bytes)) held.push_back(*got);
    }
    const bool has_pin = !held.empty() && entropy.chance(30);
    const Address pinned = has_pin ? held.back().address : 0;
    sim::RegistrationId registration{};
    if (has_pin) {
      EXPECT_TRUE(world.allocator().pin(pinned, 512).is_ok());
      registration = world.sim().register_memory({pinned, 512});
      ++pins;
    }
    for (const Held& block : held)
      world.free(block);
    if (!has_pin) continue;
    std::this_thread::yield();
    world.sim().deregister_memory(registration);
    EXPECT_TRUE(world.allocator().unpin(pinned, 512).is_ok());
  }
  EXPECT_TRUE(world.allocator().retire_stream(own).is_ok());
}

TEST(SharingStressTest, KindsChangeAndPinsHoldAmidTraffic) {
  Scene scene;
  World::run_threads(
      [&scene](int number) {
        if (number < kThreads) return scene.churn(number);
        Allocator& allocator = scene.world.allocator();
        for (std::uint64_t i = 1; i < 150 || scene.checks < 300 || scene.pins < 30; ++i) {
          scene.change(i);
          bool has_worked = true;
          if (i % 16 == 3) has_worked = allocator.enable_peer_access(1, 0).is_ok();
          if (i % 16 == 7) has_worked = allocator.empty_cache(0).is_ok();
          if (i % 16 == 11) allocator.validate();
          EXPECT_TRUE(has_worked);
          for (int turn = 0; turn < 20; ++turn)
            std::this_thread::yield();
        }
        scene.is_over = true;
      },
      kThreads + 1);
  EXPECT_EQ(scene.world.allocator().get_stats(0).value().pinned_bytes, 0);
  scene.world.finish();
}

}  // namespace
}  // namespace quarry::stress
