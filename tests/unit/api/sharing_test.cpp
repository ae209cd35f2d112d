// SPDX-License-Identifier: Apache-2.0
// The C API over memory that others use too, served by the allocator and under the kill switch:
// what works, and every way to get it wrong.
#include "quarry/quarry_sharing.h"

#include "tests/unit/api/api_fixture.hpp"

namespace quarry {
namespace {

using testing_support::ApiTest;
using testing_support::error_says;

enum class Mode { kPlain, kExpandable, kDisabled };

class SharingApi : public ApiTest, public testing::WithParamInterface<Mode> {
 protected:
  void SetUp() override {
    ProcessOptions options;
    options.is_disabled = GetParam() == Mode::kDisabled;
    if (GetParam() == Mode::kExpandable) options.conf = "segments:expandable";
    start(options);
  }
  bool reaches(DeviceId device, void* ptr) {
    const std::uint64_t before = sim().hazard_count();
    sim().use(sim::MemoryRange{reinterpret_cast<Address>(ptr), 512},
              {device, StreamHandle::kLegacy});
    return sim().hazard_count() == before;
  }
};

TEST_P(SharingApi, APeerReachesWhatIsThereAndWhatComes) {
  void* const before = allocate(4 << 20);
  EXPECT_FALSE(reaches(1, before));
  EXPECT_EQ(quarry_enable_peer_access(1, 0), QUARRY_OK) << quarry_get_last_error();
  EXPECT_TRUE(reaches(1, before));
  EXPECT_TRUE(reaches(1, allocate(64 << 20)));
  EXPECT_FALSE(reaches(0, allocate(4 << 20, 1))) << "the other direction";
  EXPECT_EQ(quarry_enable_peer_access(1, 0), QUARRY_OK);
}

TEST_P(SharingApi, WrongDevicesAndRefusalsAreTold) {
  EXPECT_EQ(quarry_enable_peer_access(0, 0), QUARRY_ERROR_INVALID_ARGUMENT);
  EXPECT_TRUE(error_says("device and peer are both 0"));
  EXPECT_EQ(quarry_enable_peer_access(0, 2), QUARRY_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(quarry_enable_peer_access(-1, 0), QUARRY_ERROR_INVALID_ARGUMENT);
  sim().fail_call(DriverEntry::kEnablePeerAccess, 1, static_cast<DriverCode>(217));
  EXPECT_EQ(quarry_enable_peer_access(1, 0), QUARRY_ERROR_DRIVER);
  EXPECT_TRUE(error_says("217"));
  EXPECT_EQ(quarry_driver_callback_begin(), QUARRY_OK);
  EXPECT_EQ(quarry_enable_peer_access(1, 0), QUARRY_ERROR_BUSY);
  EXPECT_EQ(quarry_driver_callback_end(), QUARRY_OK);
}

TEST_P(SharingApi, APinnedBlockThatIsFreedStaysUntilItIsUnpinned) {
  void* const block = allocate(8 << 20);
  EXPECT_EQ(quarry_pin(block, 8 << 20), QUARRY_OK);
  EXPECT_EQ(quarry_pin(block, 8 << 20), QUARRY_OK);
  const auto registered =
      sim().register_memory({reinterpret_cast<Address>(block), Bytes{8} << 20});
  EXPECT_GE(stat("pinned_bytes"), 8 << 20);
  quarry_stats stats = {};
  stats.struct_size = sizeof(stats);
  EXPECT_EQ(quarry_get_stats(0, &stats), QUARRY_OK);
  EXPECT_EQ(stats.pinned_bytes, stat("pinned_bytes"));
  EXPECT_EQ(quarry_free_checked(block), QUARRY_OK);
  EXPECT_EQ(quarry_unpin(block, 8 << 20), QUARRY_OK);
  EXPECT_EQ(quarry_empty_cache(0), QUARRY_OK);
  EXPECT_GE(stat("reserved_bytes.all.current"), 8 << 20);
  EXPECT_EQ(sim().hazard_count(), 0u);
  sim().deregister_memory(registered);
  EXPECT_EQ(quarry_unpin(block, 8 << 20), QUARRY_OK);
  EXPECT_EQ(stat("pinned_bytes"), 0);
  EXPECT_EQ(quarry_empty_cache(0), QUARRY_OK);
  EXPECT_EQ(stat("reserved_bytes.all.current"), 0);
}

TEST_P(SharingApi, WhatIsNoRangeOfALiveBlockIsNotPinned) {
  char* const block = static_cast<char*>(allocate(1 << 20));
  EXPECT_EQ(quarry_pin(block, 0), QUARRY_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(quarry_pin(nullptr, 512), QUARRY_ERROR_INVALID_POINTER);
  EXPECT_EQ(quarry_pin(block, ~std::size_t{0}), QUARRY_ERROR_INVALID_POINTER);
  EXPECT_EQ(quarry_pin(block + 4096, 1 << 20), QUARRY_ERROR_INVALID_POINTER);
  EXPECT_TRUE(error_says("not inside one live block"));
  EXPECT_EQ(quarry_unpin(block, 512), QUARRY_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(quarry_pin(block + 4096, 512), QUARRY_OK);
  EXPECT_EQ(quarry_unpin(block, 512), QUARRY_ERROR_INVALID_ARGUMENT);
  EXPECT_TRUE(error_says("the range that was given to pin"));
  EXPECT_EQ(quarry_unpin(block + 4096, 512), QUARRY_OK);
  quarry_free(block);
  EXPECT_EQ(quarry_pin(block, 512), QUARRY_ERROR_INVALID_POINTER);
  EXPECT_EQ(stat("invalid_frees"), 0);
}

TEST_P(SharingApi, AShutdownGivesPinnedMemoryBack) {
  void* const block = allocate(8 << 20);
  EXPECT_EQ(quarry_pin(block, 8 << 20), QUARRY_OK);
  quarry_free(block);
}

INSTANTIATE_TEST_SUITE_P(Modes, SharingApi,
                         testing::Values(Mode::kPlain, Mode::kExpandable, Mode::kDisabled),
                         [](const auto& tested) {
                           return std::string(tested.param == Mode::kPlain        ? "Plain"
                                              : tested.param == Mode::kExpandable ? "Expandable"
                                                                                  : "Disabled");
                         });

}  // namespace
}  // namespace quarry
