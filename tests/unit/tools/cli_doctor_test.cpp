// SPDX-License-Identifier: Apache-2.0
// `quarry doctor` as users run it: on a machine without a GPU, on the simulated device, and on
// another process.
#include <dlfcn.h>

#include "cli_run.hpp"

namespace quarry::test {
namespace {

class CliDoctor : public CliTest {
 protected:
  // With `environment` ("NAME=value ...") and nothing else that doctor looks at.
  CliResult run_in(const std::string& environment, const std::string& arguments = "") const {
    return run_command("env -u LD_PRELOAD -u CUDA_VISIBLE_DEVICES -u QUARRY_DRIVER " +
                       environment + " '" QUARRY_TOOL "' doctor " + arguments);
  }
};

TEST_F(CliDoctor, FindsNothingThatHurtsOnTheSimulatedDevice) {
  const CliResult result =
      run_in("QUARRY_DRIVER=sim QUARRY_SIM_DEVICES=3 QUARRY_SIM_MEMORY=8G", "--json");
  EXPECT_EQ(result.exit_code, 0) << result.out;
  EXPECT_EQ(result.err, "");
  const auto json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json["driver"]["kind"], "sim");
  ASSERT_EQ(json["devices"].size(), 3u);
  EXPECT_EQ(json["devices"][2]["total_bytes"], 8589934592);
  EXPECT_EQ(json["peers"].size(), 3u);
  EXPECT_EQ(json["hurts"], false);
}

TEST_F(CliDoctor, PrintsTextForPeople) {
  const CliResult result = run_in("QUARRY_DRIVER=sim QUARRY_CONF=max_split_size_mb:256");
  EXPECT_EQ(result.exit_code, 0);
  for (const char* part : {"driver: simulated", "device 0: simulated", "Quarry uses",
                           "max_split_size_mb:256", "lock of magazines", "findings"}) {
    EXPECT_NE(result.out.find(part), std::string::npos) << part << " in " << result.out;
  }
}

TEST_F(CliDoctor, SpeaksOfMagazinesOnlyWhereThereAreAny) {
  const CliResult result = run_in("QUARRY_DRIVER=sim QUARRY_CONF=thread_cache:False");
  EXPECT_EQ(result.out.find("lock of magazines"), std::string::npos) << result.out;
}

TEST_F(CliDoctor, FailsForASettingThatHurts) {
  const CliResult result = run_in("QUARRY_DRIVER=sim QUARRY_CONF=nonsense:1");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.out.find("HURTS QUARRY_CONF: "), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("nonsense"), std::string::npos) << result.out;
}

TEST_F(CliDoctor, SaysWhyThereIsNoDriver) {
  const CliResult result = run_in("", "--json");
  const auto json = nlohmann::json::parse(result.out);
  if (json["driver"]["error"].is_null()) GTEST_SKIP() << "there is a CUDA driver here";
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(json["hurts"], true);
  EXPECT_NE(json["driver"]["error"], "");
  EXPECT_EQ(json["uses"][0]["why"], "there is no CUDA driver that it can use");
}

TEST_F(CliDoctor, LooksAtTheSimulatedDeviceAlsoIfItsSizeIsRefused) {
  const CliResult result = run_in("QUARRY_DRIVER=sim QUARRY_SIM_MEMORY=16X", "--json");
  EXPECT_EQ(result.exit_code, 1);
  const auto json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json["driver"]["kind"], "sim");
  ASSERT_EQ(json["findings"].size(), 2u) << result.out;
  EXPECT_EQ(json["findings"][0]["subject"], "QUARRY_SIM_MEMORY");
}

TEST_F(CliDoctor, LooksIntoAnotherProcess) {
  // This one: it is there, and ours to read.
  const CliResult result =
      run_in("QUARRY_DISABLE=1 QUARRY_DRIVER=sim", "--json --pid " + std::to_string(::getpid()));
  const auto json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json["process"]["pid"], ::getpid());
  // Its environment is looked at, not the tool's.
  for (const auto& finding : json["findings"])
    EXPECT_NE(finding["subject"], "QUARRY_DISABLE");
}

TEST_F(CliDoctor, CountsTheQuarriesOfAnotherProcess) {
  for (const char* name : {"one", "two"}) {
    const std::string copy = path(name);
    std::filesystem::create_directory(copy);
    std::filesystem::copy_file(QUARRY_LIBRARY, copy + "/libquarry.so.0");
    ASSERT_NE(::dlopen((copy + "/libquarry.so.0").c_str(), RTLD_NOW | RTLD_LOCAL), nullptr)
        << ::dlerror();
  }
  const CliResult result = run_in("", "--json --pid " + std::to_string(::getpid()));
  EXPECT_EQ(result.exit_code, 1);
  const auto json = nlohmann::json::parse(result.out);
  std::size_t quarries = 0;
  for (const auto& library : json["process"]["libraries"])
    quarries += library["kind"] == "quarry" ? 1 : 0;
  EXPECT_EQ(quarries, 2u) << result.out;
  EXPECT_NE(result.out.find("has loaded 2 copies of libquarry"), std::string::npos) << result.out;
}

TEST_F(CliDoctor, RefusesAWrongCommandLine) {
  for (const char* arguments :
       {"--pid x", "--pid 0", "--pid -1", "--pid ''", "extra", "--pid 99999999999"}) {
    const CliResult result = run_in("", arguments);
    EXPECT_EQ(result.exit_code, 2) << arguments;
    EXPECT_EQ(result.out, "") << arguments;
    EXPECT_NE(result.err, "") << arguments;
  }
}

TEST_F(CliDoctor, NamesTheFileOfAProcessThatIsNotThere) {
  const CliResult result = run_in("", "--pid 4194304");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.err,
            "quarry doctor: --pid: /proc/4194304/maps: cannot read: No such file or directory\n");
}

TEST_F(CliDoctor, FailsIfItCannotWrite) {
  EXPECT_EQ(run_command("QUARRY_DRIVER=sim '" QUARRY_TOOL "' doctor", ">/dev/full").exit_code, 1);
}

}  // namespace
}  // namespace quarry::test
