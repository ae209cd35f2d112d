// SPDX-License-Identifier: Apache-2.0
// The two written forms of `quarry doctor`.
#include "tools/doctor_report.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace quarry::tools {
namespace {

DoctorReport make_report() {
  DoctorReport report;
  report.machine.library_path = "/lib/libcuda.so.1";
  report.machine.resolver = "cuGetProcAddress_v2";
  report.machine.kernel_module = "580.159.04";
  report.machine.driver_version = 13000;
  report.machine.missing_entries = {{"cuStreamGetId", 12000, false}};
  cuda::DeviceReport device;
  device.name = "NVIDIA H200";
  device.compute_major = 9;
  device.total_bytes = 150'109'880'320;
  device.free_bytes = 149'000'000'000;
  device.granularity = 2_MiB;
  device.least_granularity = 2_MiB;
  device.has_fd_handles = true;
  report.machine.devices = {device, device};
  report.machine.peers = {{true, true}, {false, true}};
  report.choices = {{"driver", "CUDA 13.0", "QUARRY_DRIVER is not set"}};
  report.findings = {{Severity::kNote, "device 1", "is shy", "wait"},
                     {Severity::kHurts, "LD_PRELOAD", "is \xff", "unset it"}};
  return report;
}

TEST(DoctorText, ShowsEverythingWithWhatHurtsFirst) {
  DoctorReport report = make_report();
  report.pid = 4711;
  report.libraries = {{"/a/libquarry.so", recognise_library("libquarry.so")}};
  const std::string text = format_doctor_text(report);
  for (const char* part :
       {"driver: CUDA 13.0, kernel module 580.159.04\n",
        "  library: /lib/libcuda.so.1, entries by cuGetProcAddress_v2\n",
        "  optional entries missing: cuStreamGetId\n",
        "device 1: NVIDIA H200, compute capability 9.0\n",
        "  memory: 150,109,880,320 bytes, 149,000,000,000 free\n",
        "  virtual memory management: yes, granularity 2,097,152 bytes (least 2,097,152)\n",
        "legacy IPC no, file descriptors yes, fabric handles no\n",
        "        0   1\n    0   - yes\n    1  no   -\n",
        "Quarry uses\n  driver  CUDA 13.0\n            because QUARRY_DRIVER is not set\n",
        "process 4711 has loaded\n  /a/libquarry.so (Quarry)\n",
        "findings\n  HURTS LD_PRELOAD: is \xff\n        -> unset it\n"
        "  note  device 1: is shy\n        -> wait\n"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
  }
}

TEST(DoctorText, SaysWhyThereIsNoDriver) {
  DoctorReport report;
  report.machine.error = "no CUDA driver: cannot open";
  EXPECT_EQ(format_doctor_text(report).rfind("driver: none: no CUDA driver: cannot open\n", 0),
            0u);
  EXPECT_NE(format_doctor_text(report).find("findings: none\n"), std::string::npos);
}

TEST(DoctorJson, HoldsTheSame) {
  const auto json = nlohmann::json::parse(format_doctor_json(make_report()));
  EXPECT_EQ(json["driver"]["kind"], "cuda");
  EXPECT_TRUE(json["driver"]["error"].is_null());
  EXPECT_EQ(json["driver"]["cuda_version"], "13.0");
  EXPECT_EQ(json["driver"]["missing_entries"][0]["name"], "cuStreamGetId");
  EXPECT_EQ(json["driver"]["missing_entries"][0]["cuda_version"], "12.0");
  ASSERT_EQ(json["devices"].size(), 2u);
  EXPECT_EQ(json["devices"][1]["compute_capability"], "9.0");
  EXPECT_EQ(json["devices"][1]["free_bytes"], 149'000'000'000);
  EXPECT_EQ(json["devices"][1]["has_fd_handles"], true);
  EXPECT_EQ(json["peers"], nlohmann::json::parse("[[true,true],[false,true]]"));
  EXPECT_EQ(json["uses"][0]["why"], "QUARRY_DRIVER is not set");
  EXPECT_EQ(json["findings"][1]["subject"], "LD_PRELOAD");
  EXPECT_EQ(json["findings"][1]["hurts"], true);
  EXPECT_EQ(json["hurts"], true);
  EXPECT_FALSE(json.contains("process"));
}

TEST(DoctorJson, NamesTheProcessAndWhatItHasLoaded) {
  DoctorReport report = make_report();
  report.findings.clear();
  report.pid = 4711;
  report.libraries = {{"/a/librmm.so", recognise_library("librmm.so")}};
  const auto json = nlohmann::json::parse(format_doctor_json(report));
  EXPECT_EQ(json["process"]["pid"], 4711);
  EXPECT_EQ(json["process"]["libraries"][0]["kind"], "gpu_allocator");
  EXPECT_EQ(json["process"]["libraries"][0]["path"], "/a/librmm.so");
  EXPECT_EQ(json["hurts"], false);
}

}  // namespace
}  // namespace quarry::tools
