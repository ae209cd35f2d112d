// SPDX-License-Identifier: Apache-2.0
// Who holds a pool, and what its last release ends: orders of calls that several threads, or
// functions of the user's, can make.
#include <limits>
#include <utility>

#include "tests/support/capture_scenario.hpp"

namespace quarry::test {
namespace {

constexpr PoolId kP{0, 1};

// Functions over the simulated device, and what is done when they are no longer needed.
PoolOptions make_functions(SimDriver& sim, std::function<void()> on_unused) {
  PoolOptions options;
  options.backend = {[&sim](Bytes bytes, StreamRef) { return sim.allocate(0, bytes).value; },
                     [&sim](Address address, Bytes, StreamRef) {
                       EXPECT_EQ(sim.free(0, address), DriverCode::kSuccess);
                     },
                     std::move(on_unused)};
  return options;
}

class PoolHoldsTest : public testing::Test {
 protected:
  Status begin_for_thread() {
    return s_.allocator().begin_pool({Route::Kind::kThread, 0, kP, {}, {}});
  }
  CaptureScenario s_;
};

// Otherwise a capture that the new route is for gets memory of the default pool.
TEST_F(PoolHoldsTest, AReleaseLeavesTheRoutesOfAPoolThatWasMadeMeanwhile) {
  s_.retain_pool(kP, make_functions(s_.sim(), [&] {
                   s_.retain_pool(kP);
                   EXPECT_TRUE(begin_for_thread().is_ok());
                 }));
  s_.release_pool(kP);
  EXPECT_NE(s_.malloc(512), 0u);
  EXPECT_EQ(s_.pool(kP).stats.allocations.current, 1);
  EXPECT_TRUE(s_.allocator().end_pool(0, kP).is_ok());
}

TEST_F(PoolHoldsTest, APoolThatIsHeldAgainIsAsItIsWishedForNow) {
  PoolOptions first;
  first.limit_bytes = 20_MiB;
  first.no_split = true;
  s_.retain_pool(kP, first);
  const Address kept = s_.malloc_in_pool(8_MiB, kS0, kP);
  s_.release_pool(kP);
  PoolOptions second;
  second.limit_bytes = 100_MiB;
  s_.retain_pool(kP, second);
  EXPECT_EQ(s_.pool(kP).limit_bytes, 100_MiB);
  s_.retain_pool(kP, first);  // while others hold it, as they wished
  EXPECT_EQ(s_.pool(kP).limit_bytes, 100_MiB);
  const Address part = s_.malloc_in_pool(2_MiB, kS0, kP);
  EXPECT_EQ(s_.pool(kP).stats.allocated_bytes.current, 20'971'520 + 2'097'152);
  s_.free(part);
  s_.free(kept);
}

TEST_F(PoolHoldsTest, APoolOfFunctionsIsNotHeldAgainBeforeItIsGone) {
  int unused = 0;
  s_.retain_pool(kP, make_functions(s_.sim(), [&] { ++unused; }));
  const Address kept = s_.malloc_in_pool(512, kS0, kP);
  s_.release_pool(kP);
  EXPECT_EQ(s_.allocator().retain_pool(0, kP).code(), StatusCode::kBusy);
  s_.free(kept);
  EXPECT_EQ(unused, 1);
  s_.retain_pool(kP);
  const Address plain = s_.malloc_in_pool(512, kS0, kP);
  s_.release_pool(kP);
  const PoolOptions functions = make_functions(s_.sim(), nullptr);
  EXPECT_EQ(s_.allocator().retain_pool(0, kP, functions).code(), StatusCode::kBusy);
  s_.free(plain);
}

// The gate is held when the last block comes back.
TEST_F(PoolHoldsTest, FunctionsThatTheGateKeptFromReturningAreDoneLater) {
  int unused = 0;
  s_.retain_pool(kP, make_functions(s_.sim(), [&] { ++unused; }));
  const Address block = s_.malloc_in_pool(512, kS0, kP);
  s_.release_pool(kP);
  s_.allocator().free_gate().lock();
  s_.free(block);
  EXPECT_EQ(unused, 0);
  EXPECT_NE(s_.malloc(512), 0u);
  EXPECT_TRUE(s_.allocator().free_gate().unlock());
  EXPECT_EQ(unused, 0);
  EXPECT_NE(s_.malloc(4_MiB), 0u);
  EXPECT_EQ(unused, 1);
}

// No segment can end behind the last address.
TEST_F(PoolHoldsTest, AFunctionThatReturnsTheEndOfAllAddressesHasNoMore) {
  const Address last = std::numeric_limits<Address>::max() - 511;
  Address freed = 0;
  PoolOptions options;
  options.backend = {[&](Bytes, StreamRef) { return last; },
                     [&](Address address, Bytes, StreamRef) { freed = address; }, nullptr};
  s_.retain_pool(kP, options);
  const auto block = s_.allocator().allocate_in_pool({0, kS0}, 512, 512, kP);
  EXPECT_EQ(block.code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(freed, last);
}

}  // namespace
}  // namespace quarry::test
