// SPDX-License-Identifier: Apache-2.0
// What a machine's answers mean: findings, and what the allocator uses.
#include "tools/machine_check.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace quarry::tools {
namespace {

cuda::DeviceReport make_device() {
  cuda::DeviceReport device;
  device.name = "NVIDIA H200";
  device.compute_major = 9;
  device.total_bytes = 100_GiB;
  device.free_bytes = 90_GiB;
  device.granularity = 2_MiB;
  device.least_granularity = 2_MiB;
  device.has_context_events = true;
  device.has_legacy_ipc = true;
  return device;
}

cuda::MachineReport make_machine(std::size_t devices = 1) {
  cuda::MachineReport machine;
  machine.library_path = "/lib/libcuda.so.1";
  machine.driver_version = 13000;
  machine.devices.assign(devices, make_device());
  machine.peers.assign(devices, std::vector<bool>(devices, true));
  return machine;
}

// "HURTS device 0: text", one that hurts or is a note.
std::vector<std::string> check(const cuda::MachineReport& machine, int visible = -1) {
  std::vector<std::string> lines;
  for (const Finding& finding : check_machine(machine, visible)) {
    EXPECT_NE(finding.advice, "");
    lines.push_back((finding.severity == Severity::kHurts ? "HURTS " : "note ") + finding.subject +
                    ": " + finding.text);
  }
  return lines;
}

using Lines = std::vector<std::string>;

Choice find_choice(const std::vector<Choice>& choices, const std::string& what) {
  const auto place = std::find_if(choices.begin(), choices.end(),
                                  [&](const Choice& choice) { return choice.what == what; });
  return place != choices.end() ? *place : Choice{"(no such choice)", "", ""};
}

TEST(CheckMachine, FindsNothingOnAMachineThatHasEverything) {
  EXPECT_EQ(check(make_machine()), Lines{});
  EXPECT_EQ(check(make_machine(4), 4), Lines{});
  EXPECT_EQ(check(make_machine(4), 2), Lines{});
}

TEST(CheckMachine, AdvisesByWhatIsWrongWithTheDriver) {
  cuda::MachineReport machine;
  machine.error = "no CUDA driver: libcuda.so.1: cannot open";
  EXPECT_EQ(check(machine), Lines{"HURTS driver: no CUDA driver: libcuda.so.1: cannot open"});
  EXPECT_NE(check_machine(machine, -1)[0].advice.find("install"), std::string::npos);
  machine.is_built_in = false;
  EXPECT_EQ(check_machine(machine, -1)[0].advice.find("build Quarry"), 0u);
  machine.is_built_in = true;
  machine.library_path = "/lib/libcuda.so.1";
  machine.error = "the CUDA driver does not start: 999";
  EXPECT_NE(check_machine(machine, -1)[0].advice.find("nvidia-smi"), std::string::npos);
  machine.error = "the CUDA driver is too old";
  machine.missing_entries = {{"cuMemCreate", 10020, true}, {"cuStreamGetId", 12000, false}};
  EXPECT_EQ(check(machine).size(), 1u);
  EXPECT_NE(check_machine(machine, -1)[0].advice.find("update"), std::string::npos);
}

TEST(CheckMachine, NamesMissingOptionalEntriesWithTheirVersion) {
  cuda::MachineReport machine = make_machine();
  machine.missing_entries = {{"cuCtxRecordEvent", 12050, false}};
  EXPECT_EQ(check(machine),
            Lines{"note driver: has no cuCtxRecordEvent (CUDA 12.5); Quarry does without"});
}

TEST(CheckMachine, SeesThatDevicesAreMissing) {
  EXPECT_EQ(check(make_machine(0)), Lines{"HURTS driver: finds no device"});
  EXPECT_EQ(check(make_machine(2), 3),
            Lines{"HURTS CUDA_VISIBLE_DEVICES: names 3 devices, and CUDA finds 2"});
}

TEST(CheckMachine, ReportsWhatADeviceLacks) {
  cuda::MachineReport machine = make_machine(2);
  machine.devices[1].granularity = 0;
  machine.devices[1].is_integrated = true;
  machine.devices[1].compute_mode = cuda::ComputeMode::kExclusiveProcess;
  EXPECT_EQ(check(machine), (Lines{"note device 1: is in compute mode Exclusive_Process",
                                   "note device 1: has no virtual memory management",
                                   "note device 1: shares its memory with the host"}));
  machine = make_machine();
  machine.devices[0].compute_mode = cuda::ComputeMode::kProhibited;
  machine.devices[0].free_bytes.reset();
  machine.devices[0].free_bytes_error = "CUDA_ERROR_INVALID_DEVICE (101)";
  EXPECT_EQ(check(machine),
            (Lines{"HURTS device 0: does not say its free memory: CUDA_ERROR_INVALID_DEVICE (101)",
                   "HURTS device 0: is in compute mode Prohibited: no process may use it"}));
}

TEST(CheckMachine, NamesEachPairThatCannotReachTheOther) {
  cuda::MachineReport machine = make_machine(2);
  machine.peers[1][0] = false;
  EXPECT_EQ(check(machine), Lines{"note device 1: cannot reach the memory of device 0"});
}

TEST(ExplainChoices, NamesTheDriverAndWhy) {
  const cuda::MachineReport machine = make_machine();
  EXPECT_EQ(find_choice(explain_choices({}, machine), "driver"),
            (Choice{"driver", "CUDA 13.0, /lib/libcuda.so.1", "QUARRY_DRIVER is not set"}));
  EXPECT_EQ(find_choice(explain_choices({{"QUARRY_DRIVER", "cuda"}}, machine), "driver").why,
            "QUARRY_DRIVER is cuda");
  EXPECT_EQ(find_choice(explain_choices({{"QUARRY_DRIVER", "sim"}}, machine), "driver"),
            (Choice{"driver", "the simulated device", "QUARRY_DRIVER is sim"}));
}

TEST(ExplainChoices, SaysThatTheAllocatorRefusesAndWhy) {
  cuda::MachineReport broken;
  broken.error = "libcuda.so.1: not found";
  const auto refuses = [](const Environment& environment, const cuda::MachineReport& machine) {
    const auto choices = explain_choices(environment, machine);
    EXPECT_EQ(choices.size(), 1u);
    EXPECT_EQ(choices.at(0).value, "none: it refuses every call");
    return choices.at(0).why;
  };
  EXPECT_EQ(refuses({}, broken), "there is no CUDA driver that it can use");
  EXPECT_NE(refuses({{"QUARRY_CONF", "nonsense"}}, make_machine()), "");
  EXPECT_NE(refuses({{"QUARRY_DRIVER", "hip"}}, make_machine()).find("hip"), std::string::npos);
}

TEST(ExplainChoices, FollowsTheConfiguration) {
  const cuda::MachineReport machine = make_machine(2);
  const auto defaults = explain_choices({}, machine);
  EXPECT_EQ(find_choice(defaults, "configuration").value, "the default of every option");
  EXPECT_EQ(find_choice(defaults, "thread cache").value, "on");
  EXPECT_EQ(find_choice(defaults, "limit on device 1").value, "none but the device's memory");
  EXPECT_EQ(find_choice(defaults, "caching").value, "on");
  const auto changed = explain_choices(
      {{"QUARRY_CONF", "thread_cache:False,per_process_memory_fraction:0.5"}}, machine);
  EXPECT_EQ(find_choice(changed, "configuration").value,
            "per_process_memory_fraction:0.5,thread_cache:False");
  EXPECT_EQ(find_choice(changed, "thread cache").value, "off");
  EXPECT_EQ(find_choice(changed, "limit on device 1").value, "53,687,091,200 bytes");
  const auto disabled = explain_choices({{"QUARRY_DISABLE", "1"}}, machine);
  EXPECT_EQ(disabled.back(),
            (Choice{"caching", "off: every request goes to the driver", "QUARRY_DISABLE is 1"}));
}

TEST(ExplainChoices, SharesMemoryOnlyWhereEveryDeviceCan) {
  cuda::MachineReport machine = make_machine(2);
  constexpr char kWhat[] = "sharing between processes";
  EXPECT_EQ(find_choice(explain_choices({}, machine), kWhat).value,
            "cuIpcGetMemHandle of a whole segment");
  machine.devices[1].has_legacy_ipc = false;
  EXPECT_EQ(find_choice(explain_choices({}, machine), kWhat).value, "none");
  EXPECT_EQ(find_choice(explain_choices({{"QUARRY_DRIVER", "sim"}}, machine), kWhat).value,
            "none");
}

TEST(ExplainOwnerOrder, SaysWhatItCostsAndWhy) {
  const Choice with = explain_owner_order({OwnerOrder::kByMembarrier, "the kernel has it"});
  EXPECT_EQ(with.value, "no locked instruction; who empties them calls membarrier");
  EXPECT_EQ(with.why, "the kernel has it");
  const Choice without = explain_owner_order({OwnerOrder::kByFence, "it is refused"});
  EXPECT_EQ(without.value, "a locked instruction in every malloc and free");
  EXPECT_EQ(without.why, "it is refused");
}

TEST(FormatCudaVersion, IsMajorAndMinor) {
  EXPECT_EQ(format_cuda_version(12050), "12.5");
  EXPECT_EQ(format_cuda_version(13010), "13.1");
  EXPECT_EQ(format_cuda_version(3020), "3.2");
}

}  // namespace
}  // namespace quarry::tools
