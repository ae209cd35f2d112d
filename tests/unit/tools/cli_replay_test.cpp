// SPDX-License-Identifier: Apache-2.0
// `quarry replay` as users run it: output forms, standard input, options and exit codes.
#include "cli_run.hpp"

namespace quarry::test {
namespace {

class CliReplay : public CliTest {};

TEST_F(CliReplay, PrintsOneJsonObjectForEachTraceAndConfiguration) {
  write("one.csv", kGoodTrace);
  write_gzip("two.csv.gz", kGoodTrace);
  const CliResult result =
      run("replay one.csv two.csv.gz --json --conf segments:plain --conf max_split_size_mb:256");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err, "");
  const auto lines = parse_lines(result.out);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[1]["trace"], "one.csv");
  EXPECT_EQ(lines[1]["conf"], "max_split_size_mb:256");
  EXPECT_EQ(lines[2]["trace"], "two.csv.gz");
  EXPECT_EQ(lines[2]["conf"], "segments:plain");
  for (const auto& line : lines) {
    EXPECT_EQ(line["allocs"], 2);
    EXPECT_EQ(line["frees"], 2);
    EXPECT_EQ(line["trace_peak_bytes"], 10485760);
    EXPECT_EQ(line["peak_allocated_bytes"], 10485760);
    EXPECT_EQ(line["peak_active_bytes"], 10485760);
    EXPECT_EQ(line["peak_reserved_bytes"], 20971520);
    EXPECT_EQ(line["ooms"], 0);
    EXPECT_EQ(line["hazards"], 0);
    EXPECT_GT(line["driver_calls"], 0);
    EXPECT_GT(line["driver_time_us"], 0);
    EXPECT_GT(line["events_per_second"], 0);
  }
}

TEST_F(CliReplay, TakesOneConfigurationPerOptionWhereverTheTracesStand) {
  write("one.csv", kGoodTrace);
  write("two.csv", kGoodTrace);
  const CliResult result =
      run("replay one.csv --conf segments:plain,thread_cache:False two.csv --json "
          "--conf 'roundup_power2_divisions:[64:8,>:4]'");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const auto lines = parse_lines(result.out);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0]["conf"], "segments:plain,thread_cache:False");
  EXPECT_EQ(lines[1]["conf"], "roundup_power2_divisions:[64:8,>:4]");
  EXPECT_EQ(lines[2]["trace"], "two.csv");
}

TEST_F(CliReplay, PrintsATableForPeople) {
  write("one.csv", kGoodTrace);
  write("reference.csv", "trace,pytorch_peak_reserved_bytes\none,20971520\n");
  const CliResult result = run("replay one.csv --reference reference.csv");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_NE(result.out.find("configuration: segments:plain,thread_cache:False\n"),
            std::string::npos)
      << result.out;
  EXPECT_NE(result.out.find("20,971,520  20,971,520    equal  2.000"), std::string::npos)
      << result.out;
  EXPECT_EQ(result.out.find('\x1b'), std::string::npos);
  EXPECT_EQ(result.err, "");
}

TEST_F(CliReplay, ReadsStandardInputOnceOrForSeveralConfigurations) {
  write_gzip("one.csv.gz", kGoodTrace);
  const CliResult once = run("replay - --json <one.csv.gz");
  EXPECT_EQ(once.exit_code, 0);
  EXPECT_EQ(parse_lines(once.out).at(0)["trace"], "-");
  EXPECT_EQ(parse_lines(once.out).at(0)["peak_reserved_bytes"], 20971520);
  const CliResult twice = run("replay - --json --conf segments:plain --conf '' <one.csv.gz");
  EXPECT_EQ(twice.exit_code, 0) << twice.err;
  const auto lines = parse_lines(twice.out);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["peak_reserved_bytes"], 20971520);
  EXPECT_EQ(lines[1]["peak_reserved_bytes"], 20971520);
  EXPECT_EQ(run("replay - - <one.csv.gz").exit_code, 2);
}

