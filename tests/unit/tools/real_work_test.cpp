// SPDX-License-Identifier: Apache-2.0
// What a replay on a real device asks of it, tried on a simulated one: which blocks are touched
// where and when, and what becomes of the findings.
#include "tools/real_work.hpp"

#include <gtest/gtest.h>

#include <map>

#include "sim/sim_driver.hpp"
#include "tools/replayer.hpp"

namespace quarry::tools {
namespace {

// What the toucher was asked, in order, as text: "fill 0 on 1" (allocation 0, stream 1 of those
// made), and the memory that its kernels would see.
struct Touches {
  std::vector<std::string> calls;
  std::map<Address, std::uint64_t> contents;  // by block: the number that filled it
  std::uint64_t wrong_blocks = 0;
  DriverCode fails_with = DriverCode::kSuccess;
};

class RecordingToucher final : public cuda::BlockToucher {
 public:
  RecordingToucher(SimDriver& driver, Touches& touches) : driver_(driver), touches_(touches) {}

  DriverResult<StreamRef> create_stream() noexcept override {
    const StreamRef stream = driver_.create_stream(0, sim::StreamKind::kNonBlocking);
    streams_.push_back(stream);
    return stream;
  }
  DriverCode fill(const cuda::TouchedBlock& block, StreamRef stream) noexcept override {
    touches_.contents[block.address] = block.number;
    return note("fill " + std::to_string(block.number) + " on " + name(stream));
  }
  DriverCode check(const cuda::TouchedBlock& block, StreamRef stream) noexcept override {
    touches_.wrong_blocks += touches_.contents[block.address] != block.number ? 1 : 0;
    return note("check " + std::to_string(block.number) + " on " + name(stream));
  }
  DriverCode order(StreamRef before, StreamRef after) noexcept override {
    return note("order " + name(before) + " before " + name(after));
  }
  DriverCode synchronize(StreamRef stream) noexcept override {
    return note("wait for " + name(stream));
  }
  DriverResult<cuda::WrongWords> count_wrong_words() noexcept override {
    return cuda::WrongWords{touches_.wrong_blocks, 0};
  }

 private:
  std::string name(StreamRef stream) const {
    const auto place = std::find(streams_.begin(), streams_.end(), stream);
    return std::to_string(place - streams_.begin());
  }
  DriverCode note(std::string call) {
    touches_.calls.push_back(std::move(call));
    return touches_.fails_with;
  }

