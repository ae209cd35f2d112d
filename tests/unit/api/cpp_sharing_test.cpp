// SPDX-License-Identifier: Apache-2.0
// Pins and peers in C++, over the shared library and the simulated device, as any program has
// them.
#include <gtest/gtest.h>

#include <cstdint>
#include <type_traits>
#include <utility>

#include "quarry/quarry.hpp"

namespace {

using quarry::Pin;
using quarry::UniqueBlock;

static_assert(!std::is_copy_constructible_v<Pin>);
static_assert(std::is_nothrow_move_constructible_v<Pin>);
static_assert(std::is_nothrow_move_assignable_v<Pin>);

std::int64_t pinned_bytes() {
  return quarry::get_stats(0).pinned_bytes;
}

TEST(CppSharing, MemoryIsPinnedAsLongAsThePinLives) {
  UniqueBlock block(std::size_t{8} << 20, 0, nullptr);
  {
    Pin pin(block);
    EXPECT_TRUE(pin);
    EXPECT_GE(pinned_bytes(), 8 << 20);
    Pin moved(std::move(pin));
    EXPECT_FALSE(pin);  // NOLINT(bugprone-use-after-move): the moved-from state is the claim
    Pin other(block.data(), 512);
    other = std::move(moved);
    block.reset();
    EXPECT_GE(pinned_bytes(), 8 << 20) << "it outlives the block";
  }
  EXPECT_EQ(pinned_bytes(), 0);
}

TEST(CppSharing, FailuresThrow) {
  const UniqueBlock block(4096, 0, nullptr);
  EXPECT_THROW(Pin(block.data(), std::size_t{1} << 30), quarry::Error);
  EXPECT_THROW(quarry::enable_peer_access(0, 0), quarry::Error);
  EXPECT_EQ(pinned_bytes(), 0);
}

}  // namespace
