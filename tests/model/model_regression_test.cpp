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

TEST(ModelRegressionTest, WhatAReleasedPoolsFunctionsTakeBackMakesRoomFirst) {
  expect_passes(Case{
      .options =
          {.device_count = 2, .made_streams = 5, .physical_bytes = 536870912, .has_pools = true},
      .operations = {
          Allocate{.slot = 60, .stream = 47, .bytes = 2097152},
          RetainPool{.pool = 5, .use_on_oom = true},
          Allocate{.slot = 27, .stream = 15, .bytes = 13979024},
          Allocate{.slot = 18, .stream = 34, .bytes = 1048064, .alignment = 131072},
          Allocate{.slot = 34, .stream = 35, .bytes = 103789049},
          Allocate{.slot = 49, .stream = 34, .bytes = 12582912, .pool = 5},
          Allocate{.slot = 46, .stream = 11},
          Allocate{.slot = 8, .stream = 15, .bytes = 1},
          Allocate{.slot = 20, .stream = 30, .pool = 2},
          Free{.slot = 8},
          Allocate{.slot = 67, .stream = 34},
          Allocate{.slot = 4, .stream = 13},
          Allocate{.slot = 66, .stream = 15, .bytes = 15888248},
          Allocate{.slot = 45, .stream = 15, .bytes = 14254080},
          RetainPool{.pool = 1, .source = PoolSource::kFunctions},
          RetainPool{.pool = 3, .use_on_oom = true, .source = PoolSource::kFunctions},
          CaptureInto{.stream = 13, .mode = CaptureMode::kThreadLocal},
          Free{.slot = 34},
          Allocate{.slot = 34, .stream = 15, .bytes = 12582912},
          Free{.slot = 60},
          Allocate{.slot = 38, .stream = 11, .bytes = 23187936, .pool = 2},
          Allocate{.slot = 23, .stream = 31},
          Allocate{.slot = 60, .stream = 15, .pool = 4},
          ReleasePool{.pool = 1},
          Allocate{.slot = 62, .stream = 27, .bytes = 1048576},
          Allocate{.slot = 57, .stream = 12},
          Allocate{.slot = 30, .stream = 27, .bytes = 1},
          Allocate{.slot = 44, .stream = 27, .bytes = 77918965},
          Allocate{.slot = 76, .stream = 27, .bytes = 18451873},
          Allocate{.slot = 17, .stream = 27, .bytes = 20971520},
          Allocate{.slot = 8, .stream = 27, .bytes = 1048576},
          Configure{.max_split_mib = 20,
                    .fraction_percent = 90,
                    .rejects_early = true,
                    .upstream_quirks = false},
          Allocate{.slot = 32, .stream = 27, .bytes = 79155421},
          Free{.slot = 23},
          Allocate{.slot = 58, .stream = 29, .bytes = 7777573},
      }});
}

// A stream of another thread has freed two blocks: one before its last fence, and one after it,
// for which this thread cannot make a fence.
TEST(ModelRegressionTest, AStreamIsWaitedForOnlyIfAllThatItFreedThereIsCovered) {
  expect_passes({.options = {.thread_cache = false, .expandable = true, .has_pools = true},
                 .operations = {
                     Allocate{.slot = 19},
                     Allocate{.slot = 30, .bytes = 10485760},
                     Allocate{.slot = 50, .bytes = 20971520},
                     Allocate{.slot = 33, .stream = 5, .bytes = 4000},
                     Free{.slot = 33},
                     Allocate{.slot = 16, .work_ns = 50182},
                     Free{.slot = 16},
                     Allocate{.slot = 71, .stream = 31, .bytes = 188},
                     Allocate{.slot = 13, .bytes = 4000},
                     RecordStream{.slot = 13, .stream = 48},
                     Free{.slot = 71},
                     Free{.slot = 13},
                     Allocate{.slot = 40, .stream = 31, .bytes = 4000},
                     Free{.slot = 40},
                     Allocate{.slot = 79, .stream = 15, .bytes = 22309},
                 }});
}

// An extent that has moved goes back only when it is unmapped where it was before, too.
TEST(ModelRegressionTest, MemoryOfAnOldKindIsNotCountedAsGoneWhileItIsStillMapped) {
  expect_passes({.options = {.thread_cache = false, .expandable = true, .has_pools = true},
                 .operations = {
                     Allocate{.slot = 86, .bytes = 1048576},
                     Allocate{.slot = 59, .bytes = 20971520},
                     Allocate{.slot = 82},
                     Allocate{.slot = 46, .bytes = 2097152},
                     Allocate{.slot = 45, .bytes = 5171017},
                     Allocate{.slot = 29, .bytes = 14585903},
                     Allocate{.slot = 62, .bytes = 12582912},
                     Allocate{.slot = 40, .bytes = 18391481},
                     BeginCapture{.stream = 22, .mode = CaptureMode::kRelaxed},
                     Allocate{.slot = 27, .bytes = 10485248},
                     Free{.slot = 46},
                     HoldGate{},
                     Allocate{.slot = 7, .bytes = 1048576},
                     Free{.slot = 7},
                     SetLimit{.bytes = 87915752},
                     EndCapture{.stream = 29},
                     Configure{.thread_cache = false, .handle_types = 1},
                     Allocate{.slot = 35},
                 }});
}

}  // namespace
}  // namespace quarry::model
