// SPDX-License-Identifier: Apache-2.0
// The CSV format: every op, what is tolerated, and the exact words for what is not.
#include <gtest/gtest.h>

#include <tuple>

#include "trace/csv_row.hpp"
#include "trace_text.hpp"

namespace quarry::test {
namespace {

const std::string kHeader = "t_us,op,id,bytes,stream\n";

TEST(CsvReader, ReadsEveryOp) {
  const WholeTrace trace = read_text(kHeader +
                                     "0,S,,2097152,0\n5,a,1,1000,3\n6,r,1,,4\n7,f,1,,3\n"
                                     "8,T,,2097152,0\n9,a,2,0,0\n10,f,2,,\n");
  ASSERT_EQ(trace.error, "");
  const std::vector<TraceEvent> expected = {
      {0, 0, 2097152, 0, TraceOp::kSegmentAlloc}, {5, 1, 1000, 3, TraceOp::kAlloc},
      {6, 1, 0, 4, TraceOp::kRecordStream},       {7, 1, 0, 3, TraceOp::kFree},
      {8, 0, 2097152, 0, TraceOp::kSegmentFree},  {9, 2, 0, 0, TraceOp::kAlloc},
      {10, 2, 0, kNoTraceStream, TraceOp::kFree},
  };
  EXPECT_EQ(trace.events, expected);
}

TEST(CsvReader, ToleratesCarriageReturnsBlankLinesAtTheEndAndAMissingLastLineEnd) {
  EXPECT_EQ(read_text("t_us,op,id,bytes,stream\r\n1,a,1,5,0\r\n2,f,1,,0\r\n\r\n\n").events.size(),
            2u);
  EXPECT_EQ(read_text(kHeader + "1,a,1,5,0").events.size(), 1u);
  EXPECT_EQ(read_text(kHeader).error, "");
}

TEST(CsvReader, ReadsTheSameWhateverTheSizeOfReadsAndBatches) {
  std::string text = kHeader;
  for (int i = 0; i < 30000; ++i)
    text += std::to_string(i) + ",a," + std::to_string(i) + ",7,0\n";
  const WholeTrace whole = read_text(text);
  ASSERT_EQ(whole.events.size(), 30000u);
  EXPECT_EQ(read_all(make_source(text, 7), 13).events, whole.events);
  EXPECT_EQ(read_all(make_source(text, 4096), 1).events, whole.events);
}

TEST(CsvReader, ReadsTheLargestNumber) {
  const WholeTrace trace =
      read_text(kHeader + "18446744073709551615,a,1,18446744073709551615,0\n");
  ASSERT_EQ(trace.error, "");
  EXPECT_EQ(trace.events[0].bytes, kUnlimited);
}

using BadText = std::tuple<const char*, const char*>;
class CsvReaderRefuses : public testing::TestWithParam<BadText> {};

TEST_P(CsvReaderRefuses, WithLineAndCause) {
  EXPECT_EQ(read_text(std::get<0>(GetParam())).error, std::get<1>(GetParam()));
}

#define HEADER "t_us,op,id,bytes,stream\n"
INSTANTIATE_TEST_SUITE_P(
    Texts, CsvReaderRefuses,
    testing::Values(
        BadText("", "t: line 1: the file is empty"),
        BadText("hello\n",
                "t: line 1: not a trace: expected a CSV with the header "
                "\"t_us,op,id,bytes,stream\" or "
                "Quarry's native format, either of them plain or gzip'd; found \"hello\""),
        BadText("1,a,1,5,0\n",
                "t: line 1: not a trace: expected a CSV with the header "
                "\"t_us,op,id,bytes,stream\" or "
                "Quarry's native format, either of them plain or gzip'd; found \"1,a,1,5,0\""),
        BadText(HEADER "1,a,1,5,0\n1,a,2,5x,0\n", "t: line 3: bytes: \"5x\" is not a number"),
        BadText(HEADER "-1,a,1,5,0\n", "t: line 2: t_us: \"-1\" is not a number"),
        BadText(HEADER "1,a,1,18446744073709551616,0\n",
                "t: line 2: bytes: \"18446744073709551616\" is above 18446744073709551615"),
        BadText(HEADER "1,a,1,000000000000000000001,0\n",
                "t: line 2: bytes: \"000000000000000000001\" has more than 20 digits"),
        BadText(HEADER "1,a,,5,0\n", "t: line 2: id is empty"),
        BadText(HEADER "1,a,1,,0\n", "t: line 2: bytes is empty"),
        BadText(HEADER "1,a,1,5,\n", "t: line 2: stream is empty"),
        BadText(HEADER "1,f,1,,18446744073709551615\n",
                "t: line 2: stream: \"18446744073709551615\" is no stream's number"),
        BadText(HEADER "1,x,1,5,0\n", "t: line 2: unknown op \"x\"; known are a, f, r, S and T"),
        BadText(HEADER "1,aa,1,5,0\n", "t: line 2: unknown op \"aa\"; known are a, f, r, S and T"),
        BadText(HEADER "1,a,1,5\n",
                "t: line 2: \"1,a,1,5\" has 4 fields where t_us,op,id,bytes,stream are 5"),
        BadText(HEADER "1,a,1,5,0,6\n",
                "t: line 2: \"1,a,1,5,0,6\" has 6 fields where t_us,op,id,bytes,stream are 5"),
        BadText(HEADER "\x01\xff\n",
                "t: line 2: \"\\x01\\xff\" has 1 field where t_us,op,id,bytes,stream are 5"),
        BadText(HEADER "1,a,1,5,0\n\n2,f,1,,0\n", "t: line 4: a row after the blank line 3")));

TEST(CsvReader, RefusesOtherBinaryFiles) {
  EXPECT_EQ(
      read_text("\x89PNG\r\n").error,
      "t: line 1: not a trace: expected a CSV with the header \"t_us,op,id,bytes,stream\" or "
      "Quarry's native format, either of them plain or gzip'd; found \"\\x89PNG\\x0d\\x0a\"");
}

TEST(CsvReader, RefusesLongLines) {
  EXPECT_EQ(read_text(kHeader + std::string(300, '1') + "\n").error,
            "t: line 2: 300 bytes long; a row has at most 256");
  EXPECT_EQ(read_text(kHeader + std::string(1 << 20, '1') + "\n").error,
            "t: line 2: longer than the 256 bytes that a row may have");
  EXPECT_EQ(
      read_text(std::string(1 << 20, 'x')).error,
      "t: line 1: not a trace: expected a CSV with the header \"t_us,op,id,bytes,stream\" or "
      "Quarry's native format, either of them plain or gzip'd; found \"" +
          std::string(60, 'x') + "...\"");
}

TEST(CsvReader, NamesTheLineAfterManyWindows) {
  std::string text = kHeader;
  for (int i = 0; i < 200000; ++i)
    text += "1,f,1,,0\n";
  EXPECT_EQ(read_text(text + "1,f,?,,0\n").error, "t: line 200002: id: \"?\" is not a number");
}

TEST(CsvReader, NamesTheLineWhereASmallSourceFails) {
  std::string text = kHeader + "1,f,1,,0\n2,f,1,,0\n3,f";
  const ByteSource source = [&text](std::span<char> out) -> Result<std::size_t> {
    if (text.empty()) return Status(StatusCode::kInvalidArgument, "the gzip data is cut");
    const std::size_t count = text.copy(out.data(), out.size());
    text.clear();
    return count;
  };
  EXPECT_EQ(read_all(source).error, "t: line 4: the gzip data is cut");
}

TEST(CsvReader, PassesOnTheFailureOfItsSource) {
  const ByteSource source = [](std::span<char>) -> Result<std::size_t> {
    return Status(StatusCode::kInvalidArgument, "the gzip data is cut");
  };
  EXPECT_EQ(read_all(source).error, "t: the gzip data is cut");
}

TEST(CsvWriter, WritesWhatTheReaderReads) {
  const std::string text = kHeader +
                           "0,S,,2097152,0\n5,a,1,1000,3\n6,r,1,,4\n7,f,1,,3\n8,T,,2097152,0\n"
                           "9,a,2,0,0\n10,f,2,,\n";
  EXPECT_EQ(write_all(TraceFormat::kCsv, read_text(text).events), text);
}

TEST(QuoteInput, ShortensAndEscapes) {
  EXPECT_EQ(quote_input("a\tb"), "\"a\\x09b\"");
  EXPECT_EQ(quote_input(std::string(61, 'x')), "\"" + std::string(60, 'x') + "...\"");
}

}  // namespace
}  // namespace quarry::test
