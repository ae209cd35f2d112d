// SPDX-License-Identifier: Apache-2.0
#include "core/fence.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <future>
#include <thread>

#include "sim/sim_driver.hpp"

namespace quarry {
namespace {

class FencesTest : public testing::Test {
 protected:
  ~FencesTest() override {
    for (const sim::Misuse& misuse : sim_.get_misuses())
      ADD_FAILURE() << misuse.text;
    EXPECT_TRUE(sim_.get_lost_captures().empty());
    fences_.destroy_events();
    EXPECT_EQ(sim_.get_holdings(0).events, 0u);
  }
  StreamRef make_stream(sim::StreamKind kind = sim::StreamKind::kNonBlocking) {
    return sim_.create_stream(0, kind);
  }
  Stream& meet(StreamRef stream) { return table_.find_or_add(stream.handle); }
  Block& guard(Stream& stream) {
    CaptureModeBracket bracket(sim_);
    Block& block = blocks_.emplace_back();
    fences_.guard(block, stream);
    return block;
  }
  std::vector<Block*> collect() {
    CaptureModeBracket bracket(sim_);
    std::vector<Block*> done;
    fences_.collect(done, drained_);
    return done;
  }
  StatusCode retire(Stream& stream) {
    CaptureModeBracket bracket(sim_);
    Status status = fences_.retire(stream);
    if (status.is_ok()) table_.forget_handle(stream);
    return status.code();
  }
  void busy(StreamRef stream) {
    EXPECT_EQ(sim_.submit_work(stream, sim::WorkTime::endless()), DriverCode::kSuccess);
  }

