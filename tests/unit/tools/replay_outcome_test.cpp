// SPDX-License-Identifier: Apache-2.0
// The written forms of replay outcomes.
#include "tools/replay_outcome.hpp"

#include <gtest/gtest.h>

namespace quarry::tools {
namespace {

ReplayOutcome make_outcome(const std::string& trace, const std::string& conf) {
  ReplayOutcome outcome{trace, conf, {}, {}, 2'500'000.0, {}};
  outcome.result.trace.allocs = 3;
  outcome.result.trace.peak_bytes = 1'000'000;
  outcome.result.peak_allocated_bytes = 2_MiB;
  outcome.result.peak_active_bytes = 3_MiB;
  outcome.result.peak_reserved_bytes = 3'115'000;
  outcome.result.driver_calls = 1234;
  outcome.result.driver_time_ns = 5'600'000;
  return outcome;
}

ReportStyle make_style() {
  ReportStyle style;
  style.device_memory_bytes = 80_GiB;
  style.gpu_lag_us = 1500;
  return style;
}

TEST(MakeTraceLabel, IsTheNameWithoutFolderAndFormat) {
  EXPECT_EQ(make_trace_label("a/b/run.csv.gz"), "run");
  EXPECT_EQ(make_trace_label("run.qtrace"), "run");
  EXPECT_EQ(make_trace_label("run.1"), "run.1");
  EXPECT_EQ(make_trace_label("-"), "-");
  EXPECT_EQ(make_trace_label(".csv"), ".csv");
}

TEST(FormatTable, AlignsColumnsUnderOneConfiguration) {
  EXPECT_EQ(
      format_table({make_outcome("d/one.csv", "c:1"), make_outcome("two_longer.csv", "c:1")},
                   make_style()),
      "configuration: c:1\n"
      "device memory: 85,899,345,920 bytes, GPU lag: 1,500 us\n"
      "\n"
      "trace       trace peak  allocated  active   reserved  ratio  driver  driver  events/s"
      "  hazards  OOMs\n"
      "                   MiB        MiB     MiB      bytes          calls      ms   million\n"
      "one          976.6 KiB        2.0     3.0  3,115,000  3.115   1,234     5.6      2.50"
      "        0     0\n"
      "two_longer   976.6 KiB        2.0     3.0  3,115,000  3.115   1,234     5.6      2.50"
      "        0     0\n");
}

TEST(FormatTable, NumbersSeveralConfigurationsAndSaysWhatFailed) {
  ReplayOutcome failed = make_outcome("bad.csv", "c:1");
  failed.error = "bad.csv: line 1: the file is empty";
  const std::string table = format_table(
      {make_outcome("one.csv", "c:1"), make_outcome("one.csv", "c:2"), failed}, ReportStyle{});
  EXPECT_NE(table.find("configuration 1: c:1\nconfiguration 2: c:2\n"), std::string::npos);
  EXPECT_NE(table.find("\none       2 "), std::string::npos) << table;
  EXPECT_NE(table.find("\nbad       1      failed          -"), std::string::npos) << table;
  EXPECT_NE(format_table({failed}, ReportStyle{}).find("failed"), std::string::npos);
}

TEST(FormatTable, TellsTracesOfOneLabelApart) {
  const std::string table =
      format_table({make_outcome("a/one.csv", "c"), make_outcome("b/one.csv.gz", "c"),
                    make_outcome("b/two.csv", "c")},
                   ReportStyle{});
  for (const char* name : {"\na/one.csv ", "\nb/one.csv.gz ", "\ntwo "}) {
    EXPECT_NE(table.find(name), std::string::npos) << name << " in " << table;
  }
}

TEST(FormatTable, ShowsSmallAmountsInUnitsOfTheirOwn) {
  ReplayOutcome small = make_outcome("one.csv", "c");
  small.result.trace.peak_bytes = 512;
  small.result.peak_allocated_bytes = 1536;
  small.result.peak_active_bytes = kUnlimited;
  const std::string table = format_table({small}, ReportStyle{});
  EXPECT_NE(table.find("512 B    1.5 KiB  17,592,186,044,416.0"), std::string::npos) << table;
}

TEST(FormatTable, ShowsNothingToCompareAsADash) {
  ReplayOutcome bare = make_outcome("one.csv", "c");
  ReportStyle style;
  style.has_segments = true;
  EXPECT_NE(format_table({bare}, style).find("     0         -\n"), std::string::npos);
  EXPECT_NE(format_json(bare, style)
                .find("\"segments_equal\":null,\"equal_segments\":null,"
                      "\"segment_difference\":null"),
            std::string::npos);
  bare.result.has_recorded_segments = true;
  EXPECT_NE(format_table({bare}, style).find("equal\n"), std::string::npos);
}

TEST(ShortenConf, CutsAndEscapes) {
  EXPECT_EQ(shorten_conf("a:1,\nb:\xff"), "a:1,\\nb:\\xff");
  EXPECT_EQ(shorten_conf(std::string(200, 'x')), std::string(200, 'x'));
  EXPECT_EQ(shorten_conf(std::string(201, 'x')), std::string(200, 'x') + "...");
}

TEST(FormatTable, ShowsTheReferenceBesideOurs) {
  ReplayOutcome equal = make_outcome("one.csv", "c:1");
  equal.pytorch_reserved_bytes = 3'115'000;
  ReplayOutcome less = make_outcome("two.csv", "c:1");
  less.pytorch_reserved_bytes = 6'230'000;
  ReportStyle style;
  style.has_reference = true;
  const std::string table = format_table({equal, less, make_outcome("three.csv", "c:1")}, style);
  EXPECT_NE(table.find("3,115,000  3,115,000     equal"), std::string::npos) << table;
  EXPECT_NE(table.find("3,115,000  6,230,000  -50.00 %"), std::string::npos) << table;
  EXPECT_NE(table.find("3,115,000          -         -"), std::string::npos) << table;
}

TEST(FormatJson, HoldsExactNumbersInAFixedOrder) {
  EXPECT_EQ(format_json(make_outcome("d/one.csv", "c:1"), make_style()),
            "{\"trace\":\"d/one.csv\",\"conf\":\"c:1\",\"driver\":\"sim\","
            "\"device_memory_bytes\":85899345920,\"gpu_lag_us\":1500,\"allocs\":3,\"frees\":0,"
            "\"record_streams\":0,\"trace_peak_bytes\":1000000,\"peak_allocated_bytes\":2097152,"
            "\"peak_active_bytes\":3145728,\"peak_reserved_bytes\":3115000,\"ooms\":0,"
            "\"rows_after_oom\":0,\"empty_requests\":0,\"hazards\":0,\"driver_calls\":1234,"
            "\"driver_time_us\":5600.0,\"events_per_second\":2500000.0}");
}

TEST(FormatJson, IsAnErrorAloneForAFailedReplay) {
  ReplayOutcome failed = make_outcome("bad\xff.csv", "c:1");
  failed.error = "why \"so\"";
  EXPECT_EQ(
      format_json(failed, make_style()),
      "{\"trace\":\"bad\xef\xbf\xbd.csv\",\"conf\":\"c:1\",\"driver\":\"sim\","
      "\"device_memory_bytes\":85899345920,\"gpu_lag_us\":1500,\"error\":\"why \\\"so\\\"\"}");
}

ReportStyle make_real_style() {
  ReportStyle style;
  style.driver = DriverKind::kCuda;
  style.has_oracle = false;
  style.has_touch = true;
  style.is_in_step = true;
  return style;
}

ReplayOutcome make_touched_outcome() {
  ReplayOutcome outcome = make_outcome("one.csv", "c:1");
  outcome.result.device_memory_bytes = 80_GiB;
  outcome.result.touch = TouchResult{3_GiB, 1234, 5};
  return outcome;
}

TEST(FormatTable, ShowsWhatTouchingOnARealDeviceFound) {
  const std::string table = format_table({make_touched_outcome()}, make_real_style());
  for (const char* text :
       {"\nCUDA device 0, 85,899,345,920 bytes; GPU in step with the host; blocks filled and "
        "checked; driver time measured\n",
        "  touched  wrong  OOMs\n", "      GiB  words\n", "      3.0  1,234     0\n"}) {
    EXPECT_NE(table.find(text), std::string::npos) << text << " in " << table;
  }
}

TEST(FormatJson, NamesTheRealDeviceAndWrongWords) {
  const std::string json = format_json(make_touched_outcome(), make_real_style());
  for (const char* text :
       {"\"driver\":\"cuda\",\"in_step\":true,\"device_memory_bytes\":85899345920,\"allocs\"",
        "\"hazards\":null,\"touched_bytes\":3221225472,\"wrong_words\":1234,"}) {
    EXPECT_NE(json.find(text), std::string::npos) << text << " in " << json;
  }
  EXPECT_EQ(json.find("gpu_lag_us"), std::string::npos);
}

}  // namespace
}  // namespace quarry::tools
