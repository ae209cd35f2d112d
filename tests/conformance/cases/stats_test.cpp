// SPDX-License-Identifier: Apache-2.0
// Cases from the field about statistics that lie. Each under its number and with its figures. Owns
// nothing but its scenarios and threads.
#include <thread>

#include "tests/support/scenario.hpp"

namespace quarry::test {
namespace {

TEST(C64, PeakResetLeavesTheLiveCountersAlone) {
  Scenario s;
  const Address a = s.malloc(4'194'304);
  ASSERT_TRUE(s.allocator().reset_peak_stats(0).is_ok());
  DeviceStats stats = s.stats();
  EXPECT_EQ(stats.allocated_bytes.all.current, 4'194'304);
  EXPECT_EQ(stats.allocated_bytes.all.peak, 4'194'304);
  EXPECT_EQ(stats.allocation.all.allocated, 1);

  s.free(s.malloc(8'388'608));
  stats = s.stats();
  EXPECT_EQ(stats.allocated_bytes.all.peak, 12'582'912);
  EXPECT_EQ(stats.allocated_bytes.all.current, 4'194'304);

  ASSERT_TRUE(s.allocator().reset_peak_stats(0).is_ok());
  s.free(a);
  stats = s.stats();
  EXPECT_EQ(stats.allocated_bytes.all.current, 0);
  EXPECT_EQ(stats.allocated_bytes.all.peak, 4'194'304);
  EXPECT_EQ(stats.allocation.all.allocated, 2);
  EXPECT_EQ(stats.allocation.all.freed, 2);
  for (const NamedValue& value : flatten(stats)) {
    const bool is_setting = value.name == "max_split_size";  // -1: unlimited
    EXPECT_TRUE(is_setting || value.value >= 0) << value.name;
  }
}

void expect_nothing_cached(Scenario& s) {
  const DeviceStats stats = s.stats();
  EXPECT_EQ(stats.segment.all.current, 0);
  EXPECT_EQ(stats.reserved_bytes.all.current, 0);
  EXPECT_EQ(stats.allocation.all.current, 0);
  EXPECT_EQ(stats.active.all.current, 0);
  EXPECT_EQ(stats.inactive_split.all.current, 0);
  EXPECT_EQ(stats.cached_bytes, 0);
  EXPECT_EQ(stats.largest_free_block, 0);
  EXPECT_EQ(s.sim().get_holdings(0).plain_allocations, 0u);
}

TEST(C65, NothingIsCountedAfterAFullFlush) {
  Scenario s;
  s.free(s.malloc(128));
  EXPECT_EQ(s.empty_cache(), StatusCode::kOk);
  expect_nothing_cached(s);
}

TEST(C65, FailedReleaseIsReportedAndLeavesNoLockHeld) {
  Scenario s;
  const Address y = s.malloc(4'194'304);
  s.free(y);
  s.sim().fail_call(DriverEntry::kFree, 1, DriverCode::kUnknown);
  EXPECT_EQ(s.empty_cache(), StatusCode::kDriverError);
  EXPECT_NE(s.last_message().find("999"), std::string::npos) << s.last_message();

  // The segment that the driver would not take is listed as before.
  DeviceStats stats = s.stats();
  EXPECT_EQ(stats.driver_free_failures, 1);
  EXPECT_EQ(stats.num_device_free, 0);
  EXPECT_EQ(stats.segment.all.current, 1);
  EXPECT_EQ(stats.reserved_bytes.all.current, 20'971'520);
  EXPECT_EQ(stats.cached_bytes, 20'971'520);

  // A lock left held would keep this from ending.
  Address other = 0;
  std::thread([&] { other = s.malloc(512); }).join();
  EXPECT_NE(other, 0u);
  EXPECT_EQ(s.malloc(4'194'304), y);

  s.free(y);
  s.free(other);
  EXPECT_EQ(s.empty_cache(), StatusCode::kOk);
  expect_nothing_cached(s);
}

TEST(C70, SizedFreeIsAccountedByTheRecordedSize) {
  Scenario s;
  Allocator& allocator = s.allocator();
  for (const Bytes wrong : {Bytes{2000}, Bytes{0}, Bytes{1024}}) {
    const Address p = allocator.allocate({0, kS0}, 1000).value();
    EXPECT_EQ(s.allocated(), 1024u);
    EXPECT_EQ(allocator.free_sized(p, wrong).code(), StatusCode::kSizeMismatch);
    EXPECT_EQ(s.allocated(), 0u);
    EXPECT_EQ(s.stats().requested_bytes.all.current, 0);
  }
  EXPECT_EQ(s.stats().size_mismatches, 3);
  const Address p = allocator.allocate({0, kS0}, 1000).value();
  EXPECT_TRUE(allocator.free_sized(p, 1000).is_ok());
  EXPECT_EQ(s.stats().size_mismatches, 3);
  EXPECT_EQ(s.allocated(), 0u);
}

TEST(C70, InteriorAndForeignPointersAreRefusedAndChangeNothing) {
  Scenario s;
  const Address q = s.malloc(1000);
  const int on_the_host = 0;
  const auto host_address = reinterpret_cast<Address>(&on_the_host);
  for (const Address wrong : {q + 256, q + 1, q + 1023, host_address, q - 1}) {
    EXPECT_EQ(s.allocator().free(wrong).code(), StatusCode::kInvalidPointer) << wrong - q;
    EXPECT_EQ(s.allocator().free_sized(wrong, 1000).code(), StatusCode::kInvalidPointer);
  }
  EXPECT_EQ(s.stats().invalid_frees, 10);
  EXPECT_EQ(s.stats().size_mismatches, 0);
  EXPECT_EQ(s.allocated(), 1024u);
  EXPECT_EQ(s.free(q), StatusCode::kOk);
  // Inside memory that was freed, any address counts as freed already.
  EXPECT_EQ(s.allocator().free(q + 256).code(), StatusCode::kDoubleFree);
  EXPECT_EQ(s.allocated(), 0u);
}

}  // namespace
}  // namespace quarry::test
