// SPDX-License-Identifier: Apache-2.0
// Cases from the field about expandable segments whose driver calls fail: nothing is half done,
// nothing is lost, and the next request is served. Each under its number.
#include <memory>
#include <string>

#include "tests/support/scenario.hpp"

namespace quarry::test {
namespace {

// An allocator whose end the test looks at.
struct World {
  SimDriver sim;
  std::unique_ptr<Allocator> allocator =
      Allocator::create(sim, ScenarioOptions::with_expandable().config).value();

  Result<Address> allocate(Bytes bytes) { return allocator->allocate({0, kS0}, bytes); }
  Bytes reserved() {
    return static_cast<Bytes>(allocator->get_stats(0).value().reserved_bytes.all.current);
  }
  void expect_nothing_left() {
    allocator.reset();
    const auto held = sim.get_holdings(0);
    EXPECT_EQ(held.physical_bytes, 0u);
    EXPECT_EQ(held.extents, 0u);
    EXPECT_EQ(held.mappings, 0u);
    EXPECT_EQ(held.reservations, 0u);
    EXPECT_EQ(sim.hazard_count(), 0u);
    EXPECT_EQ(sim.misuse_count(), 0u);
  }
};

constexpr DriverEntry kMappingCalls[] = {DriverEntry::kReserveAddresses,
                                         DriverEntry::kCreateExtent, DriverEntry::kMap,
                                         DriverEntry::kSetAccess};

// A refusal for lack of memory is tried again after all that is cached went back; any other error
// is told at once. Without addresses a plain segment serves.
TEST(C38, AHalfDoneMappingIsTakenBackWhateverCallFails) {
  for (const DriverEntry entry : kMappingCalls) {
    for (const DriverCode code : {DriverCode::kOutOfMemory, DriverCode::kUnknown}) {
      std::uint64_t k = 0;
      int failures = 0;
      for (bool has_failed = true; has_failed;) {
        SCOPED_TRACE(std::string(get_name(entry)) + " " + std::to_string(++k));
        World w;
        w.sim.fail_call(entry, k, code);
        const auto block = w.allocate(104'857'600);
        has_failed = w.sim.injected_fault_count() > 0;
        w.sim.clear_faults();
        if (!block.is_ok()) {
          ++failures;
          EXPECT_EQ(block.code(), StatusCode::kDriverError);
          EXPECT_EQ(w.reserved(), 0u);
          const auto held = w.sim.get_holdings(0);
          EXPECT_EQ(held.extents, 0u);
          EXPECT_EQ(held.mappings, 0u);
        }
        w.allocator->validate();
        EXPECT_TRUE(w.allocate(20'971'520).is_ok());
        w.expect_nothing_left();
      }
      const bool is_fatal =
          code != DriverCode::kOutOfMemory && entry != DriverEntry::kReserveAddresses;
      EXPECT_EQ(failures > 0, is_fatal) << get_name(entry);
    }
  }
}

// The clean-up fails as well. What stays mapped is given back later, or at the end.
TEST(C38, AMappingThatCannotBeTakenBackIsNotLost) {
  for (const DriverEntry cleaning : {DriverEntry::kUnmap, DriverEntry::kReleaseExtent}) {
    for (std::uint64_t k = 1; k <= 3; ++k) {
      SCOPED_TRACE(std::string(get_name(cleaning)) + " " + std::to_string(k));
      World w;
      w.sim.fail_call(DriverEntry::kMap, 4, DriverCode::kUnknown);
      w.sim.fail_call(cleaning, k, DriverCode::kUnknown);
      EXPECT_EQ(w.allocate(104'857'600).code(), StatusCode::kDriverError);
      EXPECT_EQ(w.sim.injected_fault_count(), 2u);
      w.sim.clear_faults();
      EXPECT_EQ(w.reserved(), 0u);
      w.allocator->validate();
      const auto block = w.allocate(20'971'520);
      ASSERT_TRUE(block.is_ok());
      EXPECT_TRUE(w.allocator->free(block.value()).is_ok());
      EXPECT_TRUE(w.allocator->empty_cache(0).is_ok());
      EXPECT_EQ(w.sim.get_holdings(0).extents, 0u);
      EXPECT_EQ(w.sim.get_holdings(0).mappings, 0u);
      w.allocator->validate();
      w.expect_nothing_left();
    }
  }
}

TEST(C38, AnAllocatorWhoseLastCallsFailEndsInSilence) {
  for (const DriverEntry cleaning :
       {DriverEntry::kUnmap, DriverEntry::kReleaseExtent, DriverEntry::kFreeAddresses}) {
    World w;
    EXPECT_TRUE(w.allocate(104'857'600).is_ok());
    w.sim.fail_calls_if(
        cleaning, [](Bytes) { return true; }, DriverCode::kUnknown);
    w.allocator.reset();
    EXPECT_GT(w.sim.injected_fault_count(), 0u);
  }
}

class C43 : public testing::Test {
 protected:
  static ScenarioOptions make_options() {
    return ScenarioOptions::with_expandable(68'719'476'736);
  }
  bool is_expandable(Address address) {
    return s_.allocator().find_block(address).value().is_expandable;
  }
  void refuse_reservations_above(Bytes most) {
    s_.sim().fail_calls_if(
        DriverEntry::kReserveAddresses, [most](Bytes bytes) { return bytes > most; },
        DriverCode::kOutOfMemory);
  }
  Scenario s_{make_options()};
};

TEST_F(C43, ASmallerReservationIsTakenAndAnotherWhenItIsFull) {
  refuse_reservations_above(8'589'934'592);
  const Address first = s_.malloc(104'857'600);
  ASSERT_NE(first, 0u);
  EXPECT_TRUE(is_expandable(first));
  EXPECT_EQ(s_.stats().segment.all.current, 1);
  for (int i = 0; i < 9; ++i) {
    const Address block = s_.malloc(1_GiB);
    ASSERT_NE(block, 0u);
    EXPECT_TRUE(is_expandable(block));
  }
  EXPECT_EQ(s_.stats().segment.all.current, 2);
  EXPECT_EQ(s_.calls(DriverEntry::kAllocate), 1u) << "what the wait for the device needs";
}

// No block of 1 GiB can be had, but a plain one.
TEST_F(C43, WithoutAddressesPlainSegmentsServe) {
  refuse_reservations_above(512_MiB);
  const Address small = s_.malloc(104'857'600);
  EXPECT_TRUE(is_expandable(small));
  const Address large = s_.malloc(1_GiB);
  ASSERT_NE(large, 0u);
  EXPECT_FALSE(is_expandable(large));
  refuse_reservations_above(0);
  const Address none = s_.malloc(400_MiB);
  ASSERT_NE(none, 0u);
  EXPECT_EQ(is_expandable(none),
            500_MiB <= s_.allocator().find_block(small).value().segment_bytes);
}

TEST_F(C43, TheFallbackIsLoggedOnce) {
  refuse_reservations_above(0);
  testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i)
    EXPECT_NE(s_.malloc(1_GiB), 0u);
  const std::string log = testing::internal::GetCapturedStderr();
  const std::size_t first = log.find("event=no_addresses");
  ASSERT_NE(first, std::string::npos) << log;
  EXPECT_EQ(log.find("event=no_addresses", first + 1), std::string::npos) << log;
}

TEST_F(C43, TwoHundredStreamsShareTheAddressesThatThereAre) {
  ScenarioOptions options = make_options();
  options.sim.address_space_bytes = 1_GiB * 1024;
  Scenario s(options);
  for (int i = 0; i < 200; ++i)
    ASSERT_NE(s.malloc(2'097'152, s.make_stream()), 0u);
  EXPECT_EQ(s.stats().segment.all.current, 1);
  EXPECT_EQ(s.reserved(), 200u * 2'097'152);
}

// What an allocation finds, each a way through the allocator with driver calls of its own.
struct Way {
  const char* name;
  void (*prepare)(Scenario&);
};

// Idle extents lie apart from each other: the request is served by moving them.
void leave_idle_extents_apart(Scenario& s) {
  std::vector<Address> blocks;
  for (int i = 0; i < 32; ++i)
    blocks.push_back(s.malloc(2_MiB));
  for (std::size_t i = 0; i < blocks.size(); i += 2)
    s.free(blocks[i]);
}
void leave_memory_of_a_busy_stream(Scenario& s) {
  const StreamHandle side = s.make_stream();
  const Address block = s.malloc(33'554'432, side);
  static_cast<void>(s.sim().submit_work({0, side}, sim::WorkTime::lasting_us(1000)));
  s.free(block);
}
void leave_a_pending_block(Scenario& s) {
  const StreamHandle side = s.make_stream();
  const Address block = s.malloc(33'554'432);
  s.record(block, side);
  static_cast<void>(s.sim().submit_work({0, side}, sim::WorkTime::lasting_us(1000)));
  s.free(block);
}
void leave_no_room(Scenario& s) {
  leave_memory_of_a_busy_stream(s);
  s.configure([](Config& config) { config.cross_stream_reuse = CrossStreamReuse::kOff; });
  EXPECT_TRUE(s.allocator().set_limit(0, s.reserved()).is_ok());
}
constexpr Way kWays[] = {{"grows", [](Scenario&) {}},
                         {"moves", leave_idle_extents_apart},
                         {"waits for a stream", leave_memory_of_a_busy_stream},
                         {"waits for a use", leave_a_pending_block},
                         {"gives back", leave_no_room}};

TEST(C74, NoFailedCallOfAMallocLosesExpandableMemory) {
  for (const Way& way : kWays) {
    for (const DriverCode code : {DriverCode::kOutOfMemory, DriverCode::kUnknown}) {
      std::uint64_t k = 0;
      for (bool has_failed = true; has_failed;) {
        SCOPED_TRACE(std::string("a malloc that ") + way.name + ", call " + std::to_string(++k));
        ASSERT_LT(k, 500u);
        Scenario s(ScenarioOptions::with_expandable());
        way.prepare(s);
        s.sim().fail_any_call(k, code);
        const Address block = s.malloc(33'554'432);
        has_failed = s.sim().injected_fault_count() > 0;
        s.sim().clear_faults();
        if (block == 0) {
          EXPECT_TRUE(s.last_code() == StatusCode::kDriverError ||
                      s.last_code() == StatusCode::kOutOfMemory);
        }
        s.allocator().validate();
        const Address again =
            s.malloc(way.prepare == leave_no_room && block != 0 ? 512 : 33'554'432);
        EXPECT_TRUE(again != 0 || (way.prepare == leave_no_room && block != 0))
            << s.last_message();
        s.free_all();
        EXPECT_EQ(s.empty_cache(), StatusCode::kOk);
        const auto held = s.sim().get_holdings(0);
        EXPECT_EQ(held.extents, 0u);
        EXPECT_EQ(held.mappings, 0u);
        EXPECT_EQ(s.reserved(), 0u);
      }
      EXPECT_GT(k, 3u) << "the way makes driver calls";
    }
  }
}

}  // namespace
}  // namespace quarry::test
