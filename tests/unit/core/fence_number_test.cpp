// SPDX-License-Identifier: Apache-2.0
// Fences that free memory waits for: their numbers say how far a stream has passed, and `order`
// makes one stream come after another on the device.
#include <gtest/gtest.h>

#include <deque>
#include <thread>

#include "core/fence.hpp"
#include "sim/sim_driver.hpp"

namespace quarry {
namespace {

class FenceNumberTest : public testing::Test {
 protected:
  ~FenceNumberTest() override {
    for (const sim::Misuse& misuse : sim_.get_misuses())
      ADD_FAILURE() << misuse.text;
    EXPECT_TRUE(sim_.get_lost_captures().empty());
    fences_.destroy_events();
  }
  StreamRef make_stream() { return sim_.create_stream(0, sim::StreamKind::kNonBlocking); }
  Stream& meet(StreamRef stream) { return table_.find_or_add(stream.handle); }
  void busy(StreamRef stream) {
    EXPECT_EQ(sim_.submit_work(stream, sim::WorkTime::endless()), DriverCode::kSuccess);
  }
  void cover(Stream& stream) {
    CaptureModeBracket bracket(sim_);
    fences_.cover(stream);
  }
  bool order(const Stream& earlier, const Stream& later) {
    CaptureModeBracket bracket(sim_);
    return fences_.order(earlier, later);
  }
  Block& guard(Stream& stream, Stream& owner) {
    CaptureModeBracket bracket(sim_);
    Block& block = blocks_.emplace_back();
    block.owner = &owner;
    fences_.guard(block, stream);
    return block;
  }
  using Done = std::vector<Block*>;
  Done collect() {
    CaptureModeBracket bracket(sim_);
    Done done;
    fences_.collect(done, drained_);
    return done;
  }
  Done take_ordered(const Stream& owner, const std::vector<Stream*>& earlier) {
    Done done;
    fences_.take_ordered(owner, earlier, done);
    return done;
  }
  // Whether what is submitted to the stream now waits for what is queued elsewhere.
  bool runs_at_once(StreamRef stream) {
    EXPECT_EQ(sim_.submit_work(stream, sim::WorkTime{}), DriverCode::kSuccess);
    sim_.advance_by_us(1);
    return sim_.is_idle(stream);
  }
  std::uint64_t calls(DriverEntry entry) const { return sim_.call_count(entry); }

