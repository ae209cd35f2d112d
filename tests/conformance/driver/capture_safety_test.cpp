// SPDX-License-Identifier: Apache-2.0
// What is safe while somebody captures: each call of Driver, in each capture mode, from the
// capturing thread and from another, plain and in a relaxed bracket, while a blocking stream
// captures and while a non-blocking one does. Measured on an H200.
#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "tests/conformance/driver/driver_fixture.hpp"

namespace quarry {
namespace {

using Kind = DriverFixture::Kind;

// What the calls under test work on, all of it made before the capture begins.
struct Scene {
  Scene(DriverFixture& fixture, Kind kind) : driver(fixture.driver()) {
    capturing = fixture.create_stream(kind);
    other = fixture.create_stream(Kind::kNonBlocking);
    event = driver.create_event(0).value;
    outside = driver.create_event(0).value;
    EXPECT_EQ(driver.record_event(outside, other), DriverCode::kSuccess);
    plain = driver.allocate(0, 4096).value;
    granularity = driver.get_device_properties(0).value.extent_granularity;
    if (granularity == 0) return;
    reservation = driver.reserve_addresses(2 * granularity, 0).value;
    mapped = driver.create_extent(0, granularity, {}).value;
    EXPECT_EQ(driver.map(reservation, granularity, mapped), DriverCode::kSuccess);
  }