TEST_F(CliReplay, NamesStandardInputInErrors) {
  write("bad.csv", "t_us,op,id,bytes,stream\n0,f,1,,0\n");
  const CliResult result = run("replay - <bad.csv");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.err,
            "quarry replay: standard input: line 2: free of id 1, which was never allocated\n");
}

TEST_F(CliReplay, CountsOutOfMemoryAsAResult) {
  write("one.csv", kGoodTrace);
  const CliResult result = run("replay one.csv --json --device-memory 10MiB");
  EXPECT_EQ(result.exit_code, 0);
  const auto line = parse_lines(result.out).at(0);
  EXPECT_EQ(line["ooms"], 2);
  EXPECT_EQ(line["rows_after_oom"], 2);
  EXPECT_EQ(line["peak_reserved_bytes"], 0);
  EXPECT_EQ(line["trace_peak_bytes"], 10485760);
}

TEST_F(CliReplay, HonoursTheLagOfTheGpu) {
  write("one.csv",
        "t_us,op,id,bytes,stream\n0,a,1,31457280,0\n1,r,1,,1\n2,f,1,,0\n3,a,2,31457280,0\n");
  EXPECT_EQ(parse_lines(run("replay one.csv --json").out).at(0)["peak_reserved_bytes"], 31457280);
  EXPECT_EQ(
      parse_lines(run("replay one.csv --json --gpu-lag-us 9").out).at(0)["peak_reserved_bytes"],
      62914560);
}

TEST_F(CliReplay, ShowsNoHazardsWithoutTheOracle) {
  write("one.csv", kGoodTrace);
  EXPECT_TRUE(
      parse_lines(run("replay one.csv --json --oracle off").out).at(0)["hazards"].is_null());
}

TEST_F(CliReplay, RecordsTheDeviceAndTheLag) {
  write("one.csv", kGoodTrace);
  const auto line =
      parse_lines(run("replay one.csv --json --device-memory 16G --gpu-lag-us 7").out).at(0);
  EXPECT_EQ(line["device_memory_bytes"], 17179869184);
  EXPECT_EQ(line["gpu_lag_us"], 7);
  EXPECT_NE(
      run("replay one.csv").out.find("device memory: 150,109,880,320 bytes, GPU lag: 0 us\n"),
      std::string::npos);
}

TEST_F(CliReplay, FailsIfItCannotWriteItsOutput) {
  write("one.csv", kGoodTrace);
  for (const char* arguments : {"replay one.csv", "replay one.csv --json", "--help",
                                "replay --help", "--version", "--help-conf", "help"}) {
    const CliResult full = run(arguments, ">/dev/full");
    EXPECT_EQ(full.exit_code, 1) << arguments;
    EXPECT_NE(full.err.find("cannot write to standard output: No space left"), std::string::npos)
        << full.err;
    const CliResult closed = run(arguments, ">&-");
    EXPECT_EQ(closed.exit_code, 1) << arguments;
    EXPECT_NE(closed.err.find("cannot write to standard output: Bad file descriptor"),
              std::string::npos)
        << closed.err;
  }
}

