// SPDX-License-Identifier: Apache-2.0
// Case C62: a recorded run, written to a trace, read back and replayed on a fresh device, decides
// everything as the recorded one did. Of the case's log, threads, completed work, empty_cache and
// captures have no rows in this version of the format, and a row has no status; the test keeps the
// statuses beside the trace. Owns its scenarios.
#include <algorithm>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/scenario.hpp"
#include "tests/unit/trace/trace_text.hpp"
#include "tools/replayer.hpp"

namespace quarry::test {
namespace {

constexpr Bytes kCap = 1'073'741'824;

// Where a block lies, apart from the driver's addresses: the how-manieth segment, and the offset.
struct Place {
  std::size_t segment = 0;
  Bytes offset = 0;
  Bytes bytes = 0;
  friend bool operator==(const Place&, const Place&) = default;
};

// What one event did.
struct Step {
  StatusCode status = StatusCode::kOk;
  Place place;                       // of an allocation that succeeded
  std::uint64_t segment_allocs = 0;  // driver calls so far, the refused ones too
  std::uint64_t segment_frees = 0;
  friend bool operator==(const Step&, const Step&) = default;
};

// Runs a program's calls and writes them down.
class Recorder {
 public:
  explicit Recorder(Bytes cap) : s_(cap) {}

  StatusCode alloc(std::uint64_t id, Bytes bytes, std::uint64_t stream) {
    const Address address = s_.malloc(bytes, find_stream(stream));
    if (address != 0) blocks_[id] = address;
    const StatusCode code = address != 0 ? StatusCode::kOk : s_.last_code();
    return note({clock_++, id, bytes, stream, TraceOp::kAlloc}, code, address);
  }
  // Events of an allocation that failed do nothing, as the program would have stopped.
  StatusCode free(std::uint64_t id) {
    const auto block = blocks_.extract(id);
    const StatusCode code = block.empty() ? StatusCode::kOk : s_.free(block.mapped());
    return note({clock_++, id, 0, kNoTraceStream, TraceOp::kFree}, code, 0);
  }
  StatusCode record(std::uint64_t id, std::uint64_t stream) {
    const auto block = blocks_.find(id);
    StatusCode code = StatusCode::kOk;
    if (block != blocks_.end()) code = s_.record(block->second, find_stream(stream));
    return note({clock_++, id, 0, stream, TraceOp::kRecordStream}, code, 0);
  }
  void repeat(const TraceEvent& event) {
    if (event.op == TraceOp::kAlloc) alloc(event.id, event.bytes, event.stream);
    if (event.op == TraceOp::kFree) free(event.id);
    if (event.op == TraceOp::kRecordStream) record(event.id, event.stream);
  }

  const std::vector<TraceEvent>& events() const { return events_; }
  const std::vector<Step>& steps() const { return steps_; }
  std::vector<NamedValue> stats() { return flatten(s_.stats()); }

 private:
  StreamHandle find_stream(std::uint64_t number) {
    const auto [place, is_new] = streams_.try_emplace(number);
    if (is_new) place->second = s_.make_stream();
    return place->second;
  }
  StatusCode note(const TraceEvent& event, StatusCode code, Address address) {
    events_.push_back(event);
    Step step{code, {}, s_.calls(DriverEntry::kAllocate), s_.calls(DriverEntry::kFree)};
    if (address != 0) {
      const BlockInfo info = s_.allocator().find_block(address).value();
      const auto segment = segments_.try_emplace(info.segment_address, segments_.size()).first;
      step.place = {segment->second, address - info.segment_address, info.bytes};
    }
    steps_.push_back(step);
    return code;
  }

