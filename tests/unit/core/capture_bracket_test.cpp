// SPDX-License-Identifier: Apache-2.0
// Every call that the allocator makes of the driver is made in a relaxed capture bracket, so that
// no capture of the calling thread or another is lost by it; and the thread's own mode is back
// afterwards.
#include <gtest/gtest.h>

#include <set>

#include "core/allocator.hpp"
#include "sim/sim_driver.hpp"
#include "tests/support/forwarding_driver.hpp"

namespace quarry::test {
namespace {

class BracketWatch final : public ForwardingDriver {
 public:
  using ForwardingDriver::ForwardingDriver;

  DriverResult<CaptureMode> exchange_capture_mode(CaptureMode mode) noexcept override {
    std::swap(mode, mode_);
    return ForwardingDriver::exchange_capture_mode(mode_);
  }

  CaptureMode mode() const { return mode_; }
  const std::set<std::string_view>& seen() const { return seen_; }
  const std::set<std::string_view>& unbracketed() const { return unbracketed_; }

 protected:
  DriverCode before(DriverEntry entry) noexcept override {
    // Asking what there is makes no context and touches no stream.
    if (entry == DriverEntry::kGetDeviceCount || entry == DriverEntry::kGetDeviceProperties ||
        entry == DriverEntry::kExchangeCaptureMode) {
      return DriverCode::kSuccess;
    }
    seen_.insert(get_name(entry));
    if (mode_ != CaptureMode::kRelaxed) unbracketed_.insert(get_name(entry));
    return DriverCode::kSuccess;
  }

 private:
  CaptureMode mode_ = CaptureMode::kGlobal;
  std::set<std::string_view> seen_;
  std::set<std::string_view> unbracketed_;
};

// Every way in which the allocator calls the driver: growth, foreign uses, waits for them when
// memory is short, an out-of-memory report, statistics, trimming, the ends of a stream, of a
// thread's streams and of the allocator.
void run_program(Allocator& allocator, StreamRef first, StreamRef second) {
  const Address small = allocator.allocate(first, 4096).value();
  const Address shared = allocator.allocate(first, 40_MiB).value();
  EXPECT_TRUE(allocator.record_stream(shared, second.handle).is_ok());
  EXPECT_TRUE(allocator.free(shared).is_ok());
  EXPECT_TRUE(allocator.allocate(second, 40_MiB).is_ok());
  const Address other = allocator.allocate(StreamRef{0, StreamHandle::kPerThread}, 512).value();
  EXPECT_TRUE(allocator.free(other).is_ok());
  allocator.retire_thread_streams();
  EXPECT_EQ(allocator.allocate(second, 1_GiB).code(), StatusCode::kOutOfMemory);
  EXPECT_TRUE(allocator.get_stats(0).is_ok());
  EXPECT_TRUE(allocator.free_on_stream(small, second.handle).is_ok());
  EXPECT_TRUE(allocator.empty_cache(0).is_ok());
  EXPECT_TRUE(allocator.retire_stream(second).is_ok());
}

TEST(CaptureBracketTest, HoldsEveryCallOfTheDriver) {
  sim::SimOptions options;
  options.physical_bytes = 64_MiB;
  SimDriver sim(options);
  BracketWatch driver(sim);
  const StreamRef first = sim.create_stream(0, sim::StreamKind::kNonBlocking);
  const StreamRef second = sim.create_stream(0, sim::StreamKind::kNonBlocking);
  sim.submit_work(second, sim::WorkTime::lasting_us(100));
  {
    auto allocator = Allocator::create(driver, Config{}).value();
    run_program(*allocator, first, second);
    EXPECT_EQ(driver.mode(), CaptureMode::kGlobal);
  }
  EXPECT_EQ(driver.mode(), CaptureMode::kGlobal);
  EXPECT_EQ(driver.unbracketed(), std::set<std::string_view>{});
  for (const char* entry :
       {"allocate", "free", "create_event", "record_event", "query_event", "synchronize_event",
        "destroy_event", "get_capture_status", "get_memory_info"}) {
    EXPECT_EQ(driver.seen().count(entry), 1u) << entry;
  }
}

}  // namespace
}  // namespace quarry::test
