// SPDX-License-Identifier: Apache-2.0
// Random programs against the allocator on the simulated device, under the hazard oracle and a
// ledger of what must be. Each test is one seed; each seed many cases of some thousand operations.
//
// The quick set runs with the others. For the long run set the number of operations a seed:
//   QUARRY_MODEL_OPERATIONS=250000 build/dev/bin/model_test
// and for other seeds, QUARRY_MODEL_SEED=N (added to each). A failure prints the smallest case
// found, to be pasted into model_regression_test.cpp.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "tests/model/generator.hpp"
#include "tests/model/runner.hpp"

namespace quarry::model {
namespace {

constexpr std::size_t kCaseOperations = 4000;
constexpr std::size_t kQuickOperations = 60'000;

std::size_t get_number(const char* name, std::size_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

void expect_pools_and_graphs(const Tally& tally, std::size_t wanted) {
  const struct {
    const char* name;
    std::uint64_t count;
    std::size_t operations;  // at least one in so many
  } reached[] = {
      {"private_allocations", tally.private_allocations, 200},
      {"borrowed_blocks", tally.borrowed_blocks, 20000},
      {"refused_segments", tally.refused_segments, 6000},
      {"pools_released_with_blocks", tally.pools_released_with_blocks, 4000},
      {"pools_released_with_launches", tally.pools_released_with_launches, 30000},
      {"captures_into_pools", tally.captures_into_pools, 600},
      {"captured_allocations", tally.captured_allocations, 400},
      {"captured_reuses", tally.captured_reuses, 3000},
      {"captured_inputs", tally.captured_inputs, 1500},
      {"forked_streams", tally.forked_streams, 1200},
      {"lost_captures", tally.lost_captures, 5000},
      {"freed_after_captures", tally.freed_after_captures, 700},
      {"graphs", tally.graphs, 700},
      {"launches", tally.launches, 300},
      {"launches_in_flight", tally.launches_in_flight, 600},
      {"moved_replays", tally.moved_replays, 2500},
  };
  for (const auto& [name, count, operations] : reached) {
    EXPECT_GT(count, wanted / operations) << name;
    testing::Test::RecordProperty(name, std::to_string(count));
  }
}

class ModelTest : public testing::TestWithParam<int> {};

TEST_P(ModelTest, NoProgramFindsAFault) {
  const std::size_t wanted = get_number("QUARRY_MODEL_OPERATIONS", kQuickOperations);
  const std::size_t offset = get_number("QUARRY_MODEL_SEED", 0);
  Tally tally;
  for (std::size_t i = 0; tally.operations < wanted; ++i) {
    const std::uint64_t seed = (offset + static_cast<std::size_t>(GetParam())) * 1'000'000 + i;
    Entropy entropy(seed);
    const Case experiment = generate_case(entropy, kCaseOperations);
    const Outcome outcome = run_isolated(experiment);
    tally += outcome.tally;
    ASSERT_TRUE(outcome.has_passed()) << "seed " << seed << " " << explain(experiment, outcome);
  }
  EXPECT_GT(tally.allocations, wanted / 8);
  EXPECT_GT(tally.ooms, wanted / 500);
  EXPECT_GT(tally.deferred_frees, wanted / 200);
  EXPECT_GT(tally.captures, wanted / 1000);
  EXPECT_GT(tally.retired_streams, wanted / 1000);
  EXPECT_GT(tally.parked_blocks, wanted / 250);
  EXPECT_GT(tally.parked_by_others, wanted / 6000);
  EXPECT_GT(tally.ended_threads, wanted / 2000);
  EXPECT_GT(tally.pins, wanted / 200);
  EXPECT_GT(tally.peer_uses, wanted / 4000);
  RecordProperty("pins", std::to_string(tally.pins));
  RecordProperty("peer_uses", std::to_string(tally.peer_uses));
  expect_pools_and_graphs(tally, wanted);
  RecordProperty("parked_blocks", std::to_string(tally.parked_blocks));
  RecordProperty("parked_by_others", std::to_string(tally.parked_by_others));
  RecordProperty("allocations", std::to_string(tally.allocations));
  RecordProperty("ooms", std::to_string(tally.ooms));
  RecordProperty("driver_calls", std::to_string(tally.driver_calls));
}

INSTANTIATE_TEST_SUITE_P(Seed, ModelTest, testing::Values(1, 2, 3, 4));

}  // namespace
}  // namespace quarry::model