  SimDriver sim_;
  StreamTable table_{0};
  Fences fences_{sim_, 0};
  std::deque<Block> blocks_;
  std::vector<Stream*> drained_;
};

// --- numbers ---

TEST_F(FenceNumberTest, EachSealedFenceHasTheNextNumberAndPassesInTurn) {
  const StreamRef s = make_stream();
  Stream& stream = meet(s);
  EXPECT_EQ(stream.passed_number, 0u);
  const std::uint64_t first = stream.fence_number;
  EXPECT_GT(first, 0u) << "a block with number 0 was used by nobody";
  cover(stream);
  EXPECT_EQ(stream.fence_number, first + 1);
  busy(s);
  cover(stream);
  EXPECT_EQ(stream.fence_number, first + 2);
  EXPECT_EQ(collect(), Done{});
  EXPECT_EQ(stream.passed_number, first) << "the second waits for the work";
  sim_.complete(s);
  collect();
  EXPECT_EQ(stream.passed_number, first + 1);
}

TEST_F(FenceNumberTest, EachStreamCountsItsOwn) {
  Stream& one = meet(make_stream());
  Stream& two = meet(make_stream());
  const std::uint64_t before = two.fence_number;
  cover(one);
  EXPECT_EQ(two.fence_number, before);
}

TEST_F(FenceNumberTest, AFenceThatCannotBeSealedHasNoNumberYet) {
  const StreamRef s = make_stream();
  Stream& stream = meet(s);
  stream.has_uncovered_frees = true;
  const std::uint64_t first = stream.fence_number;
  ASSERT_EQ(sim_.begin_capture(s, CaptureMode::kGlobal), DriverCode::kSuccess);
  cover(stream);
  cover(stream);
  EXPECT_EQ(stream.fence_number, first) << "what is freed now comes before it, too";
  EXPECT_TRUE(stream.has_uncovered_frees);
  EXPECT_EQ(fences_.open_count(), 1);
  EXPECT_EQ(calls(DriverEntry::kRecordEvent), 0u);
  EXPECT_TRUE(sim_.end_capture(s).is_ok());
  collect();
  EXPECT_EQ(stream.fence_number, first + 1);
  EXPECT_FALSE(stream.has_uncovered_frees);
}

TEST_F(FenceNumberTest, ARefusedEventGivesNoNumber) {
  Stream& stream = meet(make_stream());
  const std::uint64_t first = stream.fence_number;
  sim_.fail_call(DriverEntry::kRecordEvent, 1, DriverCode::kOutOfMemory);
  cover(stream);
  EXPECT_EQ(stream.fence_number, first);
  cover(stream);
  EXPECT_EQ(stream.fence_number, first + 1);
}

TEST_F(FenceNumberTest, ARetiredStreamsLastFenceCoversAllThatIsFreed) {
  const StreamRef s = make_stream();
  Stream& stream = meet(s);
  busy(s);
  {
    CaptureModeBracket bracket(sim_);
    ASSERT_TRUE(fences_.retire(stream).is_ok());
  }
  const std::uint64_t last = stream.newest_fence->number;
  sim_.reset_call_counts();
  cover(stream);
  EXPECT_EQ(calls(DriverEntry::kRecordEvent), 0u) << "the handle may be dead";
  EXPECT_EQ(stream.newest_fence->number, last);
  sim_.complete(s);
  collect();
  EXPECT_EQ(stream.passed_number, last);
  EXPECT_EQ(stream.life, StreamLife::kDrained);
}

// --- who waits ---

TEST_F(FenceNumberTest, AFenceOfFreeMemoryHasNoWaiters) {
  const StreamRef s = make_stream();
  Stream& stream = meet(s);
  EXPECT_FALSE(Fences::has_any(stream));
  busy(s);
  cover(stream);
  EXPECT_TRUE(Fences::has_any(stream));
  EXPECT_FALSE(fences_.is_idle());
  EXPECT_FALSE(fences_.has_waiters());
  Block& block = guard(stream, stream);
  EXPECT_TRUE(fences_.has_waiters());
  sim_.complete(s);
  EXPECT_EQ(collect(), Done{&block});
  EXPECT_FALSE(fences_.has_waiters());
  EXPECT_FALSE(Fences::has_any(stream));
}

TEST_F(FenceNumberTest, TheEndOfAStreamIsWaitedFor) {
  Stream& stream = meet(make_stream());
  {
    CaptureModeBracket bracket(sim_);
    ASSERT_TRUE(fences_.retire(stream).is_ok());
  }
  EXPECT_TRUE(fences_.has_waiters());
  collect();
  EXPECT_FALSE(fences_.has_waiters());
}

// --- order ---

TEST_F(FenceNumberTest, TheLaterStreamComesAfterWhatWasCoveredOnTheDeviceAlone) {
  const StreamRef s1 = make_stream(), s2 = make_stream();
  busy(s1);
  cover(meet(s1));
  EXPECT_TRUE(order(meet(s1), meet(s2)));
  EXPECT_EQ(calls(DriverEntry::kWaitEvent), 1u);
  EXPECT_EQ(calls(DriverEntry::kSynchronizeEvent), 0u);
  EXPECT_FALSE(runs_at_once(s2));
  sim_.complete(s1);
  EXPECT_TRUE(runs_at_once(s2));
}

TEST_F(FenceNumberTest, WhatHasPassedNeedsNoWait) {
  const StreamRef s1 = make_stream(), s2 = make_stream();
  EXPECT_TRUE(order(meet(s1), meet(s2))) << "no fence at all";
  cover(meet(s1));
  EXPECT_TRUE(order(meet(s1), meet(s2))) << "done, though nobody has looked";
  EXPECT_EQ(calls(DriverEntry::kWaitEvent), 0u);
}

TEST_F(FenceNumberTest, ACapturingStreamWaitsForNobody) {
  const StreamRef s1 = make_stream(), s2 = make_stream();
  busy(s1);
  cover(meet(s1));
  ASSERT_EQ(sim_.begin_capture(s2, CaptureMode::kGlobal), DriverCode::kSuccess);
  EXPECT_FALSE(order(meet(s1), meet(s2)));
  EXPECT_EQ(calls(DriverEntry::kWaitEvent), 0u);
  EXPECT_TRUE(sim_.end_capture(s2).is_ok()) << "the capture survived";
}

// Between the record and now a capture may have begun on the earlier stream: its events from
// before are outside of it.
TEST_F(FenceNumberTest, AStreamThatCapturesNowIsWaitedForByItsEarlierFence) {
  const StreamRef s1 = make_stream(), s2 = make_stream();
  busy(s1);
  cover(meet(s1));
  ASSERT_EQ(sim_.begin_capture(s1, CaptureMode::kGlobal), DriverCode::kSuccess);
  EXPECT_TRUE(order(meet(s1), meet(s2)));
  const auto status = sim_.get_capture_status(s2);
  EXPECT_EQ(status.value, CaptureStatus::kNone) << "it has not joined the capture";
  EXPECT_TRUE(sim_.end_capture(s1).is_ok());
}

TEST_F(FenceNumberTest, ARetiredStreamIsWaitedForAndWaitsForNobody) {
  const StreamRef s1 = make_stream(), s2 = make_stream();
  busy(s1);
  Stream& retired = meet(s1);
  {
    CaptureModeBracket bracket(sim_);
    ASSERT_TRUE(fences_.retire(retired).is_ok());
  }
  EXPECT_TRUE(order(retired, meet(s2)));
  EXPECT_FALSE(runs_at_once(s2));
  busy(s2);
  cover(meet(s2));
  sim_.reset_call_counts();
  EXPECT_FALSE(order(meet(s2), retired));
  EXPECT_EQ(sim_.call_count(DriverEntry::kWaitEvent), 0u) << "the handle may be dead";
}

TEST_F(FenceNumberTest, APerThreadStreamIsMadeToWaitByItsOwnThreadOnly) {
  const StreamRef s1 = make_stream();
  busy(s1);
  cover(meet(s1));
  Stream* theirs = nullptr;
  std::thread([&] {
    theirs = &table_.find_or_add(StreamHandle::kPerThread);
    EXPECT_TRUE(order(meet(s1), *theirs));
    EXPECT_FALSE(sim_.is_idle(s1));
  }).join();
  EXPECT_EQ(calls(DriverEntry::kWaitEvent), 1u);
  EXPECT_FALSE(order(meet(s1), *theirs));
  EXPECT_EQ(calls(DriverEntry::kWaitEvent), 1u) << "here the handle is another stream";
}

TEST_F(FenceNumberTest, AnErrorOrdersNothing) {
  const StreamRef s1 = make_stream(), s2 = make_stream();
  busy(s1);
  cover(meet(s1));
  for (const DriverEntry entry :
       {DriverEntry::kWaitEvent, DriverEntry::kQueryEvent, DriverEntry::kGetCaptureStatus}) {
    sim_.fail_call(entry, 1, DriverCode::kUnknown);
    EXPECT_FALSE(order(meet(s1), meet(s2)));
    sim_.clear_faults();
  }
  EXPECT_TRUE(order(meet(s1), meet(s2)));
}

// --- taking what needs no host any more ---

TEST_F(FenceNumberTest, OrderedBlocksOfTheOwnerAreTakenAndOthersStay) {
  const StreamRef s1 = make_stream(), s2 = make_stream();
  Stream &user = meet(s1), &owner = meet(s2), &other = meet(make_stream());
  busy(s1);
  Block& own = guard(user, owner);
  Block& foreign = guard(user, other);
  ASSERT_TRUE(order(user, owner));
  EXPECT_EQ(take_ordered(owner, {&user}), Done{&own});
  EXPECT_EQ(own.pending_fences, 0u);
  EXPECT_EQ(foreign.pending_fences, 1u);
  EXPECT_TRUE(fences_.has_waiters());
  sim_.complete(s1);
  EXPECT_EQ(collect(), Done{&foreign}) << "and not the other a second time";
  EXPECT_FALSE(fences_.has_waiters());
}

TEST_F(FenceNumberTest, ABlockOfTwoUsersIsTakenWhenBothAreOrdered) {
  const StreamRef s1 = make_stream(), s2 = make_stream(), s3 = make_stream();
  Stream &one = meet(s1), &two = meet(s2), &owner = meet(s3);
  busy(s1);
  busy(s2);
  Block& block = guard(one, owner);
  {
    CaptureModeBracket bracket(sim_);
    fences_.guard(block, two);
  }
  EXPECT_EQ(take_ordered(owner, {&one}), Done{});
  EXPECT_EQ(block.pending_fences, 1u);
  EXPECT_EQ(take_ordered(owner, {&two}), Done{&block});
  EXPECT_FALSE(fences_.has_waiters());
  sim_.complete(s1);
  sim_.complete(s2);
  EXPECT_EQ(collect(), Done{});
}

// Whoever has been ordered after all of them may have these blocks, and no other.
TEST_F(FenceNumberTest, ChosenWaitersAreTakenFromEveryFence) {
  const StreamRef s1 = make_stream(), s2 = make_stream();
  Stream &one = meet(s1), &two = meet(s2), &owner = meet(make_stream());
  busy(s1);
  busy(s2);
  Block& chosen = guard(one, owner);
  Block& other = guard(two, owner);
  {
    CaptureModeBracket bracket(sim_);
    fences_.guard(chosen, two);
  }
  Done done;
  fences_.take_waiters({&chosen}, done);
  EXPECT_EQ(done, Done{&chosen}) << "once, though two fences listed it";
  EXPECT_EQ(chosen.pending_fences, 0u);
  EXPECT_EQ(other.pending_fences, 1u);
  sim_.complete(s1);
  sim_.complete(s2);
  EXPECT_EQ(collect(), Done{&other});
  EXPECT_FALSE(fences_.has_waiters());
}

// What a fence that is still open covers is not ordered by the one before it.
TEST_F(FenceNumberTest, WaitersOfAnOpenFenceAreNotTaken) {
  const StreamRef s1 = make_stream();
  Stream &user = meet(s1), &owner = meet(make_stream());
  busy(s1);
  Block& sealed = guard(user, owner);
  ASSERT_EQ(sim_.begin_capture(s1, CaptureMode::kRelaxed), DriverCode::kSuccess);
  Block& open = guard(user, owner);
  ASSERT_TRUE(order(user, owner));
  EXPECT_EQ(take_ordered(owner, {&user}), Done{&sealed});
  EXPECT_EQ(open.pending_fences, 1u);
  EXPECT_TRUE(sim_.end_capture(s1).is_ok());
  sim_.complete(s1);
  EXPECT_EQ(collect(), Done{&open});
}

}  // namespace
}  // namespace quarry
