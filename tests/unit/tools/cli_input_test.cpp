// SPDX-License-Identifier: Apache-2.0
// Bad traces, end to end: each is a clear error that names file, line and cause, nothing crashes,
// and the traces beside it are still replayed.
#include <array>

#include "cli_run.hpp"

namespace quarry::test {
namespace {

#define HEADER "t_us,op,id,bytes,stream\n"

struct BadTrace {
  const char* name;
  std::string text;
  const char* error;
};

// What the test's name shows of a parameter.
void PrintTo(const BadTrace& bad, std::ostream* out) {
  *out << bad.name;
}

class CliInput : public CliTest, public testing::WithParamInterface<BadTrace> {};

TEST_P(CliInput, IsRefusedAndTheOthersReplayed) {
  const BadTrace& bad = GetParam();
  write("bad.csv", bad.text);
  write("good.csv", kGoodTrace);
  const CliResult result = run("replay bad.csv good.csv --json");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.err, "quarry replay: " + std::string(bad.error) + "\n");
  const auto lines = parse_lines(result.out);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["trace"], "bad.csv");
  EXPECT_EQ(lines[0]["error"], bad.error);
  EXPECT_EQ(lines[0].size(), 6u);
  EXPECT_EQ(lines[1]["peak_reserved_bytes"], 20971520);
}

INSTANTIATE_TEST_SUITE_P(
    Traces, CliInput,
    testing::Values(
        BadTrace{"BadNumber", HEADER "0,a,1,5x,0\n",
                 "bad.csv: line 2: bytes: \"5x\" is not a number"},
        BadTrace{"UnknownOp", HEADER "0,a,1,512,0\n1,q,1,,0\n",
                 "bad.csv: line 3: unknown op \"q\"; known are a, f, r, S and T"},
        BadTrace{"FreeOfUnknownId", HEADER "0,a,1,512,0\n1,f,2,,0\n",
                 "bad.csv: line 3: free of id 2, which was never allocated"},
        BadTrace{"DoubleFree", HEADER "0,a,1,512,0\n1,f,1,,0\n2,f,1,,0\n",
                 "bad.csv: line 4: free of id 1, which was freed already"},
        BadTrace{"IdTwice", HEADER "0,a,1,512,0\n1,a,1,512,0\n",
                 "bad.csv: line 3: allocation of id 1, which is allocated already"},
        BadTrace{"RecordOfFreed", HEADER "0,a,1,512,0\n1,f,1,,0\n2,r,1,,1\n",
                 "bad.csv: line 4: record_stream of id 1, which was freed already"},
        BadTrace{"LargestSize", HEADER "0,a,1,18446744073709551615,0\n",
                 "bad.csv: line 2: allocation of id 1 with 18446744073709551615 bytes; a request "
                 "is below 1152921504606846976 (1 EiB)"},
        BadTrace{"Empty", "", "bad.csv: line 1: the file is empty"},
        BadTrace{"NotATrace",
                 "\x7f"
                 "ELF\x02\x01 and so on\n",
                 "bad.csv: line 1: not a trace: expected a CSV with the header "
                 "\"t_us,op,id,bytes,stream\" or Quarry's native format, either of them plain or "
                 "gzip'd; found \"\\x7fELF\\x02\\x01 and so on\""},
        BadTrace{"CutNativeHeader", "\x89QTR", "bad.csv: the file ends within its header"}),
    [](const auto& param) { return std::string(param.param.name); });

class CliFiles : public CliTest {};

TEST_F(CliFiles, ACutGzipIsRefusedAtTheLineThatItCuts) {
  std::string text = HEADER;
  for (int i = 1; i <= 20000; ++i) {
    text += std::to_string(i) + ",a," + std::to_string(i) + ",512,0\n";
  }
  write_gzip("whole.csv.gz", text);
  const std::string packed = read("whole.csv.gz");
  write("bad.csv.gz", packed.substr(0, packed.size() - 4));
  write("good.csv", kGoodTrace);
  const CliResult result = run("replay bad.csv.gz good.csv whole.csv.gz --json");
  EXPECT_EQ(result.exit_code, 1);
  // All rows came out; gzip's own trailer is what is missing.
  EXPECT_EQ(result.err,
            "quarry replay: bad.csv.gz: line 20002: the gzip data is cut: it ends within a "
            "member\n");
  const auto lines = parse_lines(result.out);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_FALSE(lines[1].contains("error"));
  EXPECT_EQ(lines[2]["allocs"], 20000);
}

TEST_F(CliFiles, AGzipCutAnywhereIsAnErrorAndNothingElse) {
  write_gzip("whole.csv.gz", kGoodTrace);
  const std::string packed = read("whole.csv.gz");
  for (std::size_t length = 0; length < packed.size(); length += 7) {
    write("bad.csv.gz", packed.substr(0, length));
    EXPECT_EQ(run("replay bad.csv.gz").exit_code, 1) << length;
  }
}

TEST_F(CliFiles, AFileThatIsNotThereAndAFolderAreErrorsOfTheirTraces) {
  write("good.csv", kGoodTrace);
  const CliResult result = run("replay missing.csv / good.csv --json");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.err,
            "quarry replay: missing.csv: cannot open: No such file or directory\n"
            "quarry replay: /: cannot read: Is a directory\n");
  EXPECT_EQ(parse_lines(result.out).size(), 3u);
}

}  // namespace
}  // namespace quarry::test
