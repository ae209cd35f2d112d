// SPDX-License-Identifier: Apache-2.0
// Whose idle memory serves a request beyond the budget, and who waits for it: what the options
// recycle, cross_stream_reuse and reserve_slack say (docs/tuning.md). The oracle watches all of
// it.
#include <algorithm>
#include <string>
#include <vector>

#include "tests/support/scenario.hpp"

namespace quarry::test {
namespace {

class ExtentMovesTest : public testing::Test {
 protected:
  // Nothing may be reserved beyond the highest amount allocated, so that what is idle must serve.
  ExtentMovesTest() : s_(ScenarioOptions::with_expandable()) {
    s_.configure([](Config& config) { config.reserve_slack = 0; });
    s1_ = s_.make_stream();
    s2_ = s_.make_stream();
  }
  // 64 MiB, of which half is free in pieces of 4 MiB, each beside a live one. What is free.
  std::vector<Address> leave_pieces(StreamHandle stream) {
    std::vector<Address> blocks, freed;
    for (int i = 0; i < 16; ++i)
      blocks.push_back(s_.malloc(4_MiB, stream));
    for (std::size_t i = 0; i < blocks.size(); i += 2) {
      s_.free(blocks[i]);
      freed.push_back(blocks[i]);
    }
    EXPECT_EQ(s_.reserved(), 64_MiB);
    s_.sim().reset_call_counts();
    return freed;
  }
  // All is freed, cut into pieces, and moved together again, `pause_us` apart. The log.
  std::string move_often(std::uint64_t pause_us) {
    testing::internal::CaptureStderr();
    for (int round = 0; round < 80; ++round) {
      std::vector<Address> blocks;
      for (int i = 0; i < 16; ++i)
        blocks.push_back(s_.malloc(4_MiB, s1_));
      for (std::size_t i = 0; i < blocks.size(); i += 2)
        s_.free(blocks[i]);
      s_.free(s_.malloc(32_MiB, s1_));
      for (std::size_t i = 1; i < blocks.size(); i += 2)
        s_.free(blocks[i]);
      s_.sim().advance_by_us(pause_us);
    }
    return testing::internal::GetCapturedStderr();
  }
  void expect_no_host_wait() {
    EXPECT_EQ(s_.calls(DriverEntry::kSynchronizeEvent), 0u);
    EXPECT_EQ(s_.calls(DriverEntry::kFree), 0u);
  }
  std::int64_t moved() { return s_.stats().extents_moved; }
  std::int64_t waits() { return s_.stats().stream_waits; }
  void set_recycle(Recycle recycle) {
    s_.configure([recycle](Config& config) { config.recycle = recycle; });
  }
  void set_reuse(CrossStreamReuse reuse) {
    s_.configure([reuse](Config& config) { config.cross_stream_reuse = reuse; });
  }
  static bool overlaps(Address a, Bytes size, Address b, Bytes other_size) {
    return a < b + other_size && b < a + size;
  }

