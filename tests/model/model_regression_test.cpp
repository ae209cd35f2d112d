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

TEST(ModelRegressionTest, ARequestInACallbackDoesNotAskWhetherItsStreamCaptures) {
  expect_passes(Case{.options = {.has_pools = true},
                     .operations = {
                         RetainPool{},
                         BeginRoute{.kind = Route::Kind::kCapture, .stream = 6},
                         Allocate{.slot = 50, .stream = 5, .caller = Caller::kDriverCallback},
                         EndRoute{},
                         BeginRoute{.kind = Route::Kind::kFilter, .stream = 5},
                         Allocate{.slot = 51, .stream = 5, .caller = Caller::kDriverCallback},
                         Allocate{.slot = 52, .stream = 5},
                     }});
}

TEST(ModelRegressionTest, ARouteToTheCapturesOfAStreamThatIsGoneDoesNotAskAboutIt) {
  expect_passes(Case{.options = {.reuse_stream_handles = false, .has_pools = true},
                     .operations = {
                         RetainPool{},
                         RetainPool{.pool = 1},
                         BeginRoute{.pool = 1},
                         CaptureInto{.stream = 5},
                         EndCapture{.stream = 5},
                         BeginCapture{.stream = 6},
                         Retire{.stream = 5},
                         Allocate{.slot = 45, .stream = 6},
                         EndCapture{.stream = 6},
                     }});
}

TEST(ModelRegressionTest, ARouteOfAStreamThatIsGoneDoesNotServeTheNextOneOfItsHandle) {
  expect_passes(Case{.options = {.has_pools = true},
                     .operations = {
                         RetainPool{},
                         BeginRoute{.kind = Route::Kind::kStream, .stream = 5},
                         Allocate{.slot = 44, .stream = 5},
                         Retire{.stream = 5},
                         Allocate{.slot = 45, .stream = 5},
                     }});
}

TEST(ModelRegressionTest, ARequestIsNotRejectedWhileAPoolHasABlockToLend) {
  expect_passes(Case{.options = {.made_streams = 0, .has_pools = true},
                     .operations = {
                         RetainPool{.use_on_oom = true},
                         Configure{.rejects_early = true},
                         Allocate{.slot = 75, .pool = 0},
                         SetLimit{.bytes = 129108},
                         Allocate{.slot = 4, .bytes = 1},
                     }});
}

TEST(ModelRegressionTest, APoolThatKeepsItsSegmentsKeepsThemWhenItIsShortItself) {
  expect_passes(
      Case{.options = {.made_streams = 0, .physical_bytes = 536870912, .has_pools = true},
           .operations = {
               RetainPool{.use_on_oom = true, .no_recycle = true},
               Allocate{.slot = 82, .bytes = 88188791, .pool = 0},
               Free{.slot = 82},
               Configure{.large_segment_mib = 64,
                         .max_split_mib = 64,
                         .max_non_split_rounding_mib = 1,
                         .fraction_percent = 50},
               Allocate{.slot = 15, .bytes = 2097152, .pool = 0},
               Allocate{.slot = 7, .bytes = 118880909},
           }});
}

}  // namespace
}  // namespace quarry::model
