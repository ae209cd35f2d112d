// SPDX-License-Identifier: Apache-2.0
#include "core/oom_report.hpp"

#include <gtest/gtest.h>

#include <set>

#include "sim/sim_driver.hpp"

namespace quarry {
namespace {

using Reason = OomReport::Reason;

constexpr Reason kReasons[] = {Reason::kDeviceFull, Reason::kFragmentation, Reason::kStranded,
                               Reason::kLimit,      Reason::kFreeForbidden, Reason::kImpossible};

// A device of 1 GiB that is full of live blocks; each test changes what makes its reason.
class OomReportTest : public testing::Test {
 protected:
  OomReportTest() {
    sim::SimOptions options;
    options.physical_bytes = 1_GiB;
    sim_ = std::make_unique<SimDriver>(options);
    report_.stream = 0x10;
    report_.requested_bytes = report_.rounded_bytes = report_.segment_bytes = 100_MiB;
    report_.reserved_bytes = report_.allocated_bytes = 960_MiB;
  }
  Reason find_reason(bool is_free_forbidden = false) {
    add_driver_ledger(report_, *sim_, is_free_forbidden);
    return report_.reason;
  }
  void cache(Bytes bytes, Bytes largest, std::uint64_t stream) {
    report_.allocated_bytes -= bytes;
    report_.cached_bytes += bytes;
    report_.caches.push_back({stream, bytes, largest});
  }

