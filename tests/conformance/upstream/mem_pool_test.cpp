// SPDX-License-Identifier: Apache-2.0
// Upstream's tests of MemPool, with their figures. Its pools keep what they have while they are
// held, which is Quarry's no_recycle; without it a pool that has vacant memory spares it before
// anybody gets an out-of-memory (EmptyPoolsSpareWhatTheyHave).
#include <latch>
#include <thread>

#include "tests/support/capture_scenario.hpp"

namespace quarry::test {
namespace {

constexpr Bytes kMb = 1'048'576;
constexpr PoolId kP1{0, 1};
constexpr PoolId kP2{0, 2};
constexpr PoolId kP3{0, 3};

class MemPoolTest : public testing::Test {
 protected:
  explicit MemPoolTest(Bytes cap = 1024 * kMb) : s_(cap) {}
  void retain(PoolId pool, bool use_on_oom = false, bool no_split = false) {
    PoolOptions options;
    options.no_recycle = true;
    options.use_on_oom = use_on_oom;
    options.no_split = no_split;
    s_.retain_pool(pool, options);
  }
  void begin(PoolId pool) {
    ASSERT_TRUE(s_.allocator().begin_pool({Route::Kind::kThread, 0, pool, {}, {}}).is_ok());
  }
  void end(PoolId pool) { ASSERT_TRUE(s_.allocator().end_pool(0, pool).is_ok()); }
  Address malloc_in(PoolId pool, Bytes bytes) {
    begin(pool);
    const Address block = s_.malloc(bytes, kS0);
    end(pool);
    return block;
  }
  std::int64_t segments(PoolId pool) { return s_.pool(pool).stats.segments.current; }

