// SPDX-License-Identifier: Apache-2.0
// Code that is built for per-thread default streams (nvcc's option defines the macro): a stream of
// 0 means 2 in every function that takes one.
#define CUDA_API_PER_THREAD_DEFAULT_STREAM 1
#include <gtest/gtest.h>

#include "quarry/quarry.hpp"

namespace {

const auto kPerThread = reinterpret_cast<quarry_stream>(2);
const auto kExplicitLegacy = reinterpret_cast<quarry_stream>(1);

quarry_stream stream_of(void* ptr) {
  return quarry::get_block_info(ptr).stream;
}

TEST(PerThreadDefaultStream, ZeroMeansTheThreadsOwnStream) {
  void* ptr = nullptr;
  ASSERT_EQ(quarry_malloc(&ptr, 512, 0, nullptr), QUARRY_OK);
  EXPECT_EQ(stream_of(ptr), kPerThread);
  ASSERT_EQ(quarry_free_on_stream(ptr, nullptr), QUARRY_OK);
  ASSERT_EQ(quarry_malloc_aligned(&ptr, 512, 4096, 0, nullptr), QUARRY_OK);
  EXPECT_EQ(stream_of(ptr), kPerThread);
  EXPECT_EQ(quarry_record_stream(ptr, nullptr), QUARRY_OK);
  quarry_free(ptr);
  EXPECT_EQ(quarry_stream_retire(0, nullptr), QUARRY_OK);
}

TEST(PerThreadDefaultStream, OtherHandlesStayAsTheyAre) {
  void* ptr = nullptr;
  ASSERT_EQ(quarry_malloc(&ptr, 512, 0, kExplicitLegacy), QUARRY_OK);
  EXPECT_NE(stream_of(ptr), kPerThread);
  quarry_free(ptr);
}

TEST(PerThreadDefaultStream, PoolsFollow) {
  const quarry::Pool pool(0);
  void* ptr = nullptr;
  ASSERT_EQ(quarry_pool_malloc(pool.get(), &ptr, 512, nullptr), QUARRY_OK);
  EXPECT_EQ(stream_of(ptr), kPerThread);
  quarry_free(ptr);
  ASSERT_EQ(quarry_pool_malloc_aligned(pool.get(), &ptr, 512, 4096, nullptr), QUARRY_OK);
  EXPECT_EQ(stream_of(ptr), kPerThread);
  quarry_free(ptr);
  ASSERT_EQ(quarry_pool_begin_stream(pool.get(), nullptr), QUARRY_OK);
  const quarry::UniqueBlock routed(512, 0, kPerThread);
  EXPECT_EQ(pool.get_stats().allocated_blocks, 1);
  const quarry::UniqueBlock other(512, 0, kExplicitLegacy);
  EXPECT_EQ(pool.get_stats().allocated_blocks, 1);
  ASSERT_EQ(quarry_pool_end(pool.get()), QUARRY_OK);
  ASSERT_EQ(quarry_pool_begin_capture(pool.get(), nullptr), QUARRY_OK);
  ASSERT_EQ(quarry_pool_end(pool.get()), QUARRY_OK);
}

TEST(PerThreadDefaultStream, TheCppHeaderFollows) {
  quarry::UniqueBlock block(512, 0, nullptr);
  EXPECT_EQ(stream_of(block.data()), kPerThread);
}

}  // namespace
