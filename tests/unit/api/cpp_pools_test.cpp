// SPDX-License-Identifier: Apache-2.0
// Private pools in C++, over the shared library and the simulated device, as any program has them.
#include <gtest/gtest.h>

#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include "quarry/quarry.hpp"

namespace {

using quarry::Checkpoint;
using quarry::Pool;
using quarry::PoolScope;
using quarry::UniqueBlock;

static_assert(!std::is_copy_constructible_v<Pool>);
static_assert(std::is_nothrow_move_constructible_v<Pool>);
static_assert(std::is_nothrow_move_assignable_v<Pool>);
static_assert(!std::is_move_constructible_v<PoolScope>);
static_assert(!std::is_copy_constructible_v<Checkpoint>);
static_assert(std::is_nothrow_move_constructible_v<Checkpoint>);
static_assert(std::is_nothrow_move_assignable_v<Checkpoint>);

const auto kSide = reinterpret_cast<quarry_stream>(2);

TEST(CppPools, APoolIsHeldAsLongAsItLives) {
  quarry_pool handle = QUARRY_POOL_DEFAULT;
  {
    Pool pool(0);
    handle = pool.get();
    EXPECT_TRUE(pool);
    Pool moved(std::move(pool));
    EXPECT_FALSE(pool);  // NOLINT(bugprone-use-after-move): the moved-from state is the claim
    Pool second = Pool::retain(handle);
    EXPECT_EQ(moved.get_stats().use_count, 2);
    second.reset();
    second.reset();
    EXPECT_EQ(moved.get_stats().use_count, 1);
    second = std::move(moved);
    EXPECT_EQ(second.get(), handle);
  }
  EXPECT_THROW(Pool::retain(handle), quarry::Error);
  EXPECT_THROW(Pool(99), quarry::Error);
  EXPECT_THROW(Pool().trim(), quarry::Error);
}

TEST(CppPools, ABlockOfAPoolOwnsItselfAndMayOutliveThePool) {
  UniqueBlock block;
  {
    const Pool pool(0);
    block = pool.allocate(1000, nullptr);
    EXPECT_EQ(block.bytes(), 1000u);
    EXPECT_EQ(pool.get_stats().allocated_blocks, 1);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pool.allocate(1, nullptr, 65536).data()) % 65536,
              0u);
    EXPECT_EQ(pool.get_stats().allocated_blocks, 1);
    EXPECT_FALSE(pool.allocate(0, nullptr));
    pool.set_limit(0);
    EXPECT_THROW(static_cast<void>(pool.allocate(64 << 20, nullptr)), quarry::OutOfMemory);
  }
  EXPECT_EQ(quarry::get_block_info(block.data()).requested_bytes, 1000u);
}

TEST(CppPools, AScopeEndsAlsoByAnException) {
  const Pool pool(0);
  UniqueBlock inside;
  try {
    const auto scope = PoolScope::for_thread(pool);
    inside = UniqueBlock(1000, 0, nullptr);
    EXPECT_THROW(static_cast<void>(PoolScope::for_thread(pool)), quarry::Error);
    throw std::runtime_error("out of the scope");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(pool.get_stats().allocated_blocks, 1);
  const UniqueBlock outside(1000, 0, nullptr);
  EXPECT_EQ(pool.get_stats().allocated_blocks, 1);
  EXPECT_EQ(quarry_pool_end(pool.get()), QUARRY_ERROR_INVALID_ARGUMENT);
}

TEST(CppPools, ScopesAreForStreamsCapturesAndFilters) {
  const Pool pool(0);
  const auto count = [&] {
    const UniqueBlock on_side(1000, 0, kSide);
    const UniqueBlock on_default(1000, 0, nullptr);
    return pool.get_stats().allocated_blocks;
  };
  {
    const auto scope = PoolScope::for_stream(pool, kSide);
    EXPECT_EQ(count(), 1);
  }
  {
    const auto scope = PoolScope::for_capture(pool, kSide);
    EXPECT_EQ(count(), 0);  // nothing captures
  }
  int asked = 0;
  {
    const auto scope = PoolScope::for_filter(pool, [&asked](quarry_stream stream) {
      ++asked;
      return stream == kSide;
    });
    EXPECT_EQ(count(), 1);
  }
  EXPECT_EQ(count(), 0);
  EXPECT_EQ(asked, 2);
}

TEST(CppPools, FunctionsBehindAPoolLiveUntilTheLastSegment) {
  int frees = 0;
  int unused = 0;
  UniqueBlock block;
  {
    Pool::Options options;
    options.allocate = [](std::size_t, int device, quarry_stream) {
      return device == 0 ? reinterpret_cast<void*>(std::uintptr_t{1} << 41) : nullptr;
    };
    options.free = [&frees](void*, std::size_t bytes, int, quarry_stream) {
      EXPECT_EQ(bytes, std::size_t{2} << 20);
      ++frees;
    };
    options.on_unused = [&unused] { ++unused; };
    const Pool pool(0, std::move(options));
    block = pool.allocate(1000, nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block.data()), std::uintptr_t{1} << 41);
  }
  EXPECT_EQ(frees, 0);
  block.reset();
  EXPECT_EQ(frees, 1);
  EXPECT_EQ(unused, 1);
}

TEST(CppPools, ACheckpointBringsBackWhatBlocksOwnedThen) {
  Pool pool(0);
  UniqueBlock kept = pool.allocate(1000, nullptr);
  UniqueBlock freed = pool.allocate(2000, nullptr);
  void* const address = freed.data();
  Checkpoint checkpoint(pool);
  freed.reset();
  UniqueBlock stale = pool.allocate(4 << 20, nullptr);
  {
    const Checkpoint::Restored restored = checkpoint.restore();
    EXPECT_EQ(restored.stale, std::vector<void*>{stale.data()});
    EXPECT_EQ(restored.kept, std::vector<void*>{kept.data()});
    ASSERT_EQ(restored.revived.size(), 1u);
    EXPECT_EQ(restored.revived[0].data(), address);
    EXPECT_EQ(restored.revived[0].bytes(), 2000u);
    EXPECT_EQ(pool.get_stats().allocated_blocks, 2);
  }
  EXPECT_EQ(pool.get_stats().allocated_blocks, 1);
  const UniqueBlock again = pool.allocate(4 << 20, nullptr);
  EXPECT_EQ(again.data(), stale.data());
  stale.reset();  // does nothing to the block of now
  EXPECT_EQ(pool.get_stats().allocated_blocks, 2);
  pool.reset();
  EXPECT_THROW(checkpoint.restore(), quarry::Error);
  EXPECT_THROW(Checkpoint{pool}, quarry::Error);
}

TEST(CppPools, OptionsThatAreWrongThrowAndCallNobody) {
  int unused = 0;
  Pool::Options options;
  options.free = [](void*, std::size_t, int, quarry_stream) {};
  options.on_unused = [&unused] { ++unused; };
  EXPECT_THROW(Pool(0, options), quarry::Error);
  EXPECT_EQ(unused, 0);
  options.free = nullptr;
  options.no_split = options.no_recycle = options.use_on_oom = true;
  options.limit_bytes = 4 << 20;
  {
    const Pool pool(0, options);
    EXPECT_EQ(pool.get_stats().limit_bytes, 4u << 20);
    const UniqueBlock first = pool.allocate(1000, nullptr);
    const UniqueBlock second = pool.allocate(1000, nullptr);
    EXPECT_EQ(pool.get_stats().segments, 2);
  }
}

}  // namespace