  CaptureScenario s_;
};

TEST_F(MemPoolTest, UseCountsFollowTheHolders) {
  retain(kP1);
  EXPECT_EQ(s_.pool(kP1).use_count, 1);
  s_.retain_pool(kP1);  // as PyTorch's context does
  begin(kP1);
  EXPECT_EQ(s_.pool(kP1).use_count, 2);
  EXPECT_NE(s_.malloc(kMb, kS0), 0u);
  EXPECT_NE(s_.malloc(kMb, kS0), 0u);
  EXPECT_EQ(segments(kP1), 1);
  EXPECT_NE(s_.malloc(kMb, kS0), 0u);
  EXPECT_EQ(segments(kP1), 2);
  end(kP1);
  s_.release_pool(kP1);
  EXPECT_EQ(s_.pool(kP1).use_count, 1);
}

TEST_F(MemPoolTest, NestedMemPool) {
  for (const PoolId pool : {kP1, kP2, kP3})
    retain(pool);
  begin(kP1);
  s_.malloc(20 * kMb, kS0);
  begin(kP2);
  s_.malloc(20 * kMb, kS0);
  begin(kP3);
  s_.malloc(20 * kMb, kS0);
  end(kP3);
  s_.malloc(20 * kMb, kS0);
  end(kP2);
  s_.malloc(20 * kMb, kS0);
  end(kP1);
  EXPECT_EQ(segments(kP1), 2);
  EXPECT_EQ(segments(kP2), 2);
  EXPECT_EQ(segments(kP3), 1);
}

TEST_F(MemPoolTest, EmptyCacheOfAnotherThreadLeavesAPoolInUse) {
  retain(kP1);
  s_.free(malloc_in(kP1, 20 * kMb));
  std::thread([&] { EXPECT_EQ(s_.empty_cache(), StatusCode::kOk); }).join();
  EXPECT_EQ(segments(kP1), 1);
}

TEST_F(MemPoolTest, ThreadsHaveAPoolEach) {
  retain(kP1);
  retain(kP2);
  std::latch both(2);
  const auto work = [&](PoolId own) {
    begin(own);
    both.arrive_and_wait();
    EXPECT_TRUE(s_.allocator().allocate({0, kS0}, 20 * kMb).is_ok());
    end(own);
  };
  std::thread first(work, kP1), second(work, kP2);
  first.join();
  second.join();
  EXPECT_EQ(segments(kP1), 1);
  EXPECT_EQ(segments(kP2), 1);
}

class LimitedMemory : public MemPoolTest {
 protected:
  LimitedMemory() : MemPoolTest(84 * kMb) {}
};

TEST_F(LimitedMemory, WithAllocator) {
  retain(kP1);
  retain(kP2, /*use_on_oom=*/true);
  const Address a = malloc_in(kP1, 40 * kMb);
  const Address b = malloc_in(kP2, 40 * kMb);
  EXPECT_NE(a, 0u);
  EXPECT_NE(b, 0u);
  EXPECT_EQ(s_.malloc(40 * kMb, kS0), 0u);
  s_.free(a);
  s_.free(b);
  const Address c = s_.malloc(30 * kMb, kS0);  // the default pool borrows
  EXPECT_EQ(c, b);
  EXPECT_EQ(s_.malloc(30 * kMb, kS0), 0u);  // the other pool does not lend
  s_.free(c);
  EXPECT_EQ(malloc_in(kP2, 40 * kMb), b);
}

TEST_F(LimitedMemory, DeletedMemPoolIsNotUsedOnOom) {
  retain(kP2, /*use_on_oom=*/true);
  const Address b = malloc_in(kP2, 80 * kMb);
  EXPECT_NE(b, 0u);
  s_.release_pool(kP2);
  EXPECT_EQ(s_.malloc(40 * kMb, kS0), 0u);
  s_.free(b);
  EXPECT_NE(s_.malloc(80 * kMb, kS0), 0u);  // its memory went back to the driver first
  EXPECT_TRUE(s_.allocator().get_pool_reports(0).value().empty());
}

TEST_F(LimitedMemory, OomRecovery) {
  retain(kP1);
  const Address a = malloc_in(kP1, 60 * kMb);
  EXPECT_EQ(malloc_in(kP1, 60 * kMb), 0u);
  s_.free(a);
  EXPECT_NE(malloc_in(kP1, 60 * kMb), 0u);
  EXPECT_EQ(segments(kP1), 1);
}

// Ours: nobody fails while a pool holds what nobody uses.
TEST_F(LimitedMemory, EmptyPoolsSpareWhatTheyHave) {
  s_.retain_pool(kP1);
  s_.free(malloc_in(kP1, 60 * kMb));
  EXPECT_EQ(s_.empty_cache(), StatusCode::kOk);
  EXPECT_EQ(s_.reserved(), 60 * kMb);
  EXPECT_NE(s_.malloc(60 * kMb, kS0), 0u);
  EXPECT_EQ(segments(kP1), 0);
}

class SmallDevice : public MemPoolTest {
 protected:
  SmallDevice() : MemPoolTest(80 * kMb) {}
};

TEST_F(SmallDevice, ReleaseCachedBlocksDuringDiversion) {
  s_.free(s_.malloc(60 * kMb, kS0));
  retain(kP1);
  EXPECT_NE(malloc_in(kP1, 60 * kMb), 0u);
}

TEST_F(MemPoolTest, NoSplit) {
  const auto fill = [this](PoolId pool) {
    for (int i = 0; i < 6; ++i)
      EXPECT_NE(malloc_in(pool, 2 * kMb), 0u);
  };
  retain(kP1, false, /*no_split=*/true);
  retain(kP2);
  fill(kP1);
  fill(kP2);
  EXPECT_EQ(segments(kP1), 6);
  EXPECT_EQ(s_.pool(kP1).stats.allocations.current, 6);
  EXPECT_EQ(s_.pool(kP1).stats.allocated_bytes.current, 6 * 20'971'520);
  EXPECT_EQ(segments(kP2), 1);
}

TEST_F(MemPoolTest, EmptyCacheOfAnInactivePool) {
  retain(kP1);
  s_.free(malloc_in(kP1, 20 * kMb));
  EXPECT_EQ(s_.empty_cache(), StatusCode::kOk);
  EXPECT_EQ(segments(kP1), 1);
  ASSERT_TRUE(s_.allocator().trim_pool(0, kP1).is_ok());
  EXPECT_EQ(segments(kP1), 0);
  s_.release_pool(kP1);
  EXPECT_TRUE(s_.allocator().get_pool_reports(0).value().empty());
}

// record_stream inside a pool's context, outside of any capture: the free waits for the event and
// for nothing else.
TEST_F(MemPoolTest, BlockFreeNotDeferred) {
  const StreamHandle side = s_.make_stream();
  retain(kP1);
  begin(kP1);
  const Address a = s_.malloc(20 * kMb, kS0);
  s_.record(a, side);
  s_.free(a);
  EXPECT_EQ(s_.malloc(20 * kMb, kS0), a);  // the side stream is idle
  end(kP1);
  EXPECT_EQ(segments(kP1), 1);
}

}  // namespace
}  // namespace quarry::test
