// SPDX-License-Identifier: Apache-2.0
// The promise of expandable segments, word for word: outside captures a request succeeds whenever
//   limit - (bytes of extents that hold a byte which is live, or pending for ever)
//     >= its size in whole pages + one extent.
// Which extents those are is read off the driver calls, not asked of the allocator.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/allocator.hpp"
#include "core/extent_policy.hpp"
#include "core/size_policy.hpp"
#include "sim/sim_driver.hpp"
#include "tests/model/entropy.hpp"
#include "tests/support/forwarding_driver.hpp"

namespace quarry::model {
namespace {

struct Range {
  Address begin = 0;
  Address end = 0;
};

// Knows where every extent is mapped, and fails calls: one of those that a growth makes after
// some others, and every record on one stream.
class WatchedDriver final : public test::ForwardingDriver {
 public:
  using ForwardingDriver::ForwardingDriver;

  void fail_growth_call(std::uint64_t k) {
    calls_until_failure_ = k;
    has_failed_ = false;
  }
  bool has_failed() const { return has_failed_; }
  void break_stream(StreamRef stream) { broken_ = stream; }

  DriverCode record_event(EventHandle event, StreamRef stream) noexcept override {
    if (broken_ && stream == *broken_) return DriverCode::kUnknown;
    return ForwardingDriver::record_event(event, stream);
  }
  DriverResult<ExtentHandle> create_extent(DeviceId device, Bytes bytes,
                                           ExtentKind kind) noexcept override {
    const auto made = ForwardingDriver::create_extent(device, bytes, kind);
    if (made.is_ok()) sizes_[made.value] = bytes;
    return made;
  }
  DriverCode map(Address address, Bytes bytes, ExtentHandle extent) noexcept override {
    const DriverCode code = ForwardingDriver::map(address, bytes, extent);
    if (code == DriverCode::kSuccess) mapped_[address] = extent;
    return code;
  }
  DriverCode unmap(Address address, Bytes bytes) noexcept override {
    const DriverCode code = ForwardingDriver::unmap(address, bytes);
    if (code == DriverCode::kSuccess)
      mapped_.erase(mapped_.lower_bound(address), mapped_.lower_bound(address + bytes));
    return code;
  }

  // Bytes of the extents under any of the ranges, each counted once.
  Bytes calculate_held(const std::vector<Range>& ranges) const {
    std::map<ExtentHandle, Bytes> held;
    for (const Range& range : ranges) {
      auto at = mapped_.lower_bound(range.begin);
      if (at != mapped_.begin()) --at;  // may reach into the range
      for (; at != mapped_.end() && at->first < range.end; ++at) {
        const Bytes size = sizes_.at(at->second);
        if (at->first + size > range.begin) held[at->second] = size;
      }
    }
    Bytes bytes = 0;
    for (const auto& [extent, size] : held)
      bytes += size;
    return bytes;
  }

 protected:
  DriverCode before(DriverEntry entry) noexcept override {
    const bool is_growth = entry == DriverEntry::kCreateExtent || entry == DriverEntry::kMap ||
                           entry == DriverEntry::kSetAccess ||
                           entry == DriverEntry::kReserveAddresses;
    if (!is_growth || calls_until_failure_ == 0 || --calls_until_failure_ > 0)
      return DriverCode::kSuccess;
    has_failed_ = true;
    return DriverCode::kOutOfMemory;
  }

 private:
  std::map<ExtentHandle, Bytes> sizes_;
  std::map<Address, ExtentHandle> mapped_;
  std::optional<StreamRef> broken_;
  std::uint64_t calls_until_failure_ = 0;
  bool has_failed_ = false;
};

struct Block {
  Range range;
  std::size_t owner = 0;  // stream
  bool is_for_ever = false;
  sim::LifetimeId lifetime{};
};

struct Experiment {
  const char* name;
  Bytes device_bytes;
  bool has_broken_stream;
};
void PrintTo(const Experiment& experiment, std::ostream* out) {
  *out << experiment.name;
}

constexpr std::size_t kStreams = 4;
constexpr PoolId kPool{0, 7};

class Program {
 public:
  Program(const Experiment& experiment, std::uint64_t seed)
      : experiment_(experiment),
        entropy_(seed),
        sim_({.physical_bytes = experiment.device_bytes}),
        driver_(sim_),
        config_(make_config()),
        allocator_(Allocator::create(driver_, config_).value()) {
    for (std::size_t i = 0; i < kStreams; ++i)
      streams_.push_back(sim_.create_stream(0, sim::StreamKind::kNonBlocking));
    if (experiment.has_broken_stream) driver_.break_stream(streams_.back());
    EXPECT_TRUE(allocator_->retain_pool(0, kPool).is_ok());
    choose_limit();
  }

  void run(int operations) {
    for (int i = 0; i < operations && !testing::Test::HasFailure(); ++i) {
      const std::uint64_t kind = entropy_.below(100);
      if (kind < 48) {
        allocate();
      } else if (kind < 88) {
        free();
      } else if (kind < 94) {
        sim_.advance_by_us(entropy_.below(3000));
      } else if (kind < 97) {
        choose_limit();
      } else if (kind < 98) {
        EXPECT_TRUE(allocator_->empty_cache(0).is_ok());
      } else {
        driver_.fail_growth_call(1 + entropy_.below(12));
      }
    }
    EXPECT_EQ(sim_.hazard_count(), 0u);
    EXPECT_EQ(sim_.misuse_count(), 0u);
  }

  int refusals() const { return refusals_; }
  int successes() const { return successes_; }

