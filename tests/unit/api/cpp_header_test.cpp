// SPDX-License-Identifier: Apache-2.0
// The C++ header over the shared library, on the simulated device as any program has it: through
// the environment (set by CMake: QUARRY_DRIVER=sim).
#include <gtest/gtest.h>

#include <string>
#include <type_traits>
#include <utility>

#include "quarry/quarry.hpp"

namespace {

using quarry::UniqueBlock;

static_assert(!std::is_copy_constructible_v<UniqueBlock>);
static_assert(std::is_nothrow_move_constructible_v<UniqueBlock>);
static_assert(std::is_nothrow_move_assignable_v<UniqueBlock>);
static_assert(!std::is_copy_constructible_v<quarry::DriverFreeGuard>);
static_assert(std::is_base_of_v<quarry::Error, quarry::OutOfMemory>);

constexpr std::size_t kMoreThanTheDevice = std::size_t{1} << 50;

std::int64_t live_blocks() {
  return quarry::get_stats(0).allocated_blocks;
}

TEST(CppHeader, ABlockIsFreedAtTheEndOfItsScope) {
  {
    UniqueBlock block(1000, 0, nullptr);
    EXPECT_TRUE(block);
    EXPECT_EQ(block.bytes(), 1000u);
    EXPECT_EQ(block.data_as<float>(), block.data());
    EXPECT_EQ(quarry::get_block_info(block.data()).bytes, 1024u);
    EXPECT_EQ(live_blocks(), 1);
  }
  EXPECT_EQ(live_blocks(), 0);
}

TEST(CppHeader, AMovedBlockHasOneOwner) {
  UniqueBlock a(1000, 4096, 0, nullptr);
  void* data = a.data();
  UniqueBlock b(std::move(a));
  EXPECT_FALSE(a);  // NOLINT(bugprone-use-after-move): the moved-from state is the claim
  EXPECT_EQ(b.data(), data);
  UniqueBlock c(2000, 0, nullptr);
  c = std::move(b);
  EXPECT_EQ(c.data(), data);
  EXPECT_EQ(live_blocks(), 1);
  c = UniqueBlock();
  EXPECT_EQ(live_blocks(), 0);
}

TEST(CppHeader, AReleasedBlockIsTheCallers) {
  UniqueBlock block(1000, 0, nullptr);
  void* ptr = block.release();
  EXPECT_FALSE(block);
  EXPECT_EQ(live_blocks(), 1);
  quarry_free(ptr);
}

TEST(CppHeader, ABlockCanBeFreedToAnotherStreamOrRecorded) {
  const auto stream = reinterpret_cast<quarry_stream>(2);
  UniqueBlock block(1000, 0, nullptr);
  block.record_stream(stream);
  block.reset_on_stream(stream);
  EXPECT_FALSE(block);
  EXPECT_EQ(live_blocks(), 0);
}

TEST(CppHeader, ZeroBytesMakeAnEmptyBlock) {
  UniqueBlock block(0, 0, nullptr);
  EXPECT_FALSE(block);
}

TEST(CppHeader, FailuresThrowWithCodeAndText) {
  try {
    UniqueBlock block(kMoreThanTheDevice, 0, nullptr);
    FAIL() << "1 PiB was served";
  } catch (const quarry::OutOfMemory& error) {
    EXPECT_EQ(error.code(), QUARRY_ERROR_OUT_OF_MEMORY);
    EXPECT_NE(std::string(error.what()).find("out of memory"), std::string::npos);
  }
  EXPECT_THROW(UniqueBlock(1000, 99, nullptr), quarry::Error);
  EXPECT_THROW(quarry::configure("foo_bar:1"), quarry::Error);
  EXPECT_EQ(live_blocks(), 0);
}

TEST(CppHeader, ConfigurationAndAllFiguresAreStrings) {
  quarry::configure("max_split_size_mb:64");
  EXPECT_NE(quarry::get_conf().find("max_split_size_mb:64,"), std::string::npos);
  quarry::configure("max_split_size_mb:unlimited");
  const auto all = quarry::get_all_stats(0);
  EXPECT_EQ(all.at("max_split_size"), -1);
  EXPECT_EQ(all.at("allocated_bytes.all.current"), 0);
}

TEST(CppHeader, ALimitScopeRestoresTheLimit) {
  {
    quarry::LimitScope limit(0, 1 << 20);
    EXPECT_THROW(UniqueBlock(64 << 20, 0, nullptr), quarry::OutOfMemory);
  }
  EXPECT_NO_THROW(UniqueBlock(64 << 20, 0, nullptr));
}

TEST(CppHeader, CallbacksLastAsLongAsTheirObject) {
  int reports = 0;
  int requests = 0;
  const auto fail = [] {
    EXPECT_THROW(UniqueBlock(kMoreThanTheDevice, 0, nullptr), quarry::OutOfMemory);
  };
  {
    auto on_oom = quarry::Callback::on_oom([&](const quarry_oom_report& report) {
      ++reports;
      EXPECT_EQ(report.reason, QUARRY_OOM_IMPOSSIBLE);
    });
    auto on_short = quarry::Callback::on_memory_short([&](int, std::uint64_t) {
      ++requests;
      return false;
    });
    auto moved = std::move(on_oom);
    fail();
  }
  fail();
  EXPECT_EQ(reports, 1);
  EXPECT_GE(requests, 1);
}

TEST(CppHeader, GuardsLockAndUnlock) {
  {
    quarry::DriverFreeGuard guard;
    quarry::DriverFreeGuard again;
  }
  EXPECT_EQ(quarry_driver_free_guard_unlock(), QUARRY_ERROR_INVALID_ARGUMENT);
  {
    quarry::DriverCallbackScope scope;
    EXPECT_THROW(UniqueBlock(512 << 20, 0, nullptr), quarry::Error);
  }
  EXPECT_EQ(quarry_driver_callback_end(), QUARRY_ERROR_INVALID_ARGUMENT);
}

}  // namespace
