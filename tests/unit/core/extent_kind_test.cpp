// SPDX-License-Identifier: Apache-2.0
// Of which kind extents are: what was asked for, the next weaker kind where the driver refuses it,
// and never another than is asked for now. The simulated device says what lies behind an address.
#include "core/extent_kind.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "tests/support/scenario.hpp"

namespace quarry::test {
namespace {

using HandleType = ExtentKind::HandleType;

constexpr ExtentKind kPlainKind{HandleType::kNone, false};
constexpr ExtentKind kRdma{HandleType::kNone, true};
constexpr ExtentKind kFd{HandleType::kFileDescriptor, false};
constexpr ExtentKind kFdRdma{HandleType::kFileDescriptor, true};
constexpr ExtentKind kFabric{HandleType::kFabric, false};
constexpr ExtentKind kFabricRdma{HandleType::kFabric, true};

TEST(ChooseKindTest, WeakensStepByStepAndGivesRdmaUpFirst) {
  DeviceProperties all;
  all.has_rdma = all.has_fd_handles = true;
  const std::vector<ExtentKind> order = {kFabricRdma, kFabric, kFdRdma, kFd, kRdma, kPlainKind};
  std::vector<ExtentKind> refused;
  for (const ExtentKind& kind : order) {
    EXPECT_EQ(choose_kind(kFabricRdma, all, refused), kind) << describe(kind);
    refused.push_back(kind);
  }
  EXPECT_EQ(choose_kind(kFabricRdma, all, refused), kPlainKind) << "there is none below it";
  EXPECT_EQ(choose_kind(kFd, all, {}), kFd);
  EXPECT_EQ(choose_kind(kFd, all, std::vector{kFd}), kPlainKind) << "RDMA was not asked for";
}

TEST(ChooseKindTest, LeavesOutWhatTheDeviceCannot) {
  const DeviceProperties nothing;
  EXPECT_EQ(choose_kind(kFabricRdma, nothing, {}), kFabric) << "only the driver knows of fabric";
  EXPECT_EQ(choose_kind(kFabricRdma, nothing, std::vector{kFabric}), kPlainKind);
  EXPECT_EQ(choose_kind(kFdRdma, nothing, {}), kPlainKind);
  DeviceProperties some;
  some.has_fd_handles = true;
  EXPECT_EQ(choose_kind(kFdRdma, some, {}), kFd);
}

TEST(ChooseKindTest, KindsHaveNames) {
  EXPECT_EQ(describe(kFabricRdma), "fabric handles, rdma");
  EXPECT_EQ(describe(kFd), "posix_fd handles");
  EXPECT_EQ(describe(kPlainKind), "no handles");
}

class ExtentKindTest : public testing::TestWithParam<bool> {
 protected:
  static ScenarioOptions make_options(HandleType type, bool rdma) {
    ScenarioOptions options = ScenarioOptions::with_expandable();
    options.config.thread_cache = GetParam();
    options.config.extent_handle_types = type;
    options.config.rdma = rdma;
    return options;
  }
  static void set_kind(Scenario& s, HandleType type, bool rdma) {
    s.configure([type, rdma](Config& config) {
      config.extent_handle_types = type;
      config.rdma = rdma;
    });
  }
  static ExtentKind kind_of(Scenario& s, Address address) {
    return s.sim().find_extent_kind(address).value();
  }
};

TEST_P(ExtentKindTest, IsWhatTheSettingsSay) {
  for (const ExtentKind& kind : {kPlainKind, kRdma, kFd, kFdRdma}) {
    Scenario s(make_options(kind.handle_type, kind.gpu_direct_rdma));
    EXPECT_EQ(kind_of(s, s.malloc(20_MiB)), kind);
    EXPECT_EQ(kind_of(s, s.malloc(4096)), kind);
  }
  Scenario s(ScenarioOptions::with_expandable());
  EXPECT_EQ(kind_of(s, s.malloc(4096)), kRdma) << "by default";
}

TEST_P(ExtentKindTest, IsTheNextWeakerWhereTheDriverRefusesItWithOneLineInTheLog) {
  testing::internal::CaptureStderr();
  {
    Scenario s(make_options(HandleType::kFabric, true));  // which the simulated driver refuses
    EXPECT_EQ(kind_of(s, s.malloc(20_MiB)), kFdRdma);
    EXPECT_EQ(kind_of(s, s.malloc(4096)), kFdRdma);
    EXPECT_EQ(s.stats().segment.all.current, 2) << "no range for a kind that there is not";
    s.sim().reset_call_counts();
    EXPECT_NE(s.malloc(2_MiB), 0u);
    EXPECT_EQ(s.calls(DriverEntry::kCreateExtent), 1u) << "what was refused is not asked again";
  }
  const std::string log = testing::internal::GetCapturedStderr();
  const std::size_t first = log.find("event=extent_kind_refused");
  ASSERT_NE(first, std::string::npos) << log;
  EXPECT_NE(log.find("wanted=\"fabric handles, rdma\" made=\"posix_fd handles, rdma\""),
            std::string::npos)
      << log;
  EXPECT_EQ(log.find("event=extent_kind_refused", first + 1), std::string::npos) << log;
}

TEST_P(ExtentKindTest, IsRefusedByCodesThatMeanItAlone) {
  for (const DriverCode code : {DriverCode::kNotSupported, DriverCode::kNotPermitted}) {
    Scenario s(make_options(HandleType::kFileDescriptor, true));
    s.sim().fail_call(DriverEntry::kCreateExtent, 1, code);
    EXPECT_EQ(kind_of(s, s.malloc(20_MiB)), kFd);
  }
  Scenario s(make_options(HandleType::kFileDescriptor, true));
  s.sim().fail_call(DriverEntry::kCreateExtent, 1, DriverCode::kOutOfMemory);
  EXPECT_EQ(kind_of(s, s.malloc(20_MiB)), kFdRdma);
  s.sim().fail_call(DriverEntry::kCreateExtent, 1, DriverCode::kUnknown);
  EXPECT_EQ(s.malloc(20_MiB), 0u);
  EXPECT_EQ(kind_of(s, s.malloc(20_MiB)), kFdRdma);
  // With nothing weaker left it is an error like any other.
  Scenario weakest(make_options(HandleType::kNone, false));
  weakest.sim().fail_call(DriverEntry::kCreateExtent, 1, DriverCode::kNotSupported);
  EXPECT_EQ(weakest.malloc(20_MiB), 0u);
  EXPECT_EQ(weakest.last_code(), StatusCode::kDriverError);
}

// The second extent of a growth, and all later ones: what the first one was goes back.
TEST_P(ExtentKindTest, IsTheSameThroughoutABlockThoughTheDriverChangesItsMind) {
  Scenario s(make_options(HandleType::kFileDescriptor, false));
  const Address before = s.malloc(2_MiB);
  s.sim().fail_call(DriverEntry::kCreateExtent, 2, DriverCode::kNotPermitted);
  const Address block = s.malloc(6_MiB);
  ASSERT_NE(block, 0u);
  for (Bytes offset = 0; offset < 6_MiB; offset += 2_MiB)
    EXPECT_EQ(kind_of(s, block + offset), kPlainKind);
  EXPECT_EQ(kind_of(s, before), kFd);
  EXPECT_EQ(s.reserved(), 8_MiB);
}

TEST_P(ExtentKindTest, OfOldMemoryServesNobodyAfterAChange) {
  Scenario s(make_options(HandleType::kNone, false));
  const StreamHandle side = s.make_stream();
  std::vector<Address> held;
  for (const Bytes size : {Bytes{512}, Bytes{4096}, 2_MiB, 20_MiB}) {
    for (int i = 0; i < 8; ++i) {
      const Address cached = s.malloc(size, i % 2 == 0 ? kS0 : side);
      held.push_back(s.malloc(size, i % 2 == 0 ? kS0 : side));
      s.free(cached);
    }
  }
  set_kind(s, HandleType::kFileDescriptor, true);
  s.allocator().validate();
  for (const Address block : held)
    s.free(block);  // where they were parked before, if anywhere
  s.allocator().validate();
  for (const Bytes size : {Bytes{512}, Bytes{4096}, 2_MiB, 20_MiB}) {
    for (int i = 0; i < 4; ++i)
      EXPECT_EQ(kind_of(s, s.malloc(size, i % 2 == 0 ? kS0 : side)), kFdRdma) << size;
  }
}

TEST_P(ExtentKindTest, OfOldMemoryGoesBackWhenItIsIdle) {
  Scenario s(make_options(HandleType::kNone, false));
  const Address cached = s.malloc(20_MiB);
  const Address kept = s.malloc(20_MiB);
  s.free(cached);
  set_kind(s, HandleType::kFileDescriptor, false);
  EXPECT_EQ(s.reserved(), 40_MiB) << "a change of settings calls no driver";
  EXPECT_NE(s.malloc(2_MiB), 0u);
  // What the host has not seen done at that growth goes at the next one.
  EXPECT_NE(s.malloc(4_MiB), 0u);
  EXPECT_EQ(s.reserved(), 26_MiB);
  EXPECT_EQ(kind_of(s, kept), kPlainKind);
  s.free(kept);
  EXPECT_NE(s.malloc(6_MiB), 0u);
  EXPECT_NE(s.malloc(8_MiB), 0u);
  EXPECT_EQ(s.reserved(), 20_MiB);
  EXPECT_EQ(s.sim().get_holdings(0).reservations, 1u) << "the old addresses are gone, too";
}

TEST_P(ExtentKindTest, OfOldMemoryMayBeAskedForAgain) {
  Scenario s(make_options(HandleType::kNone, false));
  const Address first = s.malloc(20_MiB);
  const Address kept = s.malloc(20_MiB);
  s.free(first);
  set_kind(s, HandleType::kFileDescriptor, false);
  set_kind(s, HandleType::kNone, false);
  s.allocator().validate();
  s.sim().reset_call_counts();
  EXPECT_EQ(s.malloc(20_MiB), first);
  EXPECT_EQ(s.calls(DriverEntry::kCreateExtent), 0u);
  s.free(kept);
}

TEST_P(ExtentKindTest, ARefusalIsForgottenWhenSomethingElseIsAskedFor) {
  Scenario s(make_options(HandleType::kFileDescriptor, false));
  s.sim().fail_call(DriverEntry::kCreateExtent, 1, DriverCode::kNotPermitted);
  EXPECT_EQ(kind_of(s, s.malloc(2_MiB)), kPlainKind);
  EXPECT_EQ(kind_of(s, s.malloc(2_MiB)), kPlainKind);
  set_kind(s, HandleType::kNone, false);
  set_kind(s, HandleType::kFileDescriptor, false);
  EXPECT_EQ(kind_of(s, s.malloc(2_MiB)), kFd);
}

// Idle memory of the old kind would be enough, by moves; and beside it nothing may be reserved.
TEST_P(ExtentKindTest, OfOldMemoryDoesNotMove) {
  ScenarioOptions options = make_options(HandleType::kNone, false);
  options.config.reserve_slack = 0;
  Scenario s(options);
  std::vector<Address> blocks;
  for (int i = 0; i < 16; ++i)
    blocks.push_back(s.malloc(2_MiB));
  for (std::size_t i = 0; i < blocks.size(); i += 2)
    s.free(blocks[i]);
  set_kind(s, HandleType::kFileDescriptor, false);
  const Address block = s.malloc(16_MiB);
  EXPECT_EQ(kind_of(s, block), kFd);
  EXPECT_EQ(kind_of(s, block + 14_MiB), kFd);
  EXPECT_EQ(s.stats().extents_moved, 0);
}

TEST_P(ExtentKindTest, OfOldMemoryIsNoReasonForAFalseOutOfMemory) {
  ScenarioOptions options = make_options(HandleType::kNone, false);
  options.sim.physical_bytes = 256_MiB;
  Scenario s(options);
  const StreamHandle side = s.make_stream();
  const Address busy = s.malloc(200_MiB, side);
  s.busy(side);
  s.free(busy);
  set_kind(s, HandleType::kFileDescriptor, false);
  EXPECT_EQ(kind_of(s, s.malloc(200_MiB)), kFd);
  EXPECT_TRUE(s.is_idle(side)) << "it was waited for";
}

TEST_P(ExtentKindTest, PinnedMemoryStaysWhatItIs) {
  Scenario s(make_options(HandleType::kNone, false));
  const Address block = s.malloc(20_MiB);
  EXPECT_TRUE(s.allocator().pin(block, 20_MiB).is_ok());
  const auto registered = s.sim().register_memory({block, 20_MiB});
  s.free(block);
  set_kind(s, HandleType::kFileDescriptor, false);
  EXPECT_NE(s.malloc(2_MiB), block);
  EXPECT_EQ(s.empty_cache(), StatusCode::kOk);
  EXPECT_EQ(s.reserved(), 22_MiB);
  s.sim().deregister_memory(registered);
  EXPECT_TRUE(s.allocator().unpin(block, 20_MiB).is_ok());
  EXPECT_NE(s.malloc(4_MiB), 0u);
  EXPECT_EQ(s.reserved(), 6_MiB);
}

TEST_P(ExtentKindTest, APoolThatKeepsItsMemoryKeepsThatOfAnOldKindUntilItIsTrimmed) {
  constexpr PoolId kPool{0, 5};
  Scenario s(make_options(HandleType::kNone, false));
  PoolOptions pool;
  pool.no_recycle = true;
  EXPECT_TRUE(s.allocator().retain_pool(0, kPool, pool).is_ok());
  s.free(s.malloc_in_pool(20_MiB, kS0, kPool));
  set_kind(s, HandleType::kFileDescriptor, false);
  EXPECT_EQ(kind_of(s, s.malloc_in_pool(2_MiB, kS0, kPool)), kFd);
  EXPECT_NE(s.malloc_in_pool(4_MiB, kS0, kPool), 0u);
  EXPECT_EQ(s.reserved(), 26_MiB);
  EXPECT_TRUE(s.allocator().trim_pool(0, kPool).is_ok());
  EXPECT_EQ(s.reserved(), 6_MiB);
}

INSTANTIATE_TEST_SUITE_P(Modes, ExtentKindTest, testing::Bool(),
                         [](const auto& tested) { return tested.param ? "Magazines" : "Locked"; });

}  // namespace
}  // namespace quarry::test
