// SPDX-License-Identifier: Apache-2.0
// What peers may use: memory that is there and memory that comes, whether it grew or moved, or
// nothing of it where the driver refuses. The oracle sees each access by another device.
#include <string>
#include <utility>
#include <vector>

#include "core/thread_state.hpp"
#include "tests/support/scenario.hpp"

namespace quarry::test {
namespace {

class PeerAccessTest : public testing::TestWithParam<bool> {
 protected:
  static ScenarioOptions make_options() {
    ScenarioOptions options;
    options.sim.device_count = 3;
    options.config.expandable_segments = GetParam();
    options.config.reserve_slack = 0;
    return options;
  }
  // Whether work of the device may use the memory, which it then has been used by.
  bool reaches(DeviceId device, Address address) {
    const StreamRef peer{device, peers_[device]};
    const std::uint64_t before = s_.sim().hazard_count();
    static_cast<void>(s_.sim().user_orders({0, kS0}, peer));
    s_.sim().use(s_.lifetime_of(address), peer);
    static_cast<void>(s_.sim().user_orders(peer, {0, kS0}));
    const bool is_reached = s_.sim().hazard_count() == before;
    if (before == 0) s_.sim().clear_hazards();
    return is_reached;
  }
  StatusCode enable(DeviceId device, DeviceId peer) {
    const Status status = s_.allocator().enable_peer_access(device, peer);
    message_ = status.message();
    return status.code();
  }

  Scenario s_{make_options()};
  const StreamHandle peers_[3] = {kS0, s_.make_stream(1), s_.make_stream(2)};
  std::string message_;
};

TEST_P(PeerAccessTest, CoversWhatIsThereWhatGrowsAndWhatMoves) {
  std::vector<Address> blocks;
  for (int i = 0; i < 16; ++i)
    blocks.push_back(s_.malloc(2_MiB));
  EXPECT_FALSE(reaches(1, blocks[0]));
  EXPECT_EQ(enable(1, 0), StatusCode::kOk);
  EXPECT_TRUE(reaches(1, blocks[0]));
  EXPECT_TRUE(reaches(1, blocks[15]));
  EXPECT_FALSE(reaches(2, blocks[0]));
  EXPECT_TRUE(reaches(1, s_.malloc(64_MiB)));
  for (std::size_t i = 0; i < blocks.size(); i += 2)
    s_.free(blocks[i]);
  const Address moved = s_.malloc(16_MiB);
  EXPECT_EQ(s_.stats().extents_moved, GetParam() ? 8 : 0);
  EXPECT_TRUE(reaches(1, moved));
  EXPECT_FALSE(reaches(2, moved));
  EXPECT_EQ(enable(2, 0), StatusCode::kOk);
  EXPECT_TRUE(reaches(2, moved));
}

TEST_P(PeerAccessTest, IsOfOneDirection) {
  const Address there = s_.malloc(4_MiB, StreamRef{1, kS0});
  EXPECT_EQ(enable(1, 0), StatusCode::kOk);
  const std::uint64_t before = s_.sim().hazard_count();
  s_.sim().use(s_.lifetime_of(there), {0, kS0});
  EXPECT_EQ(s_.sim().hazard_count(), before + 1);
  s_.sim().clear_hazards();
}

TEST_P(PeerAccessTest, CostsAGrowthNoCallMore) {
  EXPECT_EQ(enable(1, 0), StatusCode::kOk);
  EXPECT_EQ(enable(2, 0), StatusCode::kOk);
  s_.sim().reset_call_counts();
  s_.malloc(64_MiB);
  EXPECT_EQ(s_.calls(DriverEntry::kSetAccess), GetParam() ? 1u : 0u);
}

TEST_P(PeerAccessTest, MayBeEnabledAgain) {
  const Address block = s_.malloc(4_MiB);
  EXPECT_EQ(enable(1, 0), StatusCode::kOk);
  EXPECT_EQ(enable(1, 0), StatusCode::kOk);
  EXPECT_TRUE(reaches(1, block));
}

TEST_P(PeerAccessTest, RefusesDevicesThatThereAreNotAndItself) {
  for (const auto& [device, peer] : {std::pair{1, 1}, {3, 0}, {0, 3}, {-1, 0}, {0, -1}})
    EXPECT_EQ(enable(device, peer), StatusCode::kInvalidArgument) << device << " " << peer;
  s_.sim().set_callback_thread(true);
  {
    DriverCallbackScope scope;
    EXPECT_EQ(enable(1, 0), StatusCode::kBusy);
  }
  s_.sim().set_callback_thread(false);
}

// Memory in four runs, with holes between them.
TEST_P(PeerAccessTest, IsAllOrNothingWhicheverCallFails) {
  std::vector<Address> blocks;
  for (int i = 0; i < 8; ++i)
    blocks.push_back(s_.malloc(20_MiB));
  for (std::size_t i = 1; i < blocks.size(); i += 2)
    s_.free(blocks[i]);
  EXPECT_EQ(s_.empty_cache(), StatusCode::kOk);
  const auto fail = [&](DriverEntry entry, std::uint64_t k) {
    SCOPED_TRACE(std::string(get_name(entry)) + " " + std::to_string(k));
    s_.sim().fail_call(entry, k, DriverCode::kUnknown);
    EXPECT_EQ(enable(1, 0), StatusCode::kDriverError);
    EXPECT_NE(message_.find("access of device 1 to memory of device 0"), std::string::npos);
    s_.sim().clear_faults();
    for (std::size_t i = 0; i < blocks.size(); i += 2)
      EXPECT_FALSE(reaches(1, blocks[i]));
    const Address later = s_.malloc(20_MiB);
    EXPECT_FALSE(reaches(1, later));
    s_.free(later);
    EXPECT_EQ(s_.empty_cache(), StatusCode::kOk);
  };
  fail(DriverEntry::kEnablePeerAccess, 1);
  for (std::uint64_t k = 1; k <= (GetParam() ? 4u : 0u); ++k)
    fail(DriverEntry::kSetAccess, k);
  EXPECT_EQ(enable(1, 0), StatusCode::kOk);
  for (std::size_t i = 0; i < blocks.size(); i += 2)
    EXPECT_TRUE(reaches(1, blocks[i]));
}

INSTANTIATE_TEST_SUITE_P(Segments, PeerAccessTest, testing::Bool(),
                         [](const auto& tested) { return tested.param ? "Expandable" : "Plain"; });

}  // namespace
}  // namespace quarry::test
