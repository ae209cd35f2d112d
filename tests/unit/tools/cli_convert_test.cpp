// SPDX-License-Identifier: Apache-2.0
// `quarry convert` as users run it: both directions, gzip by the output's name, no half files.
#include <fcntl.h>
#include <sys/stat.h>

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
  EXPECT_EQ(result.err, "standard output: 4 events written as csv, " +
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

TEST_F(CliConvert, WritesToTheTargetOfALinkAndKeepsItsMode) {
  namespace fs = std::filesystem;
  write("in.csv", kGoodTrace);
  write("target.csv", "before");
  fs::permissions(path("target.csv"), fs::perms{0640});
  fs::create_symlink("target.csv", path("link.csv"));
  EXPECT_EQ(run("convert in.csv link.csv").exit_code, 0);
  EXPECT_TRUE(fs::is_symlink(path("link.csv")));
  EXPECT_FALSE(fs::is_symlink(path("target.csv")));
  EXPECT_EQ(read("target.csv"), kGoodTrace);
  EXPECT_EQ(fs::status(path("target.csv")).permissions(), fs::perms{0640});
  fs::create_symlink("new.csv", path("dangling.csv"));
  EXPECT_EQ(run("convert in.csv dangling.csv").exit_code, 0);
  EXPECT_EQ(read("new.csv"), kGoodTrace);
  fs::create_symlink("loop.csv", path("loop.csv"));
  EXPECT_EQ(run("convert in.csv loop.csv").err,
            "quarry convert: loop.csv: cannot create: Too many levels of symbolic links\n");
}

TEST_F(CliConvert, GivesANewFileTheModeOfTheUmask) {
  namespace fs = std::filesystem;
  write("in.csv", kGoodTrace);
  const mode_t before = ::umask(027);
  EXPECT_EQ(run("convert in.csv out.csv").exit_code, 0);
  ::umask(before);
  EXPECT_EQ(fs::status(path("out.csv")).permissions(), fs::perms{0640});
}

TEST_F(CliConvert, WritesNoBinaryToATerminal) {
  write("in.csv", kGoodTrace);
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY);
  ASSERT_GE(terminal, 0);
  ASSERT_EQ(::grantpt(terminal) + ::unlockpt(terminal), 0);
  const std::string output = std::string(">") + ::ptsname(terminal);
  const int other_end = ::open(::ptsname(terminal), O_RDWR | O_NOCTTY);
  const CliResult result = run("convert in.csv -", output);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.err,
            "quarry convert: the native format is binary and not written to a terminal; add "
            "--format csv, or redirect the output\n");
  EXPECT_EQ(run("convert in.csv - --format csv", output).exit_code, 0);
  ::close(other_end);
  ::close(terminal);
}

TEST_F(CliConvert, UnderstandsNamesWithoutCase) {
  write("in.csv", kGoodTrace);
  EXPECT_EQ(run("convert in.csv out.CSV").exit_code, 0);
  EXPECT_EQ(read("out.CSV"), kGoodTrace);
  EXPECT_EQ(run("convert in.csv out.txt").exit_code, 0);
  EXPECT_EQ(read("out.txt").substr(0, 4), "\x89QTR");
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