  Scenario s_;
  std::uint64_t clock_ = 0;
  std::map<std::uint64_t, StreamHandle> streams_;
  std::map<std::uint64_t, Address> blocks_;
  std::map<Address, std::size_t> segments_;  // numbered as they are met
  std::vector<TraceEvent> events_;
  std::vector<Step> steps_;
};

// The case's program: two threads and two streams, a block of one that the other used and freed, a
// request that cannot be served, and what comes after it.
void run_program(Recorder& r) {
  ASSERT_EQ(r.alloc(1, 67'108'864, 1), StatusCode::kOk);
  std::thread([&r] {
    ASSERT_EQ(r.alloc(2, 33'554'432, 2), StatusCode::kOk);
    ASSERT_EQ(r.record(1, 2), StatusCode::kOk);
    ASSERT_EQ(r.free(1), StatusCode::kOk);
  }).join();
  ASSERT_EQ(r.alloc(3, Bytes{1} << 40, 1), StatusCode::kOutOfMemory);
  ASSERT_EQ(r.free(3), StatusCode::kOk);
  ASSERT_EQ(r.alloc(4, 3'145'728, 1), StatusCode::kOk);
  ASSERT_EQ(r.alloc(5, 1000, 2), StatusCode::kOk);
  ASSERT_EQ(r.alloc(6, 5'242'880, 1), StatusCode::kOk);
  ASSERT_EQ(r.free(4), StatusCode::kOk);
  ASSERT_EQ(r.alloc(7, 2'097'152, 1), StatusCode::kOk);
}
constexpr std::uint64_t kFailingEvent = 5;  // from 1: the request of 2^40 bytes

std::vector<TraceEvent> round_trip(const std::vector<TraceEvent>& events, TraceFormat format) {
  const WholeTrace trace = read_text(write_all(format, events));
  EXPECT_EQ(trace.error, "");
  return trace.events;
}

// The number of the first event, from 1, that did something else; 0 if none did.
std::uint64_t find_first_difference(const std::vector<Step>& a, const std::vector<Step>& b) {
  EXPECT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (a[i] != b[i]) return i + 1;
  }
  return 0;
}

TEST(C62, ReplayOnTheSameDeviceDecidesEverythingAsRecorded) {
  for (const TraceFormat format : {TraceFormat::kNative, TraceFormat::kCsv}) {
    Recorder recorded(kCap);
    run_program(recorded);
    ASSERT_EQ(recorded.steps()[kFailingEvent - 1].status, StatusCode::kOutOfMemory);

    Recorder replayed(kCap);
    for (const TraceEvent& event : round_trip(recorded.events(), format))
      replayed.repeat(event);
    EXPECT_EQ(find_first_difference(recorded.steps(), replayed.steps()), 0u);
    EXPECT_EQ(replayed.events(), recorded.events()) << "record(replay(log)) is not the log";
    const auto expected = recorded.stats();
    const auto found = replayed.stats();
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_EQ(found[i].value, expected[i].value) << found[i].name;
  }
}

TEST(C62, ReplayOnASmallerDeviceNamesTheFirstEventThatFails) {
  Recorder recorded(kCap);
  run_program(recorded);
  Recorder replayed(80 * 1_MiB);  // m1 fits, m2 beside it does not
  for (const TraceEvent& event : round_trip(recorded.events(), TraceFormat::kNative))
    replayed.repeat(event);
  EXPECT_EQ(find_first_difference(recorded.steps(), replayed.steps()), 2u);
  EXPECT_EQ(replayed.steps()[1].status, StatusCode::kOutOfMemory);
}

Result<tools::ReplayResult> replay_with_tool(const std::vector<TraceEvent>& events, Bytes cap,
                                             std::uint64_t* last_event) {
  tools::ReplayOptions options;
  options.config = make_config();
  options.device_memory_bytes = cap;
  options.validate = true;
  auto replayer = tools::Replayer::create(options);
  EXPECT_TRUE(replayer.is_ok());
  const Status status = replayer.value()->replay(events);
  *last_event = replayer.value()->event_count();
  if (!status.is_ok()) return Status(status.code(), std::string(status.message()));
  return replayer.value()->finish();
}

// For the tool, running out of memory is a result of the replayed program and not a failure of the
// replay; it is counted.
TEST(C62, ToolReplaysTheFailedRequestAsFailed) {
  Recorder recorded(kCap);
  run_program(recorded);
  std::map<std::string, std::int64_t> stats;
  for (const NamedValue& value : recorded.stats())
    stats[value.name] = value.value;

  std::uint64_t last_event = 0;
  const auto same = replay_with_tool(recorded.events(), kCap, &last_event);
  ASSERT_TRUE(same.is_ok()) << same.status().message();
  EXPECT_EQ(last_event, recorded.events().size());
  EXPECT_EQ(same.value().ooms, 1u);
  EXPECT_EQ(same.value().rows_after_oom, 1u);
  EXPECT_EQ(same.value().hazards, 0u);
  EXPECT_EQ(static_cast<std::int64_t>(same.value().peak_reserved_bytes),
            stats.at("reserved_bytes.all.peak"));
  EXPECT_EQ(static_cast<std::int64_t>(same.value().peak_allocated_bytes),
            stats.at("allocated_bytes.all.peak"));

  const auto smaller = replay_with_tool(recorded.events(), 80 * 1_MiB, &last_event);
  ASSERT_TRUE(smaller.is_ok());
  EXPECT_EQ(smaller.value().ooms, 2u);
}

TEST(C62, ToolStopsAtAnEventThatCannotBeAndItsNumberIsKnown) {
  Recorder recorded(kCap);
  run_program(recorded);
  std::vector<TraceEvent> events = recorded.events();
  events[6].id = 3;  // freed already
  events[6].op = TraceOp::kFree;
  std::uint64_t last_event = 0;
  EXPECT_FALSE(replay_with_tool(events, kCap, &last_event).is_ok());
  EXPECT_EQ(last_event, 7u);
}

}  // namespace
}  // namespace quarry::test
