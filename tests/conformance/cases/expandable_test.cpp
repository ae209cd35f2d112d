// SPDX-License-Identifier: Apache-2.0
// Cases from the field with expandable segments: fragmentation, streams, devices, pools. Each
// under its number. Figures that a case gives for pages of 20 MiB are recomputed for our extents.
// Calls that fail are expandable_failure_test.cpp. Owns nothing but its scenarios.
#include <vector>

#include "tests/support/capture_scenario.hpp"

namespace quarry::test {
namespace {

TEST(C01c, TheGiantFitsBesideWhatWasCutFromIt) {
  Scenario s(ScenarioOptions::with_expandable(17'179'869'184));
  const Address giant = s.malloc(11'643'387'904);
  EXPECT_NE(giant, 0u);
  s.free(giant);
  for (int i = 0; i < 30; ++i)
    EXPECT_NE(s.malloc(16'515'072), 0u);
  EXPECT_NE(s.malloc(11'643'387'904), 0u);
  // What is live, in whole extents of 32 MiB.
  EXPECT_EQ(s.reserved(), 12'146'704'384u);
  EXPECT_EQ(s.stats().num_alloc_retries, 0);
  EXPECT_EQ(s.stats().num_ooms, 0);
}

// What the cycles keep, and what each has beside it: no more is ever needed.
TEST(C03, ReservedGrowsWithTheKeptBlocksOnlyUnderASplitLimit) {
  for (const Bytes cap : {Bytes{150'109'880'320}, 404_MiB + 2_MiB}) {
    ScenarioOptions options = ScenarioOptions::with_expandable(cap);
    options.config.max_split_bytes = 134'217'728;
    Scenario s(options);
    EXPECT_NE(s.malloc(67'108'864), 0u);
    for (int cycle = 0; cycle <= 100; ++cycle) {
      const Address a = s.malloc(95'420'416);
      const Address b = s.malloc(47'710'208);
      ASSERT_NE(a, 0u);
      ASSERT_NE(b, 0u);
      ASSERT_NE(s.malloc(2'097'152), 0u);
      s.free(a);
      s.free(b);
      const Bytes kept = 66_MiB + static_cast<Bytes>(cycle) * 2_MiB;
      ASSERT_EQ(s.allocated(), kept);
      ASSERT_LE(s.reserved(), kept + 95'420'416 + 47'710'208 + 4_MiB) << "cycle " << cycle;
    }
    EXPECT_EQ(s.allocated(), 278'921'216u);
    EXPECT_LE(s.reserved(), 404_MiB + 2_MiB);
    EXPECT_EQ(s.stats().num_ooms, 0);
  }
}

TEST(C04, MemoryOfAnIdleStreamBesideItsLiveBlockServesAnother) {
  Scenario s(ScenarioOptions::with_expandable(671'088'640));
  const StreamHandle s1 = s.make_stream();
  const StreamHandle s2 = s.make_stream();
  s.free(s.malloc(536'870'912, s1));
  EXPECT_NE(s.malloc(67'108'864, s1), 0u);
  EXPECT_NE(s.malloc(469'762'048, s2), 0u);
  EXPECT_LE(s.reserved(), 566'231'040u);
  EXPECT_EQ(s.stats().num_ooms, 0);
  EXPECT_EQ(s.calls(DriverEntry::kSynchronizeEvent), 0u);
}

// The new user waits for the old one, on the device or on the host, and nothing is unmapped under
// use: the oracle would say so.
TEST(C22, CachedMemoryOfABusyStreamServesAnotherAfterAWait) {
  for (const CrossStreamReuse reuse :
       {CrossStreamReuse::kWait, CrossStreamReuse::kIdle, CrossStreamReuse::kOff}) {
    ScenarioOptions options = ScenarioOptions::with_expandable(268'435'456);
    options.config.cross_stream_reuse = reuse;
    Scenario s(options);
    const StreamHandle s1 = s.make_stream();
    const Address x = s.malloc(134'217'728, s1);
    s.busy(s1);
    s.free(x);  // used once more behind the busy work
    EXPECT_FALSE(s.is_idle(s1));
    EXPECT_NE(s.malloc(201'326'592), 0u);
    const bool waits_on_device = reuse == CrossStreamReuse::kWait;
    EXPECT_EQ(s.is_idle(s1), !waits_on_device);
    EXPECT_EQ(s.stats().stream_waits, waits_on_device ? 1 : 0);
    EXPECT_LE(s.reserved(), 268'435'456u);
    s.complete(s1);
  }
}

// Unmapping does not wait for the device, so the wait is ours, and only of the device in question.
void empty_first_device_while_second_is_current(StreamHandle stream) {
  ScenarioOptions options = ScenarioOptions::with_expandable();
  options.sim.device_count = 2;
  Scenario s(options);
  const StreamRef other{1, s.make_stream(1)};
  const Address x = s.malloc(67'108'864, StreamRef{0, stream});
  const Address y = s.malloc(67'108'864, other);
  s.busy(StreamRef{0, stream});
  s.busy(other);
  s.free(x);
  s.free(y);
  s.sim().set_current_device(1);
  EXPECT_EQ(s.empty_cache(0), StatusCode::kOk);
  EXPECT_EQ(s.sim().get_current_device(), 1);
  EXPECT_TRUE(s.is_idle(StreamRef{0, stream}));
  EXPECT_FALSE(s.is_idle(other)) << "the second device was made to wait";
  EXPECT_EQ(s.stats(0).reserved_bytes.all.current, 0);
  EXPECT_EQ(s.sim().get_holdings(0).extents, 0u);
  EXPECT_EQ(s.stats(1).reserved_bytes.all.current, 67'108'864);
  EXPECT_EQ(s.empty_cache(1), StatusCode::kOk);
  EXPECT_TRUE(s.is_idle(other));
  EXPECT_EQ(s.sim().get_holdings(1).extents, 0u);
}

TEST(C27, EmptyingAnExpandableCacheWaitsForItsOwnDeviceOnly) {
  empty_first_device_while_second_is_current(StreamHandle::kLegacy);
}

TEST(C27, EmptyingAnExpandableCacheWaitsForThePerThreadStreamOfItsOwnDevice) {
  empty_first_device_while_second_is_current(StreamHandle::kPerThread);
}

TEST(C29, ABlockThatIsFreedUnderItsKernelsIsHitAgainAndNothingIsUnmapped) {
  constexpr PoolId kPool{0, 1};
  for (const bool is_private : {false, true}) {
    CaptureScenario s(ScenarioOptions::with_expandable());
    s.retain_pool(kPool);
    Address first = 0;
    for (int round = 0; round < 200; ++round) {
      const Address p =
          is_private ? s.malloc_in_pool(58'720'256, kS0, kPool) : s.malloc(58'720'256);
      if (round == 0) {
        first = p;
        s.sim().reset_call_counts();
      }
      ASSERT_EQ(p, first);
      static_cast<void>(s.sim().submit_work({0, kS0}, sim::WorkTime::lasting_us(10'000)));
      s.free(p);
    }
    EXPECT_EQ(s.sim().call_count(), s.calls(DriverEntry::kGetCaptureStatus));
    EXPECT_EQ(s.reserved(), 58'720'256u);
    EXPECT_FALSE(s.is_idle(kS0));
  }
}

// Nothing stays mapped from round to round: each unmap waits for the kernels of its own.
TEST(C29, ABlockIsUnmappedOnlyBehindItsKernels) {
  Scenario s(ScenarioOptions::with_expandable());
  for (int round = 0; round < 200; ++round) {
    const Address p = s.malloc(58'720'256);
    s.busy(kS0);
    s.free(p);
    ASSERT_EQ(s.empty_cache(), StatusCode::kOk);
    ASSERT_TRUE(s.is_idle(kS0));
    ASSERT_EQ(s.reserved(), 0u);
    ASSERT_EQ(s.sim().get_holdings(0).mappings, 0u);
  }
}

TEST(C39, APoolWithFunctionsOfItsOwnIsServedByThemAlone) {
  constexpr PoolId kPool{0, 1};
  CaptureScenario s(ScenarioOptions::with_expandable());
  Bytes given = 0, returned = 0;
  PoolOptions options;
  options.backend.allocate = [&](Bytes bytes, StreamRef) {
    given += bytes;
    return s.sim().allocate(0, bytes).value;
  };
  options.backend.free = [&](Address address, Bytes bytes, StreamRef) {
    returned += bytes;
    EXPECT_EQ(s.sim().free(0, address), DriverCode::kSuccess);
  };
  s.retain_pool(kPool, options);
  for (int i = 0; i < 4; ++i) {
    const Address block = s.malloc_in_pool(67'108'864, kS0, kPool);
    EXPECT_FALSE(s.allocator().find_block(block).value().is_expandable);
  }
  EXPECT_EQ(given, 268'435'456u);
  EXPECT_EQ(s.calls(DriverEntry::kCreateExtent), 0u);
  EXPECT_EQ(s.calls(DriverEntry::kReserveAddresses), 0u);
  s.free_all();
  s.release_pool(kPool);
  EXPECT_EQ(returned, 268'435'456u);
  EXPECT_EQ(s.reserved(), 0u);
}

// Where extents of another size than the request's pages would pass the limit, too.
TEST(C58, TheSequenceThatFragmentsPlainSegmentsSucceeds) {
  Scenario s(ScenarioOptions::with_expandable(1'073'741'824));
  s.free(s.malloc(1'006'632'960));
  std::vector<Address> blocks;
  for (int i = 0; i < 20; ++i)
    blocks.push_back(s.malloc(50'331'648));
  for (std::size_t i = 0; i < blocks.size(); i += 2)
    s.free(blocks[i]);
  EXPECT_NE(s.malloc(134'217'728), 0u);
  EXPECT_EQ(s.stats().num_ooms, 0);
  EXPECT_LE(s.reserved(), 1'073'741'824u);
}

// C95: eight streams, whose kernels of 10 ms use a block that is freed when they are launched.
class C95Expandable : public testing::Test {
 protected:
  static constexpr std::size_t kStreams = 8;
  static constexpr int kLaunches = 50;
  static constexpr std::uint64_t kKernelUs = 10'000;

  C95Expandable() : s_(ScenarioOptions::with_expandable()) {
    for (std::size_t i = 0; i < kStreams; ++i)
      streams_.push_back(s_.make_stream());
  }
  void launch_on_all() {
    for (const StreamHandle stream : streams_) {
      const Address p = s_.malloc(size_, stream);
      static_cast<void>(s_.sim().submit_work({0, stream}, sim::WorkTime::lasting_us(kKernelUs)));
      s_.free(p);
    }
  }
  // In kernels one after the other.
  std::uint64_t run_launches() {
    launch_on_all();
    s_.sim().reset_call_counts();
    for (int i = 1; i < kLaunches; ++i)
      launch_on_all();
    for (const DriverEntry entry :
         {DriverEntry::kCreateExtent, DriverEntry::kReleaseExtent, DriverEntry::kUnmap,
          DriverEntry::kAllocate, DriverEntry::kFree, DriverEntry::kSynchronizeEvent}) {
      EXPECT_EQ(s_.calls(entry), 0u) << get_name(entry);
    }
    EXPECT_EQ(s_.sim().now_ns(), 0u) << "the host was made to wait";
    for (const StreamHandle stream : streams_)
      static_cast<void>(s_.sim().user_synchronizes({0, stream}));
    return s_.sim().now_ns() / (kKernelUs * 1000);
  }

  Scenario s_;
  std::vector<StreamHandle> streams_;
  Bytes size_ = 4'194'304;
};

TEST_F(C95Expandable, StreamsThatDoNotWaitForEachOtherOverlap) {
  s_.configure([](Config& config) { config.cross_stream_reuse = CrossStreamReuse::kIdle; });
  EXPECT_EQ(run_launches(), kLaunches);
  EXPECT_EQ(s_.reserved(), kStreams * 4'194'304);
  EXPECT_EQ(s_.stats().stream_waits, 0);
}

TEST_F(C95Expandable, StreamsWithLittleMemoryOverlap) {
  EXPECT_EQ(run_launches(), kLaunches);
  EXPECT_EQ(s_.reserved(), kStreams * 4'194'304);
  EXPECT_EQ(s_.stats().stream_waits, 0);
}

// With much memory the default has the least of it, not the most overlap: one block is allocated
// at a time, so one is reserved, and the streams take turns with it. docs/tuning.md sends those
// who mind to cross_stream_reuse:idle.
TEST_F(C95Expandable, StreamsThatMayWaitTakeTurnsWithOneLargeBlock) {
  size_ = 64_MiB;
  EXPECT_EQ(run_launches(), kLaunches * kStreams);
  EXPECT_EQ(s_.reserved(), 64_MiB);
  EXPECT_EQ(s_.stats().stream_waits, static_cast<std::int64_t>(kLaunches * kStreams - 1));
}

}  // namespace
}  // namespace quarry::test
