// SPDX-License-Identifier: Apache-2.0
// How drivers of several ages are looked up and asked, on stand-ins (fake_libcuda.cpp): through
// the driver's own resolvers and, where there is none, by plain symbols.
#include "tests/unit/tools/cli_run.hpp"

namespace quarry::test {
namespace {

class FakeDriver : public CliTest {
 protected:
  CliResult run_on(const std::string& fake, const std::string& arguments) const {
    return run_command(
        "env -u CUDA_VISIBLE_DEVICES -u LD_PRELOAD -u QUARRY_DRIVER "
        "LD_LIBRARY_PATH='" QUARRY_FAKES "/" +
        fake + "' '" QUARRY_TOOL "' " + arguments);
  }
};

struct Age {
  const char* fake;
  const char* cuda_version;
  const char* resolver;
  std::vector<std::string> missing;  // optional entries
};

void PrintTo(const Age& age, std::ostream* out) {
  *out << age.fake;
}

class FakeDriverOfAge : public FakeDriver, public testing::WithParamInterface<Age> {};

TEST_P(FakeDriverOfAge, IsFoundAndAskedWithoutALeftOverContext) {
  const CliResult result = run_on(GetParam().fake, "doctor --json");
  EXPECT_EQ(result.err, "");
  ASSERT_EQ(result.exit_code, 0) << result.out;
  const auto json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json["driver"]["cuda_version"], GetParam().cuda_version);
  EXPECT_EQ(json["driver"]["resolver"], GetParam().resolver);
  EXPECT_EQ(json["driver"]["library"],
            std::string(QUARRY_FAKES "/") + GetParam().fake + "/libcuda.so.1");
  std::vector<std::string> missing;
  for (const auto& entry : json["driver"]["missing_entries"]) {
    missing.push_back(entry["name"]);
    EXPECT_EQ(entry["is_required"], false) << missing.back();
  }
  EXPECT_EQ(missing, GetParam().missing);
}

TEST_P(FakeDriverOfAge, TellsItsDevicesApart) {
  const auto json = nlohmann::json::parse(run_on(GetParam().fake, "doctor --json").out);
  ASSERT_EQ(json["devices"].size(), 2u);
  const auto& first = json["devices"][0];
  const auto& second = json["devices"][1];
  EXPECT_EQ(first["name"], "Fake 0");
  EXPECT_EQ(second["name"], "Fake 1");
  EXPECT_EQ(first["compute_capability"], "9.0");
  EXPECT_EQ(second["compute_capability"], "7.5");
  EXPECT_EQ(first["total_bytes"], 8589934592);
  EXPECT_EQ(first["free_bytes"], 7516192768);
  EXPECT_EQ(second["free_bytes"], 16106127360);
  EXPECT_EQ(first["vmm_granularity_bytes"], 4194304);
  EXPECT_EQ(first["vmm_least_granularity_bytes"], 2097152);
  EXPECT_EQ(second["vmm_granularity_bytes"], 0);
  EXPECT_EQ(first["compute_mode"], "default");
  EXPECT_EQ(second["compute_mode"], "exclusive_process");
  for (const char* both : {"has_legacy_ipc", "has_fd_handles"}) {
    EXPECT_EQ(first[both], true) << both;
    EXPECT_EQ(second[both], false) << both;
  }
  for (const char* none : {"has_fabric_handles", "has_rdma", "has_vmm_rdma", "has_context_events"})
    EXPECT_EQ(first[none], false) << none;
  EXPECT_EQ(second["is_integrated"], true);
  EXPECT_EQ(json["peers"], nlohmann::json::parse("[[true,true],[false,true]]"));
}

INSTANTIATE_TEST_SUITE_P(
    Ages, FakeDriverOfAge,
    testing::Values(
        Age{"cuda12", "12.4", "cuGetProcAddress_v2", {"cuStreamGetId", "cuCtxRecordEvent"}},
        Age{"cuda11_4", "11.4", "cuGetProcAddress", {"cuStreamGetId", "cuCtxRecordEvent"}},
        Age{"cuda11_2",
            "11.2",
            "dlsym",
            {"cuStreamGetId", "cuCtxRecordEvent", "cuStreamGetCaptureInfo", "cuUserObjectCreate",
             "cuUserObjectRelease", "cuGraphRetainUserObject"}}),
    [](const auto& param) { return std::string(param.param.fake); });

TEST_F(FakeDriver, ThatIsTooOldIsRefusedByTheNameOfWhatIsMissing) {
  const CliResult result = run_on("too_old", "doctor --json");
  EXPECT_EQ(result.exit_code, 1);
  const auto json = nlohmann::json::parse(result.out);
  EXPECT_NE(std::string(json["driver"]["error"]).find("cuMemCreate"), std::string::npos);
  EXPECT_EQ(json["driver"]["missing_entries"][0]["is_required"], true);
  EXPECT_TRUE(json["devices"].empty());
}

TEST_F(FakeDriver, ThatCannotRunKernelsFailsAReplayOnce) {
  write("one.csv", kGoodTrace);
  const CliResult result = run_on("cuda12", "replay one.csv one.csv --driver cuda --touch");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.err, "quarry replay: --driver cuda: the CUDA driver has no cuModuleLoadData\n");
}

}  // namespace
}  // namespace quarry::test