TEST_F(CliReplay, NamesOptionValueAndWhatIsAllowedOfABadNumber) {
  write("one.csv", kGoodTrace);
  for (const std::string value :
       {"-1", "abc", "1.5", "18446744073709551616", "9223372036854776"}) {
    EXPECT_EQ(run("replay one.csv --gpu-lag-us " + value).err,
              "quarry replay: --gpu-lag-us: value \"" + value +
                  "\" is not allowed; allowed: a whole number from 0 to 9223372036854775\n");
  }
  EXPECT_EQ(run("replay one.csv --repeat 1001").err,
            "quarry replay: --repeat: value \"1001\" is not allowed; allowed: a whole number from "
            "1 to 1000\n");
  for (const std::string value : {"0", "1", "2097151"}) {
    EXPECT_EQ(run("replay one.csv --device-memory " + value).err,
              "quarry replay: --device-memory: \"" + value +
                  "\" is too small; allowed: 2M (2 MiB) to 16T (16 TiB)\n");
  }
  for (const std::string value :
       {"17592186044417", "9223372036854775807", "18446744073709551615"}) {
    EXPECT_EQ(run("replay one.csv --device-memory " + value).err,
              "quarry replay: --device-memory: \"" + value +
                  "\" is too large; allowed: 2M (2 MiB) to 16T (16 TiB)\n");
  }
  for (const char* value : {"2M", "16T"}) {
    EXPECT_EQ(run(std::string("replay one.csv --device-memory ") + value).exit_code, 0) << value;
  }
}

TEST_F(CliReplay, SaysThatATraceHasNoSegmentsToCompare) {
  write("one.csv", kGoodTrace);
  const CliResult result = run("replay one.csv --json --segments");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err, "quarry replay: one: no S rows to compare segments with\n");
  EXPECT_TRUE(parse_lines(result.out).at(0)["segments_equal"].is_null());
}

TEST_F(CliReplay, SuggestsTheCommandThatWasMeant) {
  const CliResult result = run("replya one.csv");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.err,
            "quarry: no command \"replya\"; did you mean replay? (commands: replay, convert, "
            "pattern, doctor, help)\n");
  EXPECT_EQ(run("xyz").err,
            "quarry: no command \"xyz\" (commands: replay, convert, pattern, doctor, help)\n");
}

TEST_F(CliReplay, GivesReasonsForFilesThatCannotBeOpened) {
  write("one.csv", kGoodTrace);
  EXPECT_EQ(run("replay ''").err, "quarry replay: \"\": cannot open: No such file or directory\n");
  EXPECT_EQ(run("replay one.csv --reference missing.csv").err,
            "quarry replay: --reference: missing.csv: cannot open: No such file or directory\n");
  EXPECT_EQ(run("replay one.csv --reference /").err,
            "quarry replay: --reference: /: cannot read: Is a directory\n");
}

TEST_F(CliReplay, CutsALongConfigurationInMessages) {
  write("one.csv", kGoodTrace);
  const CliResult result = run("replay one.csv --conf " + std::string(5000, 'x'));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_LT(result.err.size(), 1000u);
}

TEST_F(CliReplay, ComparesSegmentsAndRepeats) {
  write("one.csv", "t_us,op,id,bytes,stream\n0,S,,20971520,0\n0,a,1,5242880,0\n1,f,1,,0\n");
  const auto line =
      parse_lines(run("replay one.csv --json --segments --validate --repeat 3").out).at(0);
  EXPECT_EQ(line["segments_equal"], true);
  EXPECT_EQ(line["equal_segments"], 1);
}

TEST_F(CliReplay, RefusesAWrongCommandLineBeforeAnythingRuns) {
  write("one.csv", kGoodTrace);
  for (const char* arguments :
       {"", "replay", "replay one.csv --unknown", "replay one.csv --gpu-lag-us x",
        "replay one.csv --gpu-lag-us -1", "replay one.csv --oracle maybe",
        "replay one.csv --repeat 0", "replay one.csv --device-memory 80g", "unknown",
        "replay one.csv --reference missing.csv", "replay one.csv --conf nonsense:1"}) {
    const CliResult result = run(arguments);
    EXPECT_EQ(result.exit_code, 2) << arguments;
    EXPECT_EQ(result.out, "") << arguments;
    EXPECT_NE(result.err, "") << arguments;
  }
}