  using Done = std::vector<Block*>;
  SimDriver sim_;
  StreamTable table_{0};
  Fences fences_{sim_, 0};
  std::deque<Block> blocks_;
  std::vector<Stream*> drained_;
};

TEST_F(FencesTest, ABlockWaitsForWhatWasSubmittedBefore) {
  const StreamRef s = make_stream();
  busy(s);
  Block& block = guard(meet(s));
  EXPECT_EQ(block.pending_fences, 1u);
  EXPECT_EQ(collect(), Done{});
  EXPECT_FALSE(fences_.is_idle());
  sim_.complete(s);
  EXPECT_EQ(collect(), Done{&block});
  EXPECT_EQ(block.pending_fences, 0u);
  EXPECT_TRUE(fences_.is_idle());
}

TEST_F(FencesTest, ABlockDoesNotWaitForWhatIsSubmittedAfterwards) {
  const StreamRef s = make_stream();
  Block& block = guard(meet(s));
  busy(s);
  EXPECT_EQ(collect(), Done{&block});
}

TEST_F(FencesTest, ABlockOfTwoStreamsWaitsForBoth) {
  const StreamRef s1 = make_stream(), s2 = make_stream();
  busy(s1);
  busy(s2);
  Block& block = guard(meet(s1));
  fences_.guard(block, meet(s2));
  EXPECT_EQ(block.pending_fences, 2u);
  EXPECT_EQ(fences_.outstanding_count(), 2);
  sim_.complete(s2);
  EXPECT_EQ(collect(), Done{});
  EXPECT_EQ(block.pending_fences, 1u);
  sim_.complete(s1);
  EXPECT_EQ(collect(), Done{&block});
  EXPECT_EQ(fences_.outstanding_count(), 0);
}

TEST_F(FencesTest, FencesOfAStreamPassFromTheOldest) {
  const StreamRef s = make_stream();
  Block& first = guard(meet(s));
  busy(s);
  Block& second = guard(meet(s));
  EXPECT_EQ(collect(), Done{&first});
  sim_.complete(s);
  EXPECT_EQ(collect(), Done{&second});
}

TEST_F(FencesTest, EventsAreUsedAgainForEver) {
  const StreamRef s = make_stream();
  for (int i = 0; i < 1000; ++i) {
    Block& block = guard(meet(s));
    EXPECT_EQ(collect(), Done{&block});
  }
  EXPECT_EQ(sim_.call_count(DriverEntry::kCreateEvent), 1u);
  EXPECT_EQ(sim_.call_count(DriverEntry::kRecordEvent), 1000u);
  EXPECT_EQ(sim_.get_holdings(0).events, 1u);
}

// One query a stream and not one a fence: a hot loop behind a busy stream stays cheap.
TEST_F(FencesTest, ABusyStreamCostsOneQueryHoweverManyFencesWait) {
  const StreamRef s = make_stream();
  busy(s);
  for (int i = 0; i < 100; ++i)
    guard(meet(s));
  sim_.reset_call_counts();
  EXPECT_EQ(collect(), Done{});
  EXPECT_EQ(sim_.call_count(DriverEntry::kQueryEvent), 1u);
  sim_.complete(s);
  EXPECT_EQ(collect().size(), 100u);
}

TEST_F(FencesTest, NothingIsRecordedOnACapturingStreamUntilItsCaptureEnds) {
  for (const CaptureMode mode :
       {CaptureMode::kGlobal, CaptureMode::kThreadLocal, CaptureMode::kRelaxed}) {
    const StreamRef s = make_stream();
    ASSERT_EQ(sim_.begin_capture(s, mode), DriverCode::kSuccess);
    sim_.reset_call_counts();
    Block& block = guard(meet(s));
    EXPECT_EQ(collect(), Done{});
    EXPECT_EQ(fences_.open_count(), 1);
    EXPECT_EQ(fences_.outstanding_count(), 0);
    EXPECT_EQ(sim_.call_count(DriverEntry::kRecordEvent), 0u);
    EXPECT_TRUE(sim_.end_capture(s).is_ok()) << "the capture survived";
    EXPECT_EQ(collect(), Done{&block});
    EXPECT_EQ(fences_.open_count(), 0);
  }
}

TEST_F(FencesTest, NothingIsRecordedOnTheLegacyStreamWhileABlockingStreamCaptures) {
  const StreamRef s = make_stream(sim::StreamKind::kBlocking);
  Stream& legacy = table_.find_or_add(StreamHandle::kLegacy);
  ASSERT_EQ(sim_.begin_capture(s, CaptureMode::kRelaxed), DriverCode::kSuccess);
  Block& block = guard(legacy);
  EXPECT_EQ(collect(), Done{});
  EXPECT_EQ(retire(legacy), StatusCode::kBusy);
  EXPECT_EQ(fences_.open_count(), 1);
  EXPECT_TRUE(sim_.end_capture(s).is_ok());
  EXPECT_EQ(collect(), Done{&block});
}

TEST_F(FencesTest, BlocksGuardedWhileSealingIsForbiddenShareOneFence) {
  const StreamRef s = make_stream();
  ASSERT_EQ(sim_.begin_capture(s, CaptureMode::kGlobal), DriverCode::kSuccess);
  Block& first = guard(meet(s));
  Block& second = guard(meet(s));
  EXPECT_TRUE(sim_.end_capture(s).is_ok());
  sim_.reset_call_counts();
  EXPECT_EQ(collect(), (Done{&first, &second}));
  EXPECT_EQ(sim_.call_count(DriverEntry::kRecordEvent), 1u);
}

TEST_F(FencesTest, APerThreadStreamIsSealedByItsOwnThreadOnly) {
  std::promise<Stream*> met;
  std::promise<Block*> guarded;
  std::thread owner([&] {
    met.set_value(&table_.find_or_add(StreamHandle::kPerThread));
    Block* const block = guarded.get_future().get();
    EXPECT_EQ(collect(), Done{block}) << "its own thread seals";
  });
  // This thread frees a block that the other thread's stream has used.
  Stream& theirs = *met.get_future().get();
  Block& block = guard(theirs);
  EXPECT_EQ(collect(), Done{});
  EXPECT_EQ(fences_.open_count(), 1);
  EXPECT_EQ(sim_.call_count(DriverEntry::kRecordEvent), 0u);
  EXPECT_EQ(retire(theirs), StatusCode::kInvalidArgument);
  EXPECT_EQ(theirs.life, StreamLife::kLive);
  guarded.set_value(&block);
  owner.join();
  EXPECT_TRUE(fences_.is_idle());
}

TEST_F(FencesTest, APerThreadStreamThatIsBusyHoldsItsBlocks) {
  Block* block = nullptr;
  std::thread([&] {
    const StreamRef mine = sim_.get_per_thread_stream(0, sim::get_this_thread());
    Stream& stream = table_.find_or_add(StreamHandle::kPerThread);
    busy(mine);
    block = &guard(stream);
    EXPECT_EQ(fences_.open_count(), 0) << "sealed at once by its thread";
    EXPECT_EQ(collect(), Done{});
    sim_.complete(mine);
    EXPECT_EQ(retire(stream), StatusCode::kOk);
  }).join();
  EXPECT_EQ(collect(), Done{block}) << "any thread may query";
}

TEST_F(FencesTest, ARetiredStreamIsDrainedWhenItsLastWorkIsDone) {
  const StreamRef s = make_stream();
  Stream& stream = meet(s);
  EXPECT_EQ(sim_.submit_work(s, sim::WorkTime::lasting_us(100)), DriverCode::kSuccess);
  Block& before = guard(stream);
  EXPECT_EQ(retire(stream), StatusCode::kOk);
  EXPECT_EQ(stream.life, StreamLife::kRetired);
  EXPECT_EQ(sim_.destroy_stream(s), DriverCode::kSuccess);
  Block& after = guard(stream);  // a block that was used there is freed later
  EXPECT_EQ(collect(), Done{});
  EXPECT_TRUE(drained_.empty());
  sim_.advance_by_us(200);
  EXPECT_EQ(collect(), (Done{&before, &after}));
  EXPECT_EQ(drained_, std::vector<Stream*>{&stream});
  EXPECT_EQ(stream.life, StreamLife::kDrained);
  EXPECT_EQ(guard(stream).pending_fences, 0u) << "there is nothing to wait for";
  EXPECT_TRUE(fences_.is_idle());
}

TEST_F(FencesTest, ACapturingStreamIsNotRetiredAndNothingChanges) {
  const StreamRef s = make_stream();
  Stream& stream = meet(s);
  ASSERT_EQ(sim_.begin_capture(s, CaptureMode::kGlobal), DriverCode::kSuccess);
  EXPECT_EQ(retire(stream), StatusCode::kBusy);
  EXPECT_EQ(stream.life, StreamLife::kLive);
  EXPECT_TRUE(fences_.is_idle());
  EXPECT_EQ(stream.open_fence, nullptr);
  EXPECT_TRUE(sim_.end_capture(s).is_ok());
  EXPECT_EQ(retire(stream), StatusCode::kOk);
}

TEST_F(FencesTest, ARefusedRetirementChangesNothing) {
  const StreamRef s = make_stream();
  Stream& stream = meet(s);
  sim_.fail_call(DriverEntry::kRecordEvent, 1, DriverCode::kUnknown);
  EXPECT_EQ(retire(stream), StatusCode::kDriverError);
  EXPECT_EQ(stream.life, StreamLife::kLive);
  EXPECT_TRUE(fences_.is_idle());
  EXPECT_EQ(retire(stream), StatusCode::kOk);
  collect();
  EXPECT_EQ(drained_, std::vector<Stream*>{&stream});
}

TEST_F(FencesTest, AFailedQueryNeverFreesAndIsCountedOnce) {
  const StreamRef s = make_stream();
  Block& block = guard(meet(s));
  sim_.fail_calls_if(
      DriverEntry::kQueryEvent, [](Bytes) { return true; }, DriverCode::kIllegalAddress);
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(collect(), Done{});
  EXPECT_EQ(block.pending_fences, 1u);
  EXPECT_EQ(fences_.failed_count(), 1);
  EXPECT_EQ(fences_.take_last_error(), DriverCode::kIllegalAddress);
  EXPECT_EQ(fences_.take_last_error(), DriverCode::kSuccess) << "told once";
  sim_.clear_faults();
  EXPECT_EQ(collect(), Done{&block});
  fences_.reset_failed_count();
  EXPECT_EQ(fences_.failed_count(), 0);
}

TEST_F(FencesTest, AFailedSealIsTriedAgainAndLosesNoEvent) {
  const StreamRef s = make_stream();
  for (const DriverEntry entry : {DriverEntry::kCreateEvent, DriverEntry::kRecordEvent}) {
    sim_.fail_call(entry, 1, DriverCode::kOutOfMemory);
    Block& block = guard(meet(s));
    EXPECT_EQ(fences_.open_count(), 1);
    EXPECT_EQ(fences_.take_last_error(), DriverCode::kOutOfMemory);
    EXPECT_EQ(collect(), Done{&block});
    sim_.clear_faults();
  }
  EXPECT_EQ(sim_.get_holdings(0).events, 1u);
}

TEST_F(FencesTest, TheNewestEventOfEachStreamCoversAllItsFences) {
  const StreamRef s1 = make_stream(), s2 = make_stream();
  for (const StreamRef s : {s1, s2}) {
    busy(s);
    guard(meet(s));
    busy(s);
    guard(meet(s));
  }
  const std::vector<EventHandle> events = fences_.get_newest_events();
  EXPECT_EQ(events.size(), 2u);
  for (const EventHandle event : events)
    EXPECT_EQ(sim_.synchronize_event(event), DriverCode::kSuccess);
  EXPECT_EQ(collect().size(), 4u);
}

TEST_F(FencesTest, EveryFenceIsVisitedOnce) {
  const StreamRef s1 = make_stream(), s2 = make_stream();
  busy(s1);
  guard(meet(s1));
  guard(meet(s1));
  ASSERT_EQ(sim_.begin_capture(s2, CaptureMode::kRelaxed), DriverCode::kSuccess);
  guard(meet(s2));
  int sealed = 0, open = 0;
  fences_.for_each([&](const Fence& f) { ++(f.event == EventHandle::kNull ? open : sealed); });
  EXPECT_EQ(sealed, 2);
  EXPECT_EQ(open, 1);
  EXPECT_TRUE(sim_.end_capture(s2).is_ok());
}

}  // namespace
}  // namespace quarry