  std::unique_ptr<SimDriver> sim_;
  OomReport report_;
};

TEST_F(OomReportTest, EveryReasonHasANameOfItsOwn) {
  std::set<std::string_view> names;
  for (const Reason reason : kReasons)
    names.insert(get_name(reason));
  EXPECT_EQ(names.size(), std::size(kReasons));
}

TEST_F(OomReportTest, LiveBlocksFillTheDevice) {
  EXPECT_EQ(find_reason(), Reason::kDeviceFull);
  EXPECT_NE(format(report_).find("Live blocks fill the device"), std::string::npos);
}

TEST_F(OomReportTest, OthersFillTheDevice) {
  sim_->set_external_bytes(0, 900_MiB);
  report_.reserved_bytes = report_.allocated_bytes = 0;
  EXPECT_EQ(find_reason(), Reason::kDeviceFull);
  EXPECT_EQ(report_.external_bytes, 900_MiB);
  EXPECT_EQ(report_.device_free_bytes, 124_MiB);
  EXPECT_NE(format(report_).find("in use by others"), std::string::npos);
}

TEST_F(OomReportTest, MoreThanTheDeviceIsImpossible) {
  report_.segment_bytes = report_.rounded_bytes = 1_GiB + 2_MiB;
  EXPECT_EQ(find_reason(), Reason::kImpossible);
}

TEST_F(OomReportTest, EnoughInPiecesOfThisStreamIsFragmentation) {
  cache(200_MiB, 60_MiB, 0x10);
  EXPECT_EQ(find_reason(), Reason::kFragmentation);
}

TEST_F(OomReportTest, AFittingBlockOfAnotherStreamIsStranded) {
  cache(200_MiB, 120_MiB, 0x20);
  EXPECT_EQ(find_reason(), Reason::kStranded);
}

TEST_F(OomReportTest, WhatOtherPoolsCacheIsNotEnoughInPieces) {
  cache(200_MiB, 120_MiB, 0x10);
  report_.private_cached_bytes = report_.others_cached_bytes = 150_MiB;
  EXPECT_EQ(find_reason(), Reason::kDeviceFull);
  EXPECT_NE(format(report_).find("150.00 MiB are cached in other private pools"),
            std::string::npos);
  report_.others_cached_bytes = 100_MiB;
  EXPECT_EQ(find_reason(), Reason::kFragmentation) << "a pool's own pieces, or the default pool's";
}

TEST_F(OomReportTest, AFittingBlockOfTheDefaultPoolIsNotStrandedForAPrivateOne) {
  cache(200_MiB, 120_MiB, 0x20);
  report_.pool = PoolId{0, 7};
  EXPECT_EQ(find_reason(), Reason::kFragmentation);
}

TEST_F(OomReportTest, FunctionsOfAPoolThatGaveNoMoreAreNamed) {
  cache(200_MiB, 120_MiB, 0x10);
  report_.pool = PoolId{0, 7};
  report_.has_own_functions = true;
  EXPECT_EQ(find_reason(true), Reason::kDeviceFull);
  EXPECT_NE(format(report_).find("The functions that pool"), std::string::npos);
  report_.pool_limit_bytes = 10_MiB;
  EXPECT_EQ(find_reason(), Reason::kLimit);
}

TEST_F(OomReportTest, TheLimitIsNamedWhenItRefused) {
  report_.limit_bytes = 1000_MiB;
  EXPECT_EQ(find_reason(), Reason::kLimit);
  report_.limit_bytes = 1060_MiB;
  EXPECT_EQ(find_reason(), Reason::kDeviceFull) << "the limit had room";
}

TEST_F(OomReportTest, TheGuardIsNamedWhenItKeptMemoryFromBeingReleased) {
  EXPECT_EQ(find_reason(true), Reason::kDeviceFull) << "nothing was cached";
  cache(200_MiB, 60_MiB, 0x10);
  EXPECT_EQ(find_reason(true), Reason::kFreeForbidden);
}

TEST_F(OomReportTest, EveryReasonGivesItsNameAndAdviceOfItsOwn) {
  std::set<std::string> advice;
  for (const Reason reason : kReasons) {
    report_.reason = reason;
    report_.limit_bytes = reason == Reason::kLimit ? 1000_MiB : kUnlimited;
    const std::string text = format(report_);
    EXPECT_NE(text.find("reason=" + std::string(get_name(reason))), std::string::npos) << text;
    const std::size_t begin = text.find("but unallocated. ");
    ASSERT_NE(begin, std::string::npos);
    advice.insert(text.substr(begin, text.find('\n') - begin));
  }
  EXPECT_EQ(advice.size(), std::size(kReasons));
}

TEST_F(OomReportTest, ExpandableSegmentsAreAdviceOnlyWhereTheyAreOff) {
  for (const Reason reason : {Reason::kFragmentation, Reason::kStranded}) {
    report_.reason = reason;
    for (const bool is_expandable : {false, true}) {
      report_.is_expandable = is_expandable;
      const std::string text = format(report_);
      EXPECT_EQ(text.find("segments:expandable") != std::string::npos, !is_expandable) << text;
      EXPECT_EQ(text.find("cross_stream_reuse") != std::string::npos, is_expandable) << text;
    }
  }
}

TEST_F(OomReportTest, TheThreeLedgersStandBelowTheSentence) {
  cache(200_MiB, 60_MiB, 0x10);
  cache(100_MiB, 50_MiB, ~std::uint64_t{0});
  report_.requested_bytes = 99_MiB;
  report_.pending_bytes = 7_MiB;
  report_.largest_free_block = 60_MiB;
  find_reason();
  EXPECT_EQ(format(report_).substr(format(report_).find('\n')),
            "\n  reason=fragmentation requested=103809024 rounded=104857600 segment=104857600 "
            "stream=0x10"
            "\n  allocator: reserved=1006632960 allocated=692060160 pending=7340032 "
            "cached=314572800 largest_free_block=62914560"
            "\n  driver: free=1073741824 external=0"
            "\n  cached for stream 0x10: 209715200 bytes, largest block 62914560"
            "\n  cached for any stream: 104857600 bytes, largest block 52428800");
}

TEST_F(OomReportTest, LongListsOfStreamsAreCutAndCounted) {
  for (std::uint64_t stream = 0; stream < 11; ++stream)
    cache(1_MiB, 1_MiB, 0x100 + stream);
  const std::string text = format(report_);
  EXPECT_NE(text.find("stream 0x107"), std::string::npos);
  EXPECT_EQ(text.find("stream 0x108"), std::string::npos);
  EXPECT_NE(text.find("and for 3 more streams"), std::string::npos);
}

}  // namespace
}  // namespace quarry
