// SPDX-License-Identifier: Apache-2.0
// The model test is awake: each fault that is planted, in the driver's or the user's part, is
// caught under the real allocator within 20,000 operations (240,000 for faults around graphs), and
// shrinks to a few that fail in the same way. The control has no hazard.
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>

#include "tests/model/generator.hpp"
#include "tests/model/runner.hpp"

namespace quarry::model {

// For the names of the tests; beside the type, where the test framework looks for it.
void PrintTo(Mutant mutant, std::ostream* out) {
  *out << get_name(mutant);
}

namespace {

constexpr std::size_t kOperations = 4000;

bool is_of_graphs(Mutant mutant) {
  return mutant == Mutant::kUnseenCapture || mutant == Mutant::kSameCapture ||
         mutant == Mutant::kPendingCaptured || mutant == Mutant::kUnseenReplay;
}

enum class Segments { kAny, kExpandable };

Case make_case(std::uint64_t seed, Mutant mutant, Segments segments = Segments::kAny) {
  Entropy entropy(seed);
  const Repertoire repertoire =
      is_of_graphs(mutant) ? Repertoire::kGraphs : Repertoire::kBlocksOnly;
  Case made = generate_case(entropy, kOperations, repertoire);
  made.options.made_streams = 3;  // several streams, or there is nothing to get wrong
  made.options.device_count = 1;  // the stream on which a mutant records is the first device's
  made.options.mutant = mutant;
  if (segments == Segments::kExpandable) {
    made.options.expandable = true;
    made.options.physical_bytes = std::min(made.options.physical_bytes, 256_MiB);
  }
  return made;
}

// The first case of a seed that fails; of five at most, or sixty with graphs. Not every case shows
// every mutant: in some there is so much memory that nothing is used again in time.
Case find_failing(std::uint64_t seed, Mutant mutant, Segments segments = Segments::kAny) {
  const std::uint64_t most_cases = is_of_graphs(mutant) ? 60 : 5;
  for (std::uint64_t i = 0; i < most_cases; ++i) {
    const Case made = make_case(seed * 1000 + i, mutant, segments);
    if (!run_isolated(made).has_passed()) return made;
  }
  return {};
}

class MutantTest : public testing::TestWithParam<Mutant> {};

TEST_P(MutantTest, IsCaughtForEverySeed) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    const Outcome outcome = run_isolated(find_failing(seed, GetParam()));
    EXPECT_EQ(get_kind(outcome.failure), "hazard") << "seed " << seed << " " << outcome.failure;
  }
}

INSTANTIATE_TEST_SUITE_P(Planted, MutantTest,
                         testing::Values(Mutant::kLostFence, Mutant::kDroppedRecord,
                                         Mutant::kRecordElsewhere, Mutant::kDroppedRecordStream,
                                         Mutant::kDroppedPin, Mutant::kWrongStream,
                                         Mutant::kUnseenCapture, Mutant::kSameCapture,
                                         Mutant::kPendingCaptured, Mutant::kUnseenReplay));

// Extents that move, and what passes between streams: faults that plain segments do not know, and
// such as they have, too.
class ExpandableMutantTest : public testing::TestWithParam<Mutant> {};

TEST_P(ExpandableMutantTest, IsCaughtForEverySeed) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    const Case failing = find_failing(seed, GetParam(), Segments::kExpandable);
    const Outcome outcome = run_isolated(failing);
    EXPECT_EQ(get_kind(outcome.failure), "hazard") << "seed " << seed << " " << outcome.failure;
  }
}

INSTANTIATE_TEST_SUITE_P(Planted, ExpandableMutantTest,
                         testing::Values(Mutant::kDroppedWait, Mutant::kFreshFence,
                                         Mutant::kMoveUnmapsOld, Mutant::kDroppedPin,
                                         Mutant::kLostFence, Mutant::kRecordElsewhere,
                                         Mutant::kUnseenCapture));

TEST(MutantControlTest, HasNoHazardForAnySeed) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    for (const Segments segments : {Segments::kAny, Segments::kExpandable}) {
      const Outcome outcome = run_isolated(make_case(seed, Mutant::kNone, segments));
      EXPECT_TRUE(outcome.has_passed()) << "seed " << seed << " " << outcome.failure;
    }
  }
}

// A failing case of thousands becomes a short one that still fails in the same way, and that
// passes without the planted fault.
void expect_shrinks(Mutant mutant, const std::string& kind, std::size_t most) {
  const Case failing = find_failing(1, mutant);
  const Case small = shrink(failing);
  const Outcome outcome = run_isolated(small);
  EXPECT_EQ(get_kind(outcome.failure), kind) << outcome.failure;
  EXPECT_LE(small.operations.size(), most) << format(small);
  EXPECT_GE(small.operations.size(), 1u);
  Case cured = small;
  cured.options.mutant = Mutant::kNone;
  EXPECT_TRUE(run_isolated(cured).has_passed()) << format(small);
}

TEST(ShrinkTest, AForgottenRecordStreamShrinksToAFewOperations) {
  expect_shrinks(Mutant::kDroppedRecordStream, "hazard", 5);
}

TEST(ShrinkTest, ALostFenceShrinksToAFewOperations) {
  expect_shrinks(Mutant::kLostFence, "hazard", 6);
}

TEST(ShrinkTest, ADyingProcessIsReportedAndShrinksToAFewOperations) {
  const Outcome outcome = run_isolated(find_failing(1, Mutant::kSuddenDeath));
  EXPECT_NE(outcome.failure.find("invariant does not hold"), std::string::npos);
  expect_shrinks(Mutant::kSuddenDeath, "the process ended ", 3);
}

TEST(ShrinkTest, APassingCaseStaysAsItIs) {
  const Case passing = make_case(1, Mutant::kNone);
  EXPECT_EQ(format(shrink(passing)), format(passing));
}

TEST(ShrinkTest, ACaseIsPrintedAsTheCodeThatMakesIt) {
  const Case printed{.options = {.made_streams = 2},
                     .operations = {Allocate{.slot = 3, .caller = Caller::kThird}, Quiesce{}}};
  EXPECT_EQ(format(printed),
            "Case{.options = {.made_streams = 2},\n"
            "     .operations = {\n"
            "         Allocate{.slot = 3, .caller = Caller::kThird},\n"
            "         Quiesce{},\n"
            "     }}");
}

}  // namespace
}  // namespace quarry::model
