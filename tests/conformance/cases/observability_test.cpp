// SPDX-License-Identifier: Apache-2.0
// Cases from the field about what the allocator says when it fails. Each under its number and with
// its figures. Owns nothing but its scenarios.
#include <string>
#include <vector>

#include "tests/support/scenario.hpp"

namespace quarry::test {
namespace {

// Fills one segment of 960 MiB with twenty blocks of 48 MiB, frees every second one and asks for
// 128 MiB. What the allocator then says.
struct Failure {
  OomReport report;
  std::string message;
  int observed = 0;
};

Failure fail_by_fragmentation(Scenario& s) {
  Failure failure;
  s.allocator().callbacks().add_oom_observer([&failure](const OomReport& report) {
    failure.report = report;
    ++failure.observed;
  });
  s.free(s.malloc(1'006'632'960));
  std::vector<Address> blocks;
  for (int i = 0; i < 20; ++i)
    blocks.push_back(s.malloc(50'331'648));
  for (std::size_t i = 0; i < blocks.size(); i += 2)
    s.free(blocks[i]);
  EXPECT_EQ(s.malloc(134'217'728), 0u);
  EXPECT_EQ(s.last_code(), StatusCode::kOutOfMemory);
  failure.message = s.last_message();
  return failure;
}

void expect_in(const std::string& part, const std::string& text) {
  EXPECT_NE(text.find(part), std::string::npos) << part << " is not in:\n" << text;
}

TEST(C58, ReportSaysThatFragmentationIsTheReason) {
  Scenario s(1'073'741'824);
  const Failure failure = fail_by_fragmentation(s);
  const OomReport& report = failure.report;
  EXPECT_EQ(failure.observed, 1);
  EXPECT_EQ(report.device, 0);
  EXPECT_EQ(report.requested_bytes, 134'217'728u);
  EXPECT_EQ(report.device_free_bytes, 67'108'864u);
  EXPECT_EQ(report.device_total_bytes, 1'073'741'824u);
  EXPECT_EQ(report.reserved_bytes, 1'006'632'960u);
  EXPECT_EQ(report.allocated_bytes, 503'316'480u);
  EXPECT_EQ(report.cached_bytes, 503'316'480u);
  EXPECT_EQ(report.pending_bytes, 0u);
  EXPECT_EQ(report.external_bytes, 0u);
  EXPECT_EQ(report.largest_free_block, 50'331'648u);
  EXPECT_EQ(report.reason, OomReport::Reason::kFragmentation);
}

TEST(C58, TextCarriesEveryFigureOfTheReport) {
  Scenario s(1'073'741'824);
  const std::string text = fail_by_fragmentation(s).message;
  // Upstream's sentence first, for those who scan logs.
  EXPECT_EQ(
      text.find("CUDA out of memory. Tried to allocate 128.00 MiB. GPU 0 has a total capacity "
                "of 1024.00 MiB of which 64.00 MiB is free."),
      0u)
      << text;
  expect_in("480.00 MiB is allocated", text);
  expect_in("480.00 MiB is reserved by Quarry but unallocated", text);
  for (const char* figure : {"reason=fragmentation", "requested=134217728", "reserved=1006632960",
                             "allocated=503316480", "pending=0", "cached=503316480",
                             "largest_free_block=50331648", "free=67108864", "external=0"}) {
    expect_in(figure, text);
  }
}

TEST(C58, AdviceIsOnlyWhatThisConfigurationCanFollow) {
  Scenario s(1'073'741'824);
  const Failure failure = fail_by_fragmentation(s);
  EXPECT_FALSE(failure.report.is_expandable);
  expect_in("segments:expandable", failure.message);
  expect_in("max_split_size_mb", failure.message);
  // Nor may the advice name an option that is of no use when live blocks fill the device.
  Scenario full(1'073'741'824);
  EXPECT_NE(full.malloc(1'006'632'960), 0u);
  EXPECT_EQ(full.malloc(134'217'728), 0u);
  EXPECT_EQ(full.last_message().find("max_split_size_mb"), std::string::npos);
  expect_in("reason=device_full", full.last_message());
}

TEST(C58, NobodyIsSentToExpandableSegmentsWhoHasThem) {
  Scenario s(ScenarioOptions::with_expandable(1'073'741'824));
  OomReport report;
  s.allocator().callbacks().add_oom_observer([&report](const OomReport& r) { report = r; });
  for (int i = 0; i < 20; ++i)
    EXPECT_NE(s.malloc(50'331'648), 0u);
  EXPECT_EQ(s.malloc(134'217'728), 0u);
  EXPECT_TRUE(report.is_expandable);
  EXPECT_EQ(s.last_message().find("segments:expandable"), std::string::npos) << s.last_message();
}

}  // namespace
}  // namespace quarry::test