 private:
  Config make_config() {
    Config config;
    config.expandable_segments = true;
    config.reserve_slack = entropy_.pick({0.0, 0.02, 0.3});
    config.cross_stream_reuse =
        entropy_.pick({CrossStreamReuse::kOff, CrossStreamReuse::kIdle, CrossStreamReuse::kWait});
    config.recycle = entropy_.pick({Recycle::kOff, Recycle::kPassed, Recycle::kStream});
    config.thread_cache = entropy_.chance(50);
    return config;
  }

  void choose_limit() {
    const Bytes part = experiment_.device_bytes * entropy_.pick({50, 75, 90, 200}) / 100;
    EXPECT_TRUE(allocator_->set_limit(0, part).is_ok());
  }

  Bytes choose_size() {
    const Bytes most = experiment_.device_bytes;
    switch (entropy_.below(8)) {
      case 0:
      case 1:
        return 1 + entropy_.below(1_MiB);
      case 2:
        return 1 + entropy_.below(most / 2);
      case 3:
        return 1 + entropy_.below(most / 4);
      default:
        return 1 + entropy_.below(most / 20);
    }
  }

  // Plain memory beside the extents: what the allocator drains the device with.
  static constexpr Bytes kBeside = 2_MiB;

  bool must_succeed(Bytes bytes) {
    std::vector<Range> ranges = for_ever_;
    for (const Block& block : blocks_)
      ranges.push_back(block.range);
    const Bytes held = driver_.calculate_held(ranges);
    const Bytes limit =
        std::min(allocator_->get_limit(0).value(), experiment_.device_bytes - kBeside);
    const auto reserved =
        static_cast<Bytes>(allocator_->get_stats(0).value().reserved_bytes.all.current);
    const Bytes needed = round_up(calculate_block_size(bytes, config_), kExtentPage);
    return held + needed + calculate_extent_size(reserved, {}) <= limit;
  }

  void allocate() {
    const std::size_t owner = entropy_.below(kStreams);
    const Bytes bytes = choose_size();
    const bool is_due = must_succeed(bytes);
    const bool is_pooled = entropy_.chance(20);
    const StreamRef stream = streams_[owner];
    const auto made = is_pooled ? allocator_->allocate_in_pool(stream, bytes, 512, kPool)
                                : allocator_->allocate(stream, bytes);
    const bool has_failed = driver_.has_failed();
    driver_.fail_growth_call(0);
    if (!made.is_ok()) {
      ++refusals_;
      if (has_failed) return;
      EXPECT_FALSE(is_due) << "false out-of-memory for " << bytes << " bytes on stream " << owner
                           << ": " << made.status().message();
      return;
    }
    ++successes_;
    const auto info = allocator_->find_block(made.value());
    ASSERT_TRUE(info.is_ok());
    Block block;
    block.range = {made.value(), made.value() + info.value().bytes};
    block.owner = owner;
    block.lifetime = sim_.begin_lifetime(0, made.value(), bytes, stream);
    use(block, owner);
    blocks_.push_back(block);
  }

  void use(Block& block, std::size_t stream) {
    const auto time = sim::WorkTime::lasting_us(entropy_.below(500));
    sim_.submit_work(streams_[stream], time, {&block.lifetime, 1});
  }

  void free() {
    if (blocks_.empty()) return;
    const std::size_t chosen = entropy_.below(blocks_.size());
    Block block = blocks_[chosen];
    blocks_[chosen] = blocks_.back();
    blocks_.pop_back();
    if (entropy_.chance(30)) {
      const std::size_t other = entropy_.below(kStreams);
      sim_.user_orders(streams_[block.owner], streams_[other]);
      use(block, other);
      EXPECT_TRUE(allocator_->record_stream(block.range.begin, streams_[other].handle).is_ok());
      const bool is_broken = experiment_.has_broken_stream && other == kStreams - 1;
      if (is_broken && other != block.owner) for_ever_.push_back(block.range);
    }
    sim_.end_lifetime(block.lifetime);
    EXPECT_TRUE(allocator_->free(block.range.begin).is_ok());
  }

  const Experiment experiment_;
  Entropy entropy_;
  SimDriver sim_;
  WatchedDriver driver_;
  const Config config_;
  std::unique_ptr<Allocator> allocator_;
  std::vector<StreamRef> streams_;
  std::vector<Block> blocks_;
  std::vector<Range> for_ever_;  // freed, and used by a stream whose work is never seen done
  int refusals_ = 0;
  int successes_ = 0;
};

class NoFalseOomTest : public testing::TestWithParam<Experiment> {};

TEST_P(NoFalseOomTest, ARequestSucceedsWhereverMemoryIsLeft) {
  constexpr int kPrograms = 12;
  constexpr int kOperations = 500;
  int refusals = 0;
  int successes = 0;
  for (std::uint64_t seed = 0; seed < kPrograms && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Program program(GetParam(), seed);
    program.run(kOperations);
    refusals += program.refusals();
    successes += program.successes();
  }
  EXPECT_GT(refusals, kPrograms * kOperations / 100);
  EXPECT_GT(successes, kPrograms * kOperations / 8);
}

INSTANTIATE_TEST_SUITE_P(Devices, NoFalseOomTest,
                         testing::Values(Experiment{"Small", 128_MiB, false},
                                         Experiment{"Middle", 1_GiB, false},
                                         Experiment{"Large", 24_GiB, false},
                                         Experiment{"SmallWithBrokenStream", 128_MiB, true},
                                         Experiment{"LargeWithBrokenStream", 24_GiB, true}),
                         [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace quarry::model
