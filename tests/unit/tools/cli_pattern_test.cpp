// SPDX-License-Identifier: Apache-2.0
// `quarry pattern` as users run it: what it writes, and what it says of a wrong command line.
#include <algorithm>

#include "cli_run.hpp"

namespace quarry::test {
namespace {

class CliPattern : public CliTest {
 protected:
  // Small and fast: one layer and few tokens.
  static constexpr const char* kSmall =
      "pattern kv_concat --layers 1 --batches 1 --output-tokens 3 ";
};

std::size_t count_lines(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

TEST_F(CliPattern, ListsAllPatternsALineEach) {
  const CliResult result = run("pattern --list");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(count_lines(result.out), 15u);
  EXPECT_NE(result.out.find("\nmoe                  A mixture of experts"), std::string::npos);
}

TEST_F(CliPattern, WritesTracesThatReplayAccepts) {
  EXPECT_EQ(run(std::string(kSmall) + "-o kv.csv.gz").exit_code, 0);
  const CliResult result = run("replay kv.csv.gz --json --validate");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const auto outcome = parse_lines(result.out).at(0);
  EXPECT_EQ(outcome["hazards"], 0);
  EXPECT_GT(outcome["allocs"], outcome["frees"]);
}

TEST_F(CliPattern, GivesTheSameBytesForTheSameSeedOnly) {
  run(std::string(kSmall) + "-o a.qtrace");
  run(std::string(kSmall) + "-o b.qtrace --seed 0");
  run(std::string(kSmall) + "-o c.qtrace --seed 18446744073709551615");
  EXPECT_EQ(read("a.qtrace"), read("b.qtrace"));
  EXPECT_NE(read("a.qtrace"), read("c.qtrace"));
  EXPECT_EQ(read("a.qtrace").substr(0, 4), "\x89QTR");
}

TEST_F(CliPattern, SaysWhatItWrote) {
  const CliResult result = run(std::string(kSmall) + "-o - --format csv");
  EXPECT_EQ(result.exit_code, 0);
  const std::size_t events = count_lines(result.out) - 1;
  EXPECT_EQ(result.err, "standard output: " + std::to_string(events) + " events written as csv, " +
                            std::to_string(result.out.size() / 1000) + "," +
                            std::to_string(1000 + result.out.size() % 1000).substr(1) +
                            " bytes\n");
}

TEST_F(CliPattern, ExplainsItsKnobsWithDefaultsAndUnits) {
  for (const char* command : {"pattern moe --help", "help pattern moe"}) {
    const CliResult result = run(command);
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_NE(result.out.find("Inner size of an expert, in elements: a whole number from 64 to "
                              "262144. Default: 1408"),
              std::string::npos);
    EXPECT_NE(result.out.find("one of fp8, bf16, fp16, fp32. Default: bf16"), std::string::npos);
    EXPECT_NE(result.out.find("At the end live: weights."), std::string::npos);
  }
}

TEST_F(CliPattern, NamesAWrongKnobItsValueAndWhatIsAllowed) {
  const auto explain = [this](const std::string& arguments) {
    const CliResult result = run("pattern " + arguments);
    EXPECT_EQ(result.exit_code, 2) << arguments;
    EXPECT_EQ(result.out, "");
    EXPECT_FALSE(exists("x.csv"));
    return result.err;
  };
  EXPECT_EQ(explain("moe --experts 0 -o x.csv"),
            "quarry pattern moe: --experts: value \"0\" is not allowed; allowed: a whole number "
            "from 1 to 1024\n");
  EXPECT_EQ(explain("moe --dtype int8 -o x.csv"),
            "quarry pattern moe: --dtype: value \"int8\" is not allowed; allowed: one of fp8, "
            "bf16, fp16, fp32\n");
  EXPECT_EQ(explain("moe --seed -1 -o x.csv"),
            "quarry pattern moe: --seed: value \"-1\" is not allowed; allowed: a whole number "
            "from 0 to 18446744073709551615\n");
  EXPECT_EQ(explain("moe --heads 7 -o x.csv"),
            "quarry pattern moe: --heads: value 7 is not allowed; allowed: a divisor of --hidden, "
            "which is 2048\n");
  EXPECT_EQ(explain("moe --steps 100000 --experts 1024 -o x.csv"),
            "quarry pattern moe: these knobs ask for too much: a trace of 5000000 rows or more\n");
  EXPECT_EQ(explain("moe"),
            "quarry pattern moe: --output is required\n"
            "Run quarry pattern moe --help for more information.\n");
  EXPECT_EQ(explain("moe --prefill 3 -o x.csv").substr(0, 43),
            "quarry pattern moe: no option \"--prefill\"\nR");
}

TEST_F(CliPattern, NamesThePatternsWhereThereIsNoneOfThatName) {
  const CliResult result = run("pattern kv_conact -o x.csv");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.err.substr(0, 76),
            "quarry pattern: no pattern \"kv_conact\"; did you mean kv_concat? (patterns: k");
  EXPECT_EQ(run("pattern").exit_code, 2);
}

TEST_F(CliPattern, TakesRequestsFromAFile) {
  write("requests.csv", "arrival_us,prompt_tokens,output_tokens\n5000000,100,2\n");
  const CliResult result =
      run("pattern continuous_batching --layers 1 --request-file requests.csv -o - --format csv");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_GT(std::stoull(result.out.substr(result.out.rfind('\n', result.out.size() - 2) + 1)),
            5'000'000u);
}

TEST_F(CliPattern, NamesTheLineOfARequestThatIsWrong) {
  write("requests.csv", "arrival_us,prompt_tokens,output_tokens\n0,1,2\n1,0,2\n");
  const CliResult result = run("pattern continuous_batching --request-file requests.csv -o x.csv");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.err,
            "quarry pattern continuous_batching: requests.csv: line 3: prompt_tokens: value \"0\" "
            "is not allowed; allowed: a whole number from 1 to 1048576\n");
  EXPECT_EQ(run("pattern continuous_batching --request-file none.csv -o x.csv").err,
            "quarry pattern continuous_batching: none.csv: cannot read: No such file or "
            "directory\n");
  EXPECT_EQ(run("pattern continuous_batching --request-file . -o x.csv").err,
            "quarry pattern continuous_batching: .: cannot read: Is a directory\n");
  write("empty.csv", "");
  EXPECT_EQ(run("pattern continuous_batching --request-file empty.csv -o x.csv").err,
            "quarry pattern continuous_batching: empty.csv: line 1: expected the header "
            "\"arrival_us,prompt_tokens,output_tokens\", found \"\"\n");
  EXPECT_FALSE(exists("x.csv"));
}

}  // namespace
}  // namespace quarry::test
