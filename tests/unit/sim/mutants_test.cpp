// SPDX-License-Identifier: Apache-2.0
// Proof that the oracle is awake. Each scenario is a short, correct piece of an allocator's life;
// run over a truthful driver it must give no hazard, run with one fault seeded it must give one
// that names both uses. Faults: a driver that lies (MutantDriver), or a step left out.
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <string>

#include "sim/sim_driver.hpp"
#include "tests/unit/sim/mutant_driver.hpp"

namespace quarry {
namespace {

using sim::HazardKind;
using sim::LifetimeId;
using sim::WorkTime;

// What a scenario works with: two streams with work that lasts, and 4 MiB of memory.
struct Stage {
  Stage(Lie lie, bool leaves_out_step) : driver(sim, lie, idle), leaves_out(leaves_out_step) {}

  SimDriver sim;
  const StreamRef first = sim.create_stream(0, sim::StreamKind::kNonBlocking);
  const StreamRef second = sim.create_stream(0, sim::StreamKind::kNonBlocking);
  const StreamRef idle = sim.create_stream(0, sim::StreamKind::kNonBlocking);
  MutantDriver driver;
  const bool leaves_out;  // the seeded fault is not in the driver: leave out the marked step

  LifetimeId hand_out(Address address, Bytes bytes, StreamRef stream) {
    const LifetimeId id = sim.begin_lifetime(0, address, bytes, stream);
    sim.submit_work(stream, WorkTime::lasting_us(100), {&id, 1});
    return id;
  }
  EventHandle record(StreamRef stream) {
    const EventHandle event = driver.create_event(0).value;
    EXPECT_EQ(driver.record_event(event, stream), DriverCode::kSuccess);
    return event;
  }
  // What an allocator does with a free block of another stream: look, else wait.
  void wait_until_passed(EventHandle event) {
    if (driver.query_event(event) == DriverCode::kSuccess) return;
    EXPECT_EQ(driver.synchronize_event(event), DriverCode::kSuccess);
  }
  void map(Address address, ExtentHandle extent) {
    EXPECT_EQ(driver.map(address, 4_MiB, extent), DriverCode::kSuccess);
    const std::array<DeviceId, 1> devices{0};
    EXPECT_EQ(driver.set_access(address, 4_MiB, devices), DriverCode::kSuccess);
  }
};

void reuse_on_another_stream_after_its_fence(Stage& stage) {
  const Address address = stage.driver.allocate(0, 4_MiB).value;
  stage.sim.end_lifetime(stage.hand_out(address, 4_MiB, stage.first));
  stage.wait_until_passed(stage.record(stage.first));
  stage.hand_out(address + 1_MiB, 1_MiB, stage.second);
}

void reuse_on_another_stream_after_a_context_fence(Stage& stage) {
  const Address address = stage.driver.allocate(0, 4_MiB).value;
  stage.sim.end_lifetime(stage.hand_out(address, 4_MiB, stage.first));
  const EventHandle event = stage.driver.create_event(0).value;
  EXPECT_EQ(stage.driver.record_context_event(event, 0), DriverCode::kSuccess);
  stage.wait_until_passed(event);
  stage.hand_out(address, 4_MiB, stage.second);
}

void reuse_on_another_stream_behind_a_device_side_wait(Stage& stage) {
  const Address address = stage.driver.allocate(0, 4_MiB).value;
  stage.sim.end_lifetime(stage.hand_out(address, 4_MiB, stage.first));
  EXPECT_EQ(stage.driver.wait_event(stage.second, stage.record(stage.first)),
            DriverCode::kSuccess);
  stage.hand_out(address, 2_MiB, stage.second);
}

void unmap_after_a_host_wait(Stage& stage) {
  const Address base = stage.driver.reserve_addresses(16_MiB, 0).value;
  stage.map(base, stage.driver.create_extent(0, 4_MiB, {}).value);
  stage.sim.end_lifetime(stage.hand_out(base, 4_MiB, stage.first));
  stage.wait_until_passed(stage.record(stage.first));
  EXPECT_EQ(stage.driver.unmap(base, 4_MiB), DriverCode::kSuccess);
}

// The extent moves to a new address while the old mapping stays until its fence has passed.
void recycle_to_another_stream(Stage& stage) {
  const Address base = stage.driver.reserve_addresses(16_MiB, 0).value;
  const ExtentHandle extent = stage.driver.create_extent(0, 4_MiB, {}).value;
  stage.map(base, extent);
  stage.sim.end_lifetime(stage.hand_out(base, 4_MiB, stage.first));
  const EventHandle event = stage.record(stage.first);
  stage.map(base + 8_MiB, extent);
  EXPECT_EQ(stage.driver.wait_event(stage.second, event), DriverCode::kSuccess);
  stage.hand_out(base + 8_MiB, 4_MiB, stage.second);
  stage.wait_until_passed(event);
  EXPECT_EQ(stage.driver.unmap(base, 4_MiB), DriverCode::kSuccess);
}

void recycle_in_stream_order(Stage& stage) {
  const Address base = stage.driver.reserve_addresses(16_MiB, 0).value;
  const ExtentHandle extent = stage.driver.create_extent(0, 4_MiB, {}).value;
  stage.map(base, extent);
  stage.sim.end_lifetime(stage.hand_out(base, 4_MiB, stage.first));
  const EventHandle event = stage.record(stage.first);
  stage.map(base + 8_MiB, extent);
  stage.hand_out(base + 8_MiB, 4_MiB, stage.first);
  if (!stage.leaves_out) stage.wait_until_passed(event);
  EXPECT_EQ(stage.driver.unmap(base, 4_MiB), DriverCode::kSuccess);
}

void alias_is_handed_out_in_stream_order(Stage& stage) {
  const Address base = stage.driver.reserve_addresses(16_MiB, 0).value;
  const ExtentHandle extent = stage.driver.create_extent(0, 4_MiB, {}).value;
  stage.map(base, extent);
  stage.sim.end_lifetime(stage.hand_out(base, 4_MiB, stage.first));
  stage.map(base + 8_MiB, extent);
  stage.hand_out(base + 8_MiB, 4_MiB, stage.leaves_out ? stage.second : stage.first);
}

void recorded_stream_is_fenced_too(Stage& stage) {
  const Address address = stage.driver.allocate(0, 4_MiB).value;
  const LifetimeId block = stage.hand_out(address, 4_MiB, stage.first);
  stage.sim.submit_work(stage.second, WorkTime::lasting_us(500), {&block, 1});
  stage.sim.end_lifetime(block);
  // record_stream(block, second) makes the allocator fence the second stream.
  if (!stage.leaves_out) stage.wait_until_passed(stage.record(stage.second));
  stage.hand_out(address, 4_MiB, stage.first);
}

void reuse_stays_on_the_stream_of_the_block(Stage& stage) {
  const Address address = stage.driver.allocate(0, 4_MiB).value;
  stage.sim.end_lifetime(stage.hand_out(address, 4_MiB, stage.first));
  stage.hand_out(address, 4_MiB, stage.leaves_out ? stage.second : stage.first);
}

void reuse_after_the_end_of_a_graph(Stage& stage) {
  const Address address = stage.driver.allocate(0, 4_MiB).value;
  ASSERT_EQ(stage.sim.begin_capture(stage.first, CaptureMode::kRelaxed), DriverCode::kSuccess);
  bool is_gone = false;
  const auto note_end = [](void* gone) { *static_cast<bool*>(gone) = true; };
  ASSERT_EQ(stage.driver.call_when_graph_is_gone(stage.first, note_end, &is_gone),
            DriverCode::kSuccess);
  stage.sim.end_lifetime(stage.hand_out(address, 4_MiB, stage.first));
  const sim::GraphId graph = stage.sim.end_capture(stage.first).value;
  stage.sim.launch_graph(graph, stage.first, WorkTime::lasting_us(100));
  stage.sim.destroy_graph(graph);
  if (!is_gone) stage.sim.advance_by_us(100);
  ASSERT_TRUE(is_gone);
  stage.hand_out(address, 4_MiB, stage.second);
}

struct Mutant {
  std::string name;
  void (*scenario)(Stage&);
  Lie lie;  // kNone: the fault is a step left out
  HazardKind expected;
};

void PrintTo(const Mutant& mutant, std::ostream* out) {
  *out << mutant.name;
}

class MutantsTest : public testing::TestWithParam<Mutant> {};

TEST_P(MutantsTest, TheCorrectSequenceIsClean) {
  Stage stage(Lie::kNone, false);
  GetParam().scenario(stage);
  EXPECT_EQ(stage.sim.hazard_count(), 0u);
  for (const sim::Hazard& hazard : stage.sim.get_hazards())
    ADD_FAILURE() << hazard.text;
}

TEST_P(MutantsTest, TheSeededFaultIsCaughtAndBothSidesNamed) {
  const Mutant& mutant = GetParam();
  Stage stage(mutant.lie, mutant.lie == Lie::kNone);
  mutant.scenario(stage);
  EXPECT_EQ(stage.driver.lie_count() > 0, mutant.lie != Lie::kNone);
  ASSERT_GE(stage.sim.hazard_count(), 1u);
  const sim::Hazard hazard = stage.sim.get_hazards()[0];
  EXPECT_EQ(hazard.kind, mutant.expected) << hazard.text;
  EXPECT_GT(hazard.earlier.sequence, 0u) << hazard.text;
  EXPECT_NE(hazard.earlier.range.bytes, 0u) << hazard.text;
  EXPECT_NE(hazard.later.range.bytes, 0u) << hazard.text;
  EXPECT_NE(hazard.text.find("earlier device 0 stream"), std::string::npos) << hazard.text;
}

INSTANTIATE_TEST_SUITE_P(
    All, MutantsTest,
    testing::Values(Mutant{"lost_fence", reuse_on_another_stream_after_its_fence,
                           Lie::kQueryAlwaysPassed, HazardKind::kUnordered},
                    Mutant{"dropped_record", reuse_on_another_stream_after_its_fence,
                           Lie::kRecordDropped, HazardKind::kUnordered},
                    Mutant{"record_on_another_stream", reuse_on_another_stream_after_its_fence,
                           Lie::kRecordOnIdleStream, HazardKind::kUnordered},
                    Mutant{"dropped_host_wait", reuse_on_another_stream_after_its_fence,
                           Lie::kSynchronizeDropped, HazardKind::kUnordered},
                    Mutant{"dropped_context_record", reuse_on_another_stream_after_a_context_fence,
                           Lie::kRecordDropped, HazardKind::kUnordered},
                    Mutant{"dropped_device_side_wait",
                           reuse_on_another_stream_behind_a_device_side_wait, Lie::kWaitDropped,
                           HazardKind::kUnordered},
                    Mutant{"early_end_of_a_graph", reuse_after_the_end_of_a_graph,
                           Lie::kGraphGoneAtOnce, HazardKind::kUnordered},
                    Mutant{"early_unmap", unmap_after_a_host_wait, Lie::kSynchronizeDropped,
                           HazardKind::kUnmappedUnderUse},
                    Mutant{"early_unmap_by_a_lost_fence", unmap_after_a_host_wait,
                           Lie::kQueryAlwaysPassed, HazardKind::kUnmappedUnderUse},
                    Mutant{"alias_without_a_wait", recycle_to_another_stream, Lie::kWaitDropped,
                           HazardKind::kUnordered},
                    Mutant{"early_unmap_of_the_old_alias", recycle_to_another_stream,
                           Lie::kQueryAlwaysPassed, HazardKind::kUnmappedUnderUse},
                    Mutant{"early_unmap_of_the_old_alias_in_stream_order", recycle_in_stream_order,
                           Lie::kNone, HazardKind::kUnmappedUnderUse},
                    Mutant{"alias_for_another_stream", alias_is_handed_out_in_stream_order,
                           Lie::kNone, HazardKind::kUnordered},
                    Mutant{"dropped_record_stream", recorded_stream_is_fenced_too, Lie::kNone,
                           HazardKind::kUnordered},
                    Mutant{"reuse_on_another_stream", reuse_stays_on_the_stream_of_the_block,
                           Lie::kNone, HazardKind::kUnordered}),
    [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace quarry
