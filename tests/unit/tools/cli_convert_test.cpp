// SPDX-License-Identifier: Apache-2.0
// `quarry convert` as users run it: both directions, gzip by the output's name, no half files.
#include "cli_run.hpp"

namespace quarry::test {
namespace {

class CliConvert : public CliTest {};

TEST_F(CliConvert, LosesNothingOnTheWayThereAndBack) {
  write("in.csv", kGoodTrace);
  EXPECT_EQ(run("convert in.csv mid.qtrace").exit_code, 0);
  EXPECT_EQ(run("convert mid.qtrace mid.qtrace.gz").exit_code, 0);
  EXPECT_EQ(run("convert mid.qtrace.gz mid.csv.gz").exit_code, 0);
  EXPECT_EQ(run("convert mid.csv.gz out.csv").exit_code, 0);
  EXPECT_EQ(read("out.csv"), kGoodTrace);
  EXPECT_EQ(read("mid.qtrace").substr(0, 4), "\x89QTR");
  EXPECT_EQ(read("mid.qtrace.gz").substr(0, 2), "\x1f\x8b");
  EXPECT_EQ(read("mid.csv.gz").substr(0, 2), "\x1f\x8b");
}

TEST_F(CliConvert, WorksInAPipe) {
  write_gzip("in.csv.gz", kGoodTrace);
  const CliResult result = run("convert - - --format csv <in.csv.gz");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, kGoodTrace);
  EXPECT_EQ(result.err, "-: 4 events written as csv, " +
                            std::to_string(std::string(kGoodTrace).size()) + " bytes\n");
}

TEST_F(CliConvert, MayReplaceItsOwnInput) {
  write("in.csv", kGoodTrace);
  EXPECT_EQ(run("convert in.csv in.csv").exit_code, 0);
  EXPECT_EQ(read("in.csv"), kGoodTrace);
}

TEST_F(CliConvert, LeavesNothingBehindWhenTheInputIsBroken) {
  write("in.csv", std::string(kGoodTrace) + "x\n");
  write("out.qtrace", "before");
  const CliResult result = run("convert in.csv out.qtrace");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.err,
            "quarry convert: in.csv: line 6: \"x\" has 1 field where t_us,op,id,bytes,stream are "
            "5\n");
  EXPECT_EQ(read("out.qtrace"), "before");
  EXPECT_FALSE(exists("out.qtrace.partial"));
}

TEST_F(CliConvert, SaysWhyItCannotWrite) {
  write("in.csv", kGoodTrace);
  const CliResult result = run("convert in.csv no/such/folder.csv");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.err,
            "quarry convert: no/such/folder.csv: cannot create: No such file or directory\n");
  EXPECT_EQ(run("convert in.csv /dev/full").exit_code, 1);
  EXPECT_EQ(run("convert in.csv").exit_code, 2);
  EXPECT_EQ(run("convert in.csv out.csv --format xml").exit_code, 2);
}

}  // namespace
}  // namespace quarry::test
