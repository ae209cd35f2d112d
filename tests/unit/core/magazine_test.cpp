// SPDX-License-Identifier: Apache-2.0
// Magazines seen through an allocator with thread_cache:True: what parks, who gets it back, what
// the statistics and a second free say, and which changes take parked blocks out.
#include <gtest/gtest.h>

#include <thread>
#include <utility>
#include <vector>

#include "core/thread_state.hpp"
#include "tests/support/scenario.hpp"

namespace quarry::test {
namespace {

ScenarioOptions make_cached() {
  ScenarioOptions options;
  options.config.thread_cache = true;
  return options;
}

class MagazineTest : public testing::Test {
 protected:
  // Asks often enough that the size parks from now on; leaves one block parked.
  void make_popular(Bytes bytes, StreamHandle stream = kS0) {
    for (int i = 0; i < 3; ++i)
      ASSERT_EQ(s_.free(s_.malloc(bytes, stream)), StatusCode::kOk);
  }
  Bytes parked() { return static_cast<Bytes>(s_.stats().parked_bytes); }

  Scenario s_{make_cached()};
};

TEST_F(MagazineTest, ASizeParksFromTheSecondRequestOn) {
  s_.malloc(512);  // the thread's first request makes its magazines and is not remembered
  ASSERT_EQ(s_.free(s_.malloc(4096)), StatusCode::kOk);
  EXPECT_EQ(parked(), 0u);
  ASSERT_EQ(s_.free(s_.malloc(4096)), StatusCode::kOk);
  EXPECT_EQ(parked(), 4096u);
}

// These share few places among the sizes that are remembered.
TEST_F(MagazineTest, SizesThatComeInTurnAllParkInTheEnd) {
  Bytes sum = 0;
  for (int round = 0; round < 30; ++round) {
    sum = 0;
    for (Bytes size = 4096; size < 4096 + 24 * 8192; size += 8192) {
      ASSERT_EQ(s_.free(s_.malloc(size)), StatusCode::kOk);
      sum += size;
    }
  }
  EXPECT_EQ(parked(), sum);
}

TEST_F(MagazineTest, ASizeThatWasMissedLongAgoIsNewAgain) {
  s_.malloc(512);
  for (Bytes size = 1024; size <= 1024 * 130; size += 1024)
    ASSERT_EQ(s_.free(s_.malloc(size)), StatusCode::kOk);
  ASSERT_EQ(s_.free(s_.malloc(1024)), StatusCode::kOk);
  EXPECT_EQ(parked(), 0u);
  ASSERT_EQ(s_.free(s_.malloc(1024)), StatusCode::kOk);
  EXPECT_EQ(parked(), 1024u);
}

TEST_F(MagazineTest, AParkedBlockServesEverySizeThatRoundsToItsOwnAndNoOther) {
  make_popular(4096);
  const Address block = s_.malloc(4000);
  EXPECT_EQ(parked(), 0u);
  EXPECT_EQ(s_.allocator().find_block(block).value().requested_bytes, 4000u);
  ASSERT_EQ(s_.free(block), StatusCode::kOk);
  EXPECT_NE(s_.malloc(512), block);
  EXPECT_EQ(parked(), 4096u);
}

TEST_F(MagazineTest, AParkedBlockIsForItsOwnStreamOnly) {
  const StreamHandle side = s_.make_stream();
  make_popular(4096);
  make_popular(4096, side);
  const Address own = s_.malloc(4096);
  const Address other = s_.malloc(4096, side);
  EXPECT_EQ(s_.allocator().find_block(own).value().stream.handle, kS0);
  EXPECT_EQ(s_.allocator().find_block(other).value().stream.handle, side);
}

TEST_F(MagazineTest, BlocksWithForeignUsesDoNotPark) {
  const StreamHandle side = s_.make_stream();
  make_popular(4096);
  const Address block = s_.malloc(4096);
  ASSERT_EQ(s_.record(block, side), StatusCode::kOk);
  ASSERT_EQ(s_.free(block), StatusCode::kOk);
  EXPECT_EQ(parked(), 0u);
}

TEST_F(MagazineTest, AboveOneMebibyteOnlyWholeSegmentsPark) {
  make_popular(4_MiB);
  EXPECT_EQ(parked(), 0u);
  make_popular(64_MiB);
  EXPECT_EQ(parked(), 64_MiB);
}

TEST_F(MagazineTest, ALargeMissTakesParkedLargeBlocksBackBeforeItSearches) {
  const Address larger = s_.malloc(100_MiB);
  make_popular(64_MiB);
  const Address popular = s_.malloc(64_MiB);
  ASSERT_EQ(s_.free(larger), StatusCode::kOk);
  ASSERT_EQ(s_.free(popular), StatusCode::kOk);
  ASSERT_EQ(parked(), 64_MiB);
  EXPECT_EQ(s_.malloc(30_MiB), popular) << "the best fit, though it was parked";
  EXPECT_EQ(parked(), 0u);
}

TEST_F(MagazineTest, ASecondFreeOrARecordOfAParkedBlockIsRefused) {
  make_popular(4096);
  const Address block = s_.malloc(4096);
  ASSERT_EQ(s_.free(block), StatusCode::kOk);
  ASSERT_EQ(parked(), 4096u);
  EXPECT_EQ(s_.allocator().free(block).code(), StatusCode::kDoubleFree);
  EXPECT_EQ(s_.allocator().record_stream(block, s_.make_stream()).code(),
            StatusCode::kInvalidPointer);
  EXPECT_FALSE(s_.allocator().find_block(block).is_ok());
  EXPECT_EQ(s_.malloc(4096), block);
}

TEST_F(MagazineTest, StatisticsOfOneThreadAreExactPeaksIncluded) {
  make_popular(4096);
  ASSERT_TRUE(s_.allocator().reset_peak_stats(0).is_ok());
  ASSERT_TRUE(s_.allocator().reset_accumulated_stats(0).is_ok());
  const Address first = s_.malloc(4096);   // parked before
  const Address second = s_.malloc(4096);  // from the cache
  s_.free(first);
  s_.free(second);
  s_.free(s_.malloc(4000));
  const DeviceStats stats = s_.stats();
  EXPECT_EQ(stats.allocated_bytes.all.current, 0);
  EXPECT_EQ(stats.allocated_bytes.all.peak, 8192);
  EXPECT_EQ(stats.allocated_bytes.all.allocated, 12288);
  EXPECT_EQ(stats.allocated_bytes.all.freed, 12288);
  EXPECT_EQ(stats.allocation.family[0].allocated, 3);
  EXPECT_EQ(stats.requested_bytes.all.allocated, 12192);
  EXPECT_EQ(stats.requested_bytes.all.current, 0);
  EXPECT_EQ(stats.allocator_slack, 0);
}

TEST_F(MagazineTest, AMissTakesParkedBlocksOfOtherThreadsBackBeforeItGrows) {
  ASSERT_TRUE(s_.allocator().set_limit(0, 2_MiB).is_ok());
  std::thread([&] { make_popular(1_MiB); }).join();
  ASSERT_EQ(parked(), 1_MiB);
  EXPECT_NE(s_.malloc(600'000), 0u);
  EXPECT_NE(s_.malloc(600'000), 0u) << "fits only with the other thread's block";
  EXPECT_EQ(parked(), 0u);
}

TEST_F(MagazineTest, EmptyingRetiringAndTurningOffTakeParkedBlocksBack) {
  const StreamHandle side = s_.make_stream();
  make_popular(4096);
  ASSERT_EQ(s_.empty_cache(), StatusCode::kOk);
  EXPECT_EQ(s_.reserved(), 0u);
  make_popular(4096, side);
  ASSERT_EQ(parked(), 4096u);
  ASSERT_TRUE(s_.allocator().retire_stream({0, side}).is_ok());
  EXPECT_EQ(parked(), 0u);
  make_popular(4096);
  s_.configure([](Config& config) { config.roundup_power2_divisions.fill(4); });
  EXPECT_EQ(parked(), 0u) << "sizes no longer round to 512 alone";
}

TEST_F(MagazineTest, NothingParksWhileTheShortWayIsClosedOrItsStreamHasEnded) {
  const StreamHandle side = s_.make_stream();
  make_popular(4096, side);
  // Not through the scenario, whose free works on the stream once more.
  const Address of_ended = s_.allocator().allocate({0, side}, 4096).value();
  ASSERT_TRUE(s_.allocator().retire_stream({0, side}).is_ok());
  ASSERT_TRUE(s_.allocator().free(of_ended).is_ok());
  EXPECT_EQ(parked(), 0u);
  make_popular(4096);
  const Address block = s_.malloc(4096);
  s_.configure([](Config& config) { config.roundup_power2_divisions.fill(4); });
  ASSERT_EQ(s_.free(block), StatusCode::kOk);
  EXPECT_EQ(parked(), 0u);
}

// A block remembers where it parked; what is there may have come to serve another size meanwhile,
// or be another thread's.
TEST_F(MagazineTest, ABlockNeverParksWhereAnotherSizeIsServed) {
  constexpr Bytes kStep = 512;
  constexpr Bytes kMost = 400 * kStep;  // more sizes than there are magazines
  std::vector<Address> held;
  for (Bytes size = kStep; size <= kMost; size += 8 * kStep) {
    make_popular(size);
    held.push_back(s_.malloc(size));
  }
  for (Bytes size = kStep; size <= kMost; size += kStep)
    make_popular(size);
  const auto free_every_other = [&](std::size_t first) {
    for (std::size_t i = first; i < held.size(); i += 2)
      ASSERT_EQ(s_.free(held[i]), StatusCode::kOk);
  };
  const auto expect_own_sizes = [&] {
    for (Bytes size = kStep; size <= kMost; size += kStep)
      ASSERT_EQ(s_.allocator().find_block(s_.malloc(size)).value().bytes, size);
  };
  free_every_other(0);
  expect_own_sizes();
  std::thread([&] {
    for (Bytes size = kMost; size > 0; size -= kStep)
      make_popular(size);
    free_every_other(1);
    expect_own_sizes();
  }).join();
  s_.allocator().validate();
}

TEST_F(MagazineTest, AnAlignedBlockOfALargeSegmentIsCountedAmongTheLargeOnes) {
  make_popular(4096);
  for (int i = 0; i < 3; ++i)
    ASSERT_EQ(s_.free(s_.malloc(4096, kS0, 2_MiB)), StatusCode::kOk);
  s_.allocator().validate();
  const DeviceStats stats = s_.stats();
  EXPECT_EQ(stats.allocation.family[1].allocated, 3);
  EXPECT_EQ(stats.allocation.family[1].current, 0);
}

TEST_F(MagazineTest, AHitMakesNoDriverCall) {
  make_popular(4096);
  const std::uint64_t before = s_.sim().call_count();
  for (int i = 0; i < 1000; ++i) {
    const Address block = s_.allocator().allocate({0, kS0}, 4096).value();
    ASSERT_TRUE(s_.allocator().free(block).is_ok());
  }
  EXPECT_EQ(s_.sim().call_count(), before);
}

// Garbage is what was not used for longest, and a hit in a magazine is a use too.
TEST_F(MagazineTest, GarbageCollectionSparesWhatAMagazineServed) {
  s_.configure([](Config& config) {
    config.garbage_collection_threshold = 0.5;
    config.upstream_quirks = false;
  });
  make_popular(64_MiB);
  const Address hot = s_.malloc(64_MiB);
  const Address cold = s_.malloc(80_MiB);
  ASSERT_EQ(s_.free(hot), StatusCode::kOk);
  ASSERT_EQ(s_.free(cold), StatusCode::kOk);
  ASSERT_EQ(s_.malloc(64_MiB), hot);
  ASSERT_EQ(s_.free(hot), StatusCode::kOk);
  ASSERT_EQ(parked(), 64_MiB);
  // Reserved is above half of the limit by less than either segment: one of them must go.
  ASSERT_TRUE(s_.allocator().set_limit(0, 272_MiB).is_ok());
  ASSERT_NE(s_.malloc(100_MiB), 0u);
  EXPECT_EQ(s_.malloc(64_MiB), hot);
  EXPECT_EQ(s_.calls(DriverEntry::kFree), 1u);
}

TEST_F(MagazineTest, SizesThatShareASetReplaceTheLongestUnused) {
  // More sizes than the sets hold: whatever is replaced comes back, and nothing is lost.
  for (int round = 0; round < 3; ++round) {
    for (Bytes size = 512; size <= 512 * 400; size += 512) {
      ASSERT_EQ(s_.free(s_.malloc(size)), StatusCode::kOk);
    }
  }
  s_.allocator().validate();
  ASSERT_EQ(s_.empty_cache(), StatusCode::kOk);
  EXPECT_EQ(s_.reserved(), 0u);
}

// The sizes of a transformer layer, each freed two later: the second pass grows for what the first
// parked, within the allowance, and from then on every request is served from a magazine.
TEST_F(MagazineTest, AWorkingSetThatHardlyFitsGrowsALittleInsteadOfEmptyingMagazines) {
  constexpr Bytes kSizes[] = {3072,   9216,   12288,  393216, 786432, 4096,   8192,  16384,
                              98304,  196608, 512,    1024,   2048,   24576,  49152, 65536,
                              131072, 262144, 524288, 655360, 327680, 163840, 81920, 40960};
  Address held[3] = {};
  std::size_t step = 0;
  const auto pass = [&](bool is_served_by_magazines) {
    for (const Bytes size : kSizes) {
      ASSERT_EQ(s_.free(std::exchange(held[step % 3], 0)), StatusCode::kOk);
      const Bytes before = parked();
      held[step++ % 3] = s_.malloc(size);
      if (is_served_by_magazines) {
        ASSERT_EQ(before - parked(), size);
      }
    }
  };
  for (int i = 0; i < 4; ++i)
    pass(false);
  const auto reserved = s_.stats().reserved_bytes.all.current;
  pass(true);
  EXPECT_EQ(s_.stats().reserved_bytes.all.current, reserved);
  EXPECT_LE(reserved, static_cast<std::int64_t>(8_MiB));
}

TEST_F(MagazineTest, TheAllowanceIsSpentOnceAndThenMagazinesAreEmptiedFirst) {
  // Twice as many sizes as the magazines and the allowance can hold.
  std::vector<Bytes> sizes;
  for (Bytes size = 100 * 512; size <= 1_MiB; size += 64 * 512)
    sizes.push_back(size);
  for (int i = 0; i < 6; ++i) {
    for (const Bytes size : sizes)
      ASSERT_EQ(s_.free(s_.malloc(size)), StatusCode::kOk);
  }
  EXPECT_LE(s_.stats().reserved_bytes.all.current, static_cast<std::int64_t>(2_MiB + 4_MiB));
}

TEST_F(MagazineTest, ALimitIsNoReasonToRefuseWhatIsParked) {
  ASSERT_TRUE(s_.allocator().set_limit(0, 2_MiB).is_ok());
  make_popular(1_MiB);
  make_popular(700_KiB);
  EXPECT_NE(s_.malloc(900_KiB), 0u);
}

// The callback takes the room up to the limit meanwhile.
TEST_F(MagazineTest, ARefusalAtTheLimitLooksAtWhatIsParkedFirst) {
  s_.configure([](Config& config) { config.throw_on_cudamalloc_oom = true; });
  ASSERT_TRUE(s_.allocator().set_limit(0, 4_MiB).is_ok());
  make_popular(1_MiB);
  make_popular(700_KiB);
  ASSERT_EQ(s_.reserved(), 2_MiB);
  const StreamHandle side = s_.make_stream();
  s_.allocator().callbacks().add_free_memory_callback([&](DeviceId, Bytes) {
    EXPECT_NE(s_.malloc(1_MiB, side), 0u);
    return false;
  });
  EXPECT_NE(s_.malloc(900_KiB), 0u) << s_.last_message();
}

TEST_F(MagazineTest, ARefusalAtTheLimitLooksAtSmallBlocksOfLargeSegmentsToo) {
  s_.configure([](Config& config) { config.throw_on_cudamalloc_oom = true; });
  ASSERT_TRUE(s_.allocator().set_limit(0, 22_MiB).is_ok());
  make_popular(1_MiB);
  ASSERT_EQ(s_.reserved(), 2_MiB);
  const Address aligned = s_.malloc(1_MiB, kS0, 2_MiB);
  ASSERT_EQ(s_.allocator().find_block(aligned).value().segment_bytes, 20_MiB);
  ASSERT_EQ(s_.free(aligned), StatusCode::kOk);
  EXPECT_NE(s_.malloc(20_MiB), 0u) << s_.last_message();
}

TEST_F(MagazineTest, ADriverThatFailsIsNoReasonToRefuseWhatIsParked) {
  make_popular(1_MiB);
  make_popular(700_KiB);
  s_.sim().fail_calls_if(
      DriverEntry::kAllocate, [](Bytes) { return true; }, DriverCode::kIllegalAddress);
  EXPECT_NE(s_.malloc(900_KiB), 0u) << s_.last_message();
}

// Oversize blocks do not park; those that become oversize do not stay.
TEST_F(MagazineTest, ASplitLimitTakesParkedBlocksBack) {
  make_popular(64_MiB);
  ASSERT_EQ(parked(), 64_MiB);
  s_.configure([](Config& config) { config.max_split_bytes = 32_MiB; });
  ASSERT_NE(s_.malloc(64_MiB), 0u);
  EXPECT_EQ(s_.stats().oversize_allocations.current, 1);
}

TEST_F(MagazineTest, ADriverCallbackIsServedWhatOthersParked) {
  make_popular(1_MiB);
  ASSERT_NE(s_.malloc(700_KiB), 0u);
  ASSERT_EQ(parked(), 1_MiB);
  std::thread([&] {
    s_.sim().set_callback_thread(true);
    {
      DriverCallbackScope scope;
      EXPECT_TRUE(s_.allocator().allocate({0, kS0}, 1_MiB).is_ok());
    }
    s_.sim().set_callback_thread(false);
  }).join();
}

TEST_F(MagazineTest, SizesAtTheEndsOfTheRangeAreRefusedAsOftenAsTheyAreAsked) {
  make_popular(512);
  for (const StreamHandle stream : {kS0, s_.make_stream()}) {
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(s_.allocator().allocate({0, stream}, 0).value(), 0u);
      for (const Bytes bytes : {kUnlimited, kUnlimited - 511, Bytes{1} << 63, Bytes{1} << 60,
                                (Bytes{1} << 60) - 1, (Bytes{1} << 60) - 512}) {
        const auto refused = s_.allocator().allocate({0, stream}, bytes);
        EXPECT_EQ(refused.code(), StatusCode::kOutOfMemory) << bytes;
        EXPECT_EQ(s_.allocator().allocate({0, stream}, bytes, 1_GiB).code(),
                  StatusCode::kOutOfMemory);
      }
      EXPECT_FALSE(s_.allocator().allocate({0, stream}, 512, 0).is_ok());
      EXPECT_FALSE(s_.allocator().allocate({0, stream}, 512, 513).is_ok());
    }
  }
  EXPECT_NE(s_.malloc(512), 0u);
  s_.allocator().validate();
}

}  // namespace
}  // namespace quarry::test