  Driver& driver;
  StreamRef capturing;
  StreamRef other;
  EventHandle event{};
  EventHandle outside{};  // recorded on `other`
  Address plain = 0;
  Bytes granularity = 0;
  Address reservation = 0;  // its first half holds `mapped`
  ExtentHandle mapped{};
};

enum class Safety {
  kSafe,    // always
  kUnsafe,  // forbidden to some threads in some modes
  kFatal,   // no capture survives it
};

struct Call {
  const char* name;
  Safety safety;
  DriverCode (*make)(Scene&);
};

DriverCode grow(Scene& scene) {
  const auto extent = scene.driver.create_extent(0, scene.granularity, {});
  if (!extent.is_ok()) return extent.code;
  const Address address = scene.reservation + scene.granularity;
  const DriverCode code = scene.driver.map(address, scene.granularity, extent.value);
  if (code != DriverCode::kSuccess) return code;
  const std::array<DeviceId, 1> devices{0};
  return scene.driver.set_access(address, scene.granularity, devices);
}

DriverCode shrink(Scene& scene) {
  const DriverCode code = scene.driver.unmap(scene.reservation, scene.granularity);
  if (code != DriverCode::kSuccess) return code;
  return scene.driver.release_extent(scene.mapped);
}

DriverCode walk_graph(Scene& scene) {
  std::vector<GraphNode> nodes;
  const DriverCode code = scene.driver.get_capture_frontier(scene.capturing, nodes);
  if (code != DriverCode::kSuccess) return code;
  // The capture holds one piece of work.
  return nodes.size() != 1 ? DriverCode::kUnknown : scene.driver.get_predecessors(nodes[0], nodes);
}

constexpr Call kCalls[] = {
    {"create_event", Safety::kSafe, [](Scene& s) { return s.driver.create_event(0).code; }},
    {"record_event_on_another_stream", Safety::kSafe,
     [](Scene& s) { return s.driver.record_event(s.event, s.other); }},
    {"wait_event_on_another_stream", Safety::kSafe,
     [](Scene& s) { return s.driver.wait_event(s.other, s.outside); }},
    {"create_map_and_set_access", Safety::kSafe, grow},
    {"unmap_and_release", Safety::kSafe, shrink},
    {"get_memory_info", Safety::kSafe, [](Scene& s) { return s.driver.get_memory_info(0).code; }},
    {"get_capture_status_of_the_capturing_stream", Safety::kSafe,
     [](Scene& s) { return s.driver.get_capture_status(s.capturing).code; }},
    {"get_capture_status_of_another_stream", Safety::kSafe,
     [](Scene& s) { return s.driver.get_capture_status(s.other).code; }},
    {"get_capture_info_of_the_capturing_stream", Safety::kSafe,
     [](Scene& s) { return s.driver.get_capture_info(s.capturing).code; }},
    {"get_capture_info_of_another_stream", Safety::kSafe,
     [](Scene& s) { return s.driver.get_capture_info(s.other).code; }},
    {"call_when_graph_is_gone", Safety::kSafe,
     [](Scene& s) {
       return s.driver.call_when_graph_is_gone(
           s.capturing, [](void*) {}, nullptr);
     }},
    {"get_capture_frontier_and_get_predecessors", Safety::kSafe, walk_graph},
    {"get_stream_id_of_another_stream", Safety::kSafe,
     [](Scene& s) { return s.driver.get_stream_id(s.other).code; }},
    {"query_event", Safety::kUnsafe, [](Scene& s) { return s.driver.query_event(s.outside); }},
    {"synchronize_event", Safety::kUnsafe,
     [](Scene& s) { return s.driver.synchronize_event(s.outside); }},
    {"allocate", Safety::kUnsafe, [](Scene& s) { return s.driver.allocate(0, 4096).code; }},
    {"free", Safety::kUnsafe, [](Scene& s) { return s.driver.free(0, s.plain); }},
    {"get_stream_id_of_the_capturing_stream", Safety::kFatal,
     [](Scene& s) { return s.driver.get_stream_id(s.capturing).code; }},
    {"record_context_event", Safety::kFatal,
     [](Scene& s) { return s.driver.record_context_event(s.event, 0); }},
};

struct Caller {
  bool is_capturing_thread;
  bool is_in_bracket;
};
constexpr Caller kCallers[] = {{false, false}, {true, false}, {false, true}, {true, true}};

bool survives(Safety safety, Caller caller, CaptureMode mode) {
  if (safety != Safety::kUnsafe) return safety == Safety::kSafe;
  if (caller.is_in_bracket || mode == CaptureMode::kRelaxed) return true;
  return !caller.is_capturing_thread && mode == CaptureMode::kThreadLocal;
}

// Call, caller, mode, kind of the capturing stream.
using Case = std::tuple<std::size_t, std::size_t, int, Kind>;

class CaptureSafetyTest : public testing::TestWithParam<Case> {
 protected:
  static DriverCode make_call(const Call& call, Caller caller, Scene& scene) {
    DriverCode code = DriverCode::kUnknown;
    const auto make = [&] {
      std::optional<CaptureModeBracket> bracket;
      if (caller.is_in_bracket) bracket.emplace(scene.driver);
      code = call.make(scene);
    };
    if (caller.is_capturing_thread) {
      make();
    } else {
      run_on_other_thread(make);
    }
    return code;
  }
};

TEST_P(CaptureSafetyTest, TheCaptureSurvivesOrIsLostAsMeasured) {
  const Call& call = kCalls[std::get<0>(GetParam())];
  const Caller caller = kCallers[std::get<1>(GetParam())];
  const auto mode = static_cast<CaptureMode>(std::get<2>(GetParam()));
  const std::unique_ptr<DriverFixture> fixture = make_driver_fixture();
  const DeviceProperties properties = fixture->driver().get_device_properties(0).value;
  const bool is_virtual = call.make == grow || call.make == shrink;
  if (is_virtual && properties.extent_granularity == 0) GTEST_SKIP() << "no virtual memory";
  if (!properties.has_context_events && std::string(call.name) == "record_context_event") {
    GTEST_SKIP() << "no context events";
  }
  Scene scene(*fixture, std::get<3>(GetParam()));
  ASSERT_EQ(fixture->begin_capture(scene.capturing, mode), DriverCode::kSuccess);
  ASSERT_EQ(fixture->submit_work(scene.capturing), DriverCode::kSuccess);
  const DriverCode code = make_call(call, caller, scene);
  const CaptureStatus status = scene.driver.get_capture_status(scene.capturing).value;
  const DriverCode end = fixture->end_capture(scene.capturing);
  if (code == DriverCode::kNotSupported) GTEST_SKIP() << "too old a driver";
  if (survives(call.safety, caller, mode)) {
    EXPECT_EQ(code, DriverCode::kSuccess) << describe(code);
    EXPECT_EQ(status, CaptureStatus::kActive);
    EXPECT_EQ(end, DriverCode::kSuccess) << describe(end);
  } else {
    EXPECT_EQ(code, DriverCode::kCaptureUnsupported) << describe(code);
    EXPECT_EQ(status, CaptureStatus::kInvalidated);
    EXPECT_EQ(end, DriverCode::kCaptureInvalidated) << describe(end);
  }
}

std::string name_case(const testing::TestParamInfo<Case>& instance) {
  static constexpr const char* kModes[] = {"global", "thread_local", "relaxed"};
  const Caller caller = kCallers[std::get<1>(instance.param)];
  std::string name = kCalls[std::get<0>(instance.param)].name;
  name += caller.is_capturing_thread ? "_by_the_same_thread" : "_by_another_thread";
  name += caller.is_in_bracket ? "_in_a_bracket_" : "_plain_";
  name += kModes[std::get<2>(instance.param)];
  return name + (std::get<3>(instance.param) == Kind::kBlocking ? "_blocking" : "_non_blocking");
}

INSTANTIATE_TEST_SUITE_P(Table, CaptureSafetyTest,
                         testing::Combine(testing::Range<std::size_t>(0, std::size(kCalls)),
                                          testing::Range<std::size_t>(0, std::size(kCallers)),
                                          testing::Range(0, 3),
                                          testing::Values(Kind::kBlocking, Kind::kNonBlocking)),
                         name_case);

}  // namespace
}  // namespace quarry