  Scenario s_;
  StreamHandle s1_{}, s2_{};
};

// --- what it costs ---

TEST_F(ExtentMovesTest, DearMovesAreLoggedOnce) {
  const std::string log = move_often(0);
  EXPECT_GT(moved(), 1000);
  const std::size_t first = log.find("event=recycling_cost device=0 extents_moved=10");
  ASSERT_NE(first, std::string::npos) << log;
  EXPECT_NE(log.find("up to 3 instead of 0 % is reserved"), std::string::npos) << log;
  EXPECT_EQ(log.find("event=recycling_cost", first + 1), std::string::npos) << log;
}

TEST_F(ExtentMovesTest, CheapMovesAreNotWorthALine) {
  EXPECT_EQ(move_often(1'000'000), "");
  EXPECT_GT(moved(), 1000);
}

// --- a stream's own memory ---

TEST_F(ExtentMovesTest, AStreamsOwnIdleExtentsMoveWithoutAnyWait) {
  s_.busy(s1_);
  leave_pieces(s1_);
  EXPECT_NE(s_.malloc(32_MiB, s1_), 0u);
  EXPECT_EQ(moved(), 16) << "of 2 MiB each";
  EXPECT_EQ(s_.reserved(), 64_MiB);
  EXPECT_EQ(s_.calls(DriverEntry::kCreateExtent), 0u);
  expect_no_host_wait();
  EXPECT_EQ(s_.calls(DriverEntry::kWaitEvent), 0u);
  EXPECT_EQ(waits(), 0);
  EXPECT_FALSE(s_.is_idle(s1_));
  s_.complete(s1_);
}

TEST_F(ExtentMovesTest, OldAddressesStayMappedAndUnusedUntilTheFencePasses) {
  s_.busy(s1_);
  const std::vector<Address> old = leave_pieces(s1_);
  const std::uint64_t mappings = s_.sim().get_holdings(0).mappings;
  std::vector<Address> later = {s_.malloc(32_MiB, s1_)};
  EXPECT_EQ(s_.sim().get_holdings(0).mappings, mappings + 16) << "each is mapped twice";
  for (int i = 0; i < 10; ++i)
    later.push_back(s_.malloc(4_MiB, s1_));
  EXPECT_EQ(s_.calls(DriverEntry::kUnmap), 0u);
  for (const Address block : later) {
    const Bytes size = s_.allocator().find_block(block).value().bytes;
    EXPECT_TRUE(std::ranges::none_of(
        old, [&](Address piece) { return overlaps(block, size, piece, 4_MiB); }));
  }
  s_.complete(s1_);
  // The next growths unmap what they left, and the addresses serve again.
  for (int i = 0; i < 24; ++i)
    later.push_back(s_.malloc(4_MiB, s1_));
  const auto held = s_.sim().get_holdings(0);
  EXPECT_EQ(held.mappings, held.extents);
  for (const Address piece : old)
    EXPECT_NE(std::ranges::find(later, piece), later.end());
}

TEST_F(ExtentMovesTest, UnderRecyclePassedOnlyWhatTheHostHasSeenDoneMoves) {
  set_recycle(Recycle::kPassed);
  s_.busy(s1_);
  leave_pieces(s1_);
  const Address first = s_.malloc(32_MiB, s1_);
  EXPECT_EQ(moved(), 0);
  EXPECT_EQ(s_.reserved(), 96_MiB);
  s_.free(first);
  s_.complete(s1_);
  EXPECT_NE(s_.malloc(64_MiB, s1_), 0u);
  EXPECT_EQ(moved(), 16);
  EXPECT_EQ(s_.reserved(), 96_MiB);
  expect_no_host_wait();
}

TEST_F(ExtentMovesTest, UnderRecycleOffNothingMoves) {
  set_recycle(Recycle::kOff);
  leave_pieces(s1_);
  EXPECT_NE(s_.malloc(32_MiB, s1_), 0u);
  EXPECT_EQ(moved(), 0);
  EXPECT_EQ(s_.stats().extents_released, 0);
  EXPECT_EQ(s_.reserved(), 96_MiB);
}

// Before out of memory, extents go back and others are made; that is no move.
TEST_F(ExtentMovesTest, UnderRecycleOffWhatIsIdleStillServesWhenMemoryIsShort) {
  set_recycle(Recycle::kOff);
  leave_pieces(s1_);
  ASSERT_TRUE(s_.allocator().set_limit(0, 64_MiB).is_ok());
  EXPECT_NE(s_.malloc(32_MiB, s1_), 0u);
  EXPECT_EQ(moved(), 0);
  EXPECT_EQ(s_.reserved(), 64_MiB);
}

// --- the budget ---

TEST_F(ExtentMovesTest, WithinTheSlackNewExtentsAreMade) {
  s_.configure([](Config& config) { config.reserve_slack = 0.5; });
  leave_pieces(s1_);
  EXPECT_NE(s_.malloc(32_MiB, s1_), 0u);
  EXPECT_EQ(moved(), 0);
  EXPECT_EQ(s_.reserved(), 96_MiB);
  EXPECT_NE(s_.malloc(2_MiB, s1_), 0u) << "fits what is free";
  EXPECT_EQ(s_.reserved(), 96_MiB);
}

TEST_F(ExtentMovesTest, ARefusedRequestDoesNotRaiseTheBudget) {
  ASSERT_TRUE(s_.allocator().set_limit(0, 64_MiB).is_ok());
  EXPECT_EQ(s_.malloc(1_GiB, s1_), 0u);
  leave_pieces(s1_);
  ASSERT_TRUE(s_.allocator().set_limit(0, kUnlimited).is_ok());
  EXPECT_NE(s_.malloc(32_MiB, s1_), 0u);
  EXPECT_EQ(s_.reserved(), 64_MiB);
  EXPECT_EQ(moved(), 16);
}

// --- memory of other streams ---

TEST_F(ExtentMovesTest, UnderWaitTheDeviceWaitsForTheOtherStream) {
  const Address block = s_.malloc(32_MiB, s1_);
  s_.busy(s1_);
  s_.free(block);
  s_.sim().reset_call_counts();
  EXPECT_EQ(s_.malloc(32_MiB, s2_), block);
  EXPECT_EQ(waits(), 1);
  EXPECT_EQ(s_.reserved(), 32_MiB);
  expect_no_host_wait();
  EXPECT_FALSE(s_.is_idle(s1_));
  static_cast<void>(s_.sim().submit_work({0, s2_}, sim::WorkTime{}));
  s_.sim().advance_by_us(1000);
  EXPECT_FALSE(s_.is_idle(s2_)) << "its work comes after the other's";
  s_.complete(s1_);
  s_.complete(s2_);
}

TEST_F(ExtentMovesTest, UnderWaitExtentsOfTheOtherStreamMove) {
  s_.busy(s1_);
  leave_pieces(s1_);
  EXPECT_NE(s_.malloc(32_MiB, s2_), 0u);
  EXPECT_EQ(moved(), 16);
  EXPECT_EQ(waits(), 1) << "one for all that is taken";
  EXPECT_EQ(s_.reserved(), 64_MiB);
  expect_no_host_wait();
  s_.complete(s1_);
}

TEST_F(ExtentMovesTest, UnderIdleAnotherStreamsMemoryServesWhenTheHostHasSeenItDone) {
  set_reuse(CrossStreamReuse::kIdle);
  const Address block = s_.malloc(32_MiB, s1_);
  s_.busy(s1_);
  s_.free(block);
  const Address beside = s_.malloc(32_MiB, s2_);
  EXPECT_NE(beside, block);
  EXPECT_EQ(s_.reserved(), 64_MiB);
  s_.complete(s1_);
  EXPECT_EQ(s_.malloc(32_MiB, s2_), block);
  EXPECT_EQ(s_.reserved(), 64_MiB);
  EXPECT_EQ(waits(), 0);
  EXPECT_EQ(s_.calls(DriverEntry::kWaitEvent), 0u);
}

TEST_F(ExtentMovesTest, UnderOffAStreamNeverGetsWhatAnotherFreed) {
  set_reuse(CrossStreamReuse::kOff);
  const Address block = s_.malloc(32_MiB, s1_);
  s_.free(block);
  s_.complete(s1_);
  EXPECT_NE(s_.malloc(32_MiB, s2_), block);
  EXPECT_EQ(moved(), 0);
  EXPECT_EQ(s_.reserved(), 64_MiB);
  EXPECT_EQ(s_.malloc(32_MiB, s1_), block) << "its own stream does";
}

TEST_F(ExtentMovesTest, UnderOffMemoryOfARetiredStreamIsEverybodys) {
  set_reuse(CrossStreamReuse::kOff);
  const Address block = s_.malloc(32_MiB, s1_);
  s_.free(block);
  ASSERT_TRUE(s_.allocator().retire_stream({0, s1_}).is_ok());
  s_.complete(s1_);
  EXPECT_EQ(s_.malloc(32_MiB, s2_), block);
  EXPECT_EQ(s_.reserved(), 32_MiB);
}

// --- record_stream ---

TEST_F(ExtentMovesTest, ABlockThatAnotherStreamUsesServesBeyondTheBudgetAfterAWait) {
  const Address block = s_.malloc(32_MiB, s1_);
  s_.busy(s2_);
  s_.record(block, s2_);
  s_.free(block);
  s_.sim().reset_call_counts();
  EXPECT_EQ(s_.malloc(32_MiB, s1_), block);
  EXPECT_EQ(waits(), 1);
  EXPECT_EQ(s_.reserved(), 32_MiB);
  expect_no_host_wait();
  EXPECT_FALSE(s_.is_idle(s2_));
  s_.complete(s2_);
}

// Also to others: to the stream that uses it, and to one that waits for both.
TEST_F(ExtentMovesTest, APendingBlockOfAnotherStreamServesBeyondTheBudgetAfterWaits) {
  const StreamHandle third = s_.make_stream();
  for (const StreamHandle wanting : {s2_, third}) {
    const std::int64_t waits_before = waits();
    const Address block = s_.malloc(32_MiB, s1_);
    s_.busy(s1_);
    s_.busy(s2_);
    s_.record(block, s2_);
    s_.free(block);
    s_.sim().reset_call_counts();
    const Address next = s_.malloc(32_MiB, wanting);
    EXPECT_EQ(next, block);
    EXPECT_EQ(waits() - waits_before, wanting == s2_ ? 1 : 2);
    EXPECT_EQ(s_.reserved(), 32_MiB);
    expect_no_host_wait();
    s_.free(next);
    for (const StreamHandle stream : {s1_, s2_, third})
      s_.complete(stream);
  }
}

TEST_F(ExtentMovesTest, ABlockThatAnotherStreamUsesStaysPendingWithinTheBudget) {
  s_.configure([](Config& config) { config.reserve_slack = 1; });
  const Address block = s_.malloc(32_MiB, s1_);
  s_.busy(s2_);
  s_.record(block, s2_);
  s_.free(block);
  EXPECT_NE(s_.malloc(32_MiB, s1_), block);
  EXPECT_EQ(waits(), 0);
  EXPECT_EQ(s_.reserved(), 64_MiB);
  s_.complete(s2_);
}

TEST_F(ExtentMovesTest, AHostFarAheadReservesNoMoreThanItAllocates) {
  s_.busy(s2_);
  for (int i = 0; i < 200; ++i) {
    const Address block = s_.malloc(32_MiB, s1_);
    s_.record(block, s2_);
    s_.free(block);
  }
  EXPECT_EQ(s_.reserved(), 32_MiB);
  EXPECT_EQ(s_.calls(DriverEntry::kSynchronizeEvent), 0u);
  s_.complete(s2_);
}

TEST_F(ExtentMovesTest, WithoutWaitsAHostFarAheadGrows) {
  set_reuse(CrossStreamReuse::kIdle);
  s_.busy(s2_);
  for (int i = 0; i < 4; ++i) {
    const Address block = s_.malloc(32_MiB, s1_);
    s_.record(block, s2_);
    s_.free(block);
  }
  EXPECT_EQ(s_.reserved(), 4 * 32_MiB);
  EXPECT_EQ(waits(), 0);
  s_.complete(s2_);
}

}  // namespace
}  // namespace quarry::test