TEST_F(CliReplay, NamesTheCommandAndWhatIsWrongWithItsLine) {
  const std::pair<const char*, const char*> cases[] = {
      {"--unknown", "quarry: no option \"--unknown\"\nRun quarry --help"},
      {"replay --unknown", "quarry replay: no option \"--unknown\"\nRun quarry replay --help"},
      {"replay one.csv --unknown", "quarry replay: no option \"--unknown\"\n"},
      {"doctor extra", "quarry doctor: one argument too many: \"extra\"\n"},
      {"convert one.csv", "quarry convert: OUT is required\nRun quarry convert --help"},
      {"replay one.csv --driver hip", "quarry replay: --driver: hip not in {sim,cuda}\n"},
  };
  for (const auto& [arguments, error] : cases) {
    const CliResult result = run(arguments);
    EXPECT_EQ(result.exit_code, 2) << arguments;
    EXPECT_EQ(result.err.rfind(error, 0), 0u) << result.err;
  }
}

// As with "$UNSET" in a script: the default in its place would be a surprise.
TEST_F(CliReplay, RefusesAnEmptyValue) {
  write("one.csv", kGoodTrace);
  for (const std::string option :
       {"--device-memory", "--gpu-lag-us", "--reference", "--oracle", "--repeat", "--driver"}) {
    const CliResult result = run("replay one.csv " + option + " ''");
    EXPECT_EQ(result.exit_code, 2) << option;
    EXPECT_EQ(result.err.rfind("quarry replay: " + option + ": ", 0), 0u) << result.err;
  }
}

TEST_F(CliReplay, RefusesOptionsThatDoNotGoWithTheDriverAndNamesBoth) {
  write("one.csv", kGoodTrace);
  for (const auto& [option, driver] :
       std::vector<std::pair<std::string, std::string>>{{"--oracle on", "cuda"},
                                                        {"--gpu-lag-us 0", "cuda"},
                                                        {"--device-memory 80G", "cuda"},
                                                        {"--touch", "sim"},
                                                        {"--in-step", "sim"}}) {
    const CliResult result = run("replay one.csv --driver " + driver + " " + option);
    EXPECT_EQ(result.exit_code, 2) << option;
    EXPECT_EQ(result.out, "") << option;
    const std::string named =
        option.substr(0, option.find(' ')) + " cannot go with --driver " + driver + ": ";
    EXPECT_NE(result.err.find(named), std::string::npos) << result.err;
  }
  EXPECT_EQ(run("replay one.csv --touch").exit_code, 2);
  EXPECT_EQ(run("replay one.csv --driver hip").exit_code, 2);
}

TEST_F(CliReplay, SaysOnceThatThereIsNoGpu) {
  write("one.csv", kGoodTrace);
  const CliResult result = run("replay one.csv one.csv --driver cuda");
  if (result.exit_code == 0) GTEST_SKIP() << "there is a GPU here";
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(result.err.rfind("quarry replay: --driver cuda: ", 0), 0u) << result.err;
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
}

TEST_F(CliReplay, NamesKeyValueAndWhatIsAllowedOfABadConfiguration) {
  write("one.csv", kGoodTrace);
  const CliResult result = run("replay one.csv --conf segments:plain --conf thread_cache:perhaps");
  EXPECT_EQ(result.exit_code, 2);
  for (const char* part : {"thread_cache", "perhaps", "allowed", "False"}) {
    EXPECT_NE(result.err.find(part), std::string::npos) << part << " in " << result.err;
  }
}

TEST_F(CliReplay, ExplainsItself) {
  const CliResult version = run("--version");
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_EQ(version.out.rfind("quarry ", 0), 0u);
  const CliResult conf = run("--help-conf");
  EXPECT_EQ(conf.exit_code, 0) << conf.err;
  EXPECT_NE(conf.out.find("max_split_size_mb:<"), std::string::npos) << conf.out;
  for (const char* arguments :
       {"--help", "help", "help replay", "replay --help", "convert --help"}) {
    const CliResult help = run(arguments);
    EXPECT_EQ(help.exit_code, 0);
    EXPECT_NE(help.out.find("Examples:"), std::string::npos) << arguments;
  }
}

}  // namespace
}  // namespace quarry::test