  SimDriver& driver_;
  Touches& touches_;
  std::vector<StreamRef> streams_;
};

std::unique_ptr<Replayer> make_replayer(Touches& touches, RealWork::Options real,
                                        bool compare_segments = false) {
  auto driver = std::make_unique<SimDriver>();
  auto toucher = std::make_unique<RecordingToucher>(*driver, touches);
  ReplayOptions options;
  options.config.thread_cache = false;
  options.compare_segments = compare_segments;
  return Replayer::create(options,
                          std::make_unique<RealWork>(std::move(driver), std::move(toucher), real))
      .value();
}

ReplayResult replay(Touches& touches, RealWork::Options real,
                    const std::vector<TraceEvent>& events) {
  const std::unique_ptr<Replayer> replayer = make_replayer(touches, real);
  const Status status = replayer->replay(events);
  EXPECT_EQ(status.message(), "");
  Result<ReplayResult> result = replayer->finish();
  EXPECT_EQ(result.status().message(), "");
  return std::move(result).value();
}

TraceEvent alloc(std::uint64_t id, Bytes bytes, std::uint64_t stream = 0) {
  return {0, id, bytes, stream, TraceOp::kAlloc};
}
TraceEvent free_of(std::uint64_t id) {
  return {0, id, 0, kNoTraceStream, TraceOp::kFree};
}
TraceEvent record(std::uint64_t id, std::uint64_t stream) {
  return {0, id, 0, stream, TraceOp::kRecordStream};
}

using Calls = std::vector<std::string>;

TEST(RealWork, FillsABlockWhenItIsAllocatedAndChecksItBeforeItIsFreed) {
  Touches touches;
  const ReplayResult result =
      replay(touches, {true, false}, {alloc(7, 1000), alloc(8, 24, 5), free_of(7), alloc(7, 512)});
  // The last two still live at the end of the trace.
  EXPECT_EQ(touches.calls, (Calls{"fill 0 on 0", "fill 1 on 1", "check 0 on 0", "fill 2 on 0",
                                  "check 2 on 0", "check 1 on 1"}));
  EXPECT_EQ(result.touch->touched_bytes, 2u * (1000 + 24 + 512));
  EXPECT_EQ(result.touch->wrong_words, 0u);
}

TEST(RealWork, TouchesABlockOnEveryRecordedStreamBehindItsOwn) {
  Touches touches;
  replay(touches, {true, false},
         {alloc(1, 512, 0), record(1, 9), record(1, 9), record(1, 0), free_of(1)});
  EXPECT_EQ(touches.calls,
            (Calls{"fill 0 on 0", "order 0 before 1", "check 0 on 1", "order 0 before 1",
                   "check 0 on 1", "check 0 on 0", "check 0 on 1"}));
}

TEST(RealWork, WaitsForRecordedStreamsAfterTheFreeIfInStep) {
  Touches touches;
  const ReplayResult result =
      replay(touches, {false, true}, {alloc(1, 512), alloc(2, 512), record(1, 9), free_of(1)});
  EXPECT_EQ(touches.calls, (Calls{"wait for 1"}));
  EXPECT_FALSE(result.touch.has_value());
}

TEST(RealWork, AsksNothingOfTheDeviceByDefault) {
  Touches touches;
  replay(touches, {}, {alloc(1, 512), record(1, 9), free_of(1)});
  EXPECT_EQ(touches.calls, Calls{});
}

TEST(RealWork, TouchesNoBlockThatDoesNotExist) {
  Touches touches;
  const ReplayResult result =
      replay(touches, {true, true}, {alloc(1, 0), alloc(2, 1ull << 50), record(2, 1), free_of(2)});
  EXPECT_EQ(result.ooms, 1u);
  EXPECT_EQ(touches.calls, Calls{});
  EXPECT_EQ(result.touch->touched_bytes, 0u);
}

TEST(RealWork, ReportsWhatTheChecksFound) {
  Touches touches;
  const std::unique_ptr<Replayer> replayer = make_replayer(touches, {true, false});
  ASSERT_TRUE(replayer->replay(std::vector<TraceEvent>{alloc(1, 512)}).is_ok());
  touches.contents.begin()->second = 99;  // somebody else wrote there
  ASSERT_TRUE(replayer->replay(std::vector<TraceEvent>{free_of(1)}).is_ok());
  EXPECT_EQ(replayer->finish().value().touch->wrong_words, 1u);
}

TEST(RealWork, EndsTheReplayWhenTheDeviceFails) {
  Touches touches;
  const std::unique_ptr<Replayer> replayer = make_replayer(touches, {true, false});
  touches.fails_with = DriverCode::kIllegalAddress;
  const Status status = replayer->replay(std::vector<TraceEvent>{alloc(1, 512), alloc(2, 512)});
  EXPECT_EQ(status.code(), StatusCode::kDriverError);
  EXPECT_EQ(status.message(), "the device failed: CUDA_ERROR_ILLEGAL_ADDRESS (700)");
  EXPECT_EQ(replayer->event_count(), 1u);
}

std::vector<TraceEvent> make_program() {
  std::vector<TraceEvent> events;
  for (std::uint64_t i = 0; i < 3000; ++i) {
    events.push_back(alloc(i, 1_MiB + (i * 7919 % 97) * 64_KiB, i % 3));
    if (i % 5 == 0) events.push_back(record(i, 3 + i % 2));
    if (i >= 20) events.push_back(free_of(i - 20));
  }
  return events;
}

TEST(RealWork, DecidesAsTheSimulatedReplayAndCountsTheSameCalls) {
  ReplayOptions options;
  options.config.thread_cache = false;
  const std::unique_ptr<Replayer> simulated = Replayer::create(options).value();
  ASSERT_TRUE(simulated->replay(make_program()).is_ok());
  const ReplayResult theirs = simulated->finish().value();
  Touches touches;
  const ReplayResult ours = replay(touches, {true, true}, make_program());
  EXPECT_EQ(ours.peak_reserved_bytes, theirs.peak_reserved_bytes);
  EXPECT_EQ(ours.peak_active_bytes, theirs.peak_active_bytes);
  EXPECT_EQ(ours.driver_calls, theirs.driver_calls);
  EXPECT_GT(ours.driver_time_ns, 0u);
  EXPECT_EQ(ours.device_memory_bytes, theirs.device_memory_bytes);
}

TEST(RealWork, ComparesSegmentsToo) {
  Touches touches;
  const std::unique_ptr<Replayer> replayer = make_replayer(touches, {}, true);
  const TraceEvent segment = {0, 0, 20_MiB, 0, TraceOp::kSegmentAlloc};
  ASSERT_TRUE(replayer->replay(std::vector<TraceEvent>{segment, alloc(1, 5_MiB)}).is_ok());
  const ReplayResult result = replayer->finish().value();
  EXPECT_EQ(result.equal_segments, 1u);
  EXPECT_EQ(result.segment_difference, "");
}

TEST(CountingDriver, KnowsWhatIsHeld) {
  CountingDriver driver(std::make_unique<SimDriver>());
  const Address first = driver.allocate(0, 2_MiB).value;
  const Address second = driver.allocate(0, 4_MiB).value;
  const EventHandle event = driver.create_event(0).value;
  EXPECT_EQ(driver.held_bytes(), 6_MiB);
  EXPECT_EQ(driver.held_events(), 1u);
  EXPECT_EQ(driver.free(0, first), DriverCode::kSuccess);
  EXPECT_EQ(driver.free(0, first), DriverCode::kInvalidValue);
  EXPECT_EQ(driver.destroy_event(event), DriverCode::kSuccess);
  EXPECT_EQ(driver.held_bytes(), 4_MiB);
  EXPECT_EQ(driver.held_events(), 0u);
  EXPECT_EQ(driver.free(0, second), DriverCode::kSuccess);
  EXPECT_FALSE(driver.allocate(0, 1ull << 50).is_ok());
  EXPECT_EQ(driver.held_bytes(), 0u);
  EXPECT_EQ(driver.call_count(), 8u);
}

}  // namespace
}  // namespace quarry::tools
