// SPDX-License-Identifier: Apache-2.0
// Cases that failed once, as the model test shrank them. Named by the claim that was broken.
#include <gtest/gtest.h>

#include "tests/model/runner.hpp"

namespace quarry::model {
namespace {

void expect_passes(const Case& experiment) {
  const Outcome outcome = run_isolated(experiment);
  EXPECT_TRUE(outcome.has_passed()) << outcome.failure << "\n" << format(experiment);
}

TEST(ModelRegressionTest, RecordOfARetiredStreamOutlivesTheHandOverOfItsLastBlocks) {
  expect_passes(Case{.options = {},
                     .operations = {
                         Allocate{.slot = 29, .stream = 41},
                         Retire{.stream = 62},
                         Free{.slot = 29},
                         Allocate{.slot = 70, .bytes = 2097152},
                         Allocate{.slot = 92, .stream = 53, .bytes = 2097152},
                     }});
}

TEST(ModelRegressionTest, EmptyCacheInACallbackMakesNoDriverCall) {
  expect_passes(Case{.options = {.made_streams = 0},
                     .operations = {
                         Allocate{.slot = 84},
                         Retire{},
                         EmptyCache{.caller = Caller::kDriverCallback},
                         Allocate{.slot = 85},
                         Free{.slot = 85},
                         EmptyCache{.caller = Caller::kDriverCallback},
                     }});
}

TEST(ModelRegressionTest, AnAlignedRequestIsAsOversizeAsTheRoomThatItNeeds) {
  expect_passes(Case{.options = {.made_streams = 0},
                     .operations = {
                         Allocate{.slot = 58, .bytes = 232705844},
                         Free{.slot = 58},
                         Allocate{.slot = 26, .bytes = 2097152},
                         Configure{.max_split_mib = 32, .max_non_split_rounding_mib = 200},
                         Allocate{.slot = 59, .alignment = 67108864},
                     }});
}

TEST(ModelRegressionTest, ARequestThatCannotBeServedDoesNotUseWhatAnEarlierMissLeft) {
  expect_passes(
      Case{.options = {},
           .operations = {
               Allocate{.slot = 92, .stream = 41, .bytes = 377},
               Allocate{.slot = 68},
               FreeSized{.slot = 68, .error_bytes = 1, .caller = Caller::kDriverCallback},
               Allocate{.slot = 14, .stream = 20},
               Allocate{.slot = 95, .stream = 48, .bytes = kUnlimited},
           }});
}

}  // namespace
}  // namespace quarry::model
