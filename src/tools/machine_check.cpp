// SPDX-License-Identifier: Apache-2.0
#include "tools/machine_check.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "api/config_parser.hpp"
#include "tools/config_text.hpp"
#include "tools/number_text.hpp"

namespace quarry::tools {
namespace {

using cuda::DeviceReport;
using cuda::MachineReport;

Finding note(std::string subject, std::string text, std::string advice) {
  return {Severity::kNote, std::move(subject), std::move(text), std::move(advice)};
}
Finding hurts(std::string subject, std::string text, std::string advice) {
  return {Severity::kHurts, std::move(subject), std::move(text), std::move(advice)};
}

// What to do where there is no driver that can be used.
const char* advise_on_driver(const MachineReport& machine) {
  if (!machine.is_built_in) {
    return "build Quarry where the CUDA Toolkit is installed, or set QUARRY_DRIVER=sim to work "
           "without a GPU";
  }
  if (machine.library_path.empty()) {
    return "install NVIDIA's driver (in a container: start it with the GPU runtime), or set "
           "QUARRY_DRIVER=sim to work without a GPU";
  }
  const bool is_too_old =
      std::any_of(machine.missing_entries.begin(), machine.missing_entries.end(),
                  [](const cuda::MissingEntry& entry) { return entry.is_required; });
  if (is_too_old) return "update NVIDIA's driver";
  return "see whether nvidia-smi runs; a driver that was updated under a running kernel needs a "
         "reboot";
}

void check_driver(const MachineReport& machine, Findings& findings) {
  if (!machine.error.empty()) {
    findings.push_back(hurts("driver", machine.error, advise_on_driver(machine)));
    return;
  }
  for (const cuda::MissingEntry& entry : machine.missing_entries) {
    findings.push_back(note("driver",
                            fmt::format("has no {} (CUDA {}); Quarry does without", entry.name,
                                        format_cuda_version(entry.version)),
                            "update NVIDIA's driver if you need what rests on it"));
  }
  if (machine.devices.empty()) {
    findings.push_back(hurts("driver", "finds no device",
                             "check CUDA_VISIBLE_DEVICES and whether nvidia-smi lists a GPU"));
  }
}

void check_device(const std::string& subject, const DeviceReport& device, Findings& findings) {
  if (!device.free_bytes.has_value()) {
    findings.push_back(hurts(subject, "does not say its free memory: " + device.free_bytes_error,
                             "see whether other processes can use the device (nvidia-smi)"));
  }
  if (device.compute_mode == cuda::ComputeMode::kProhibited) {
    findings.push_back(hurts(subject, "is in compute mode Prohibited: no process may use it",
                             "nvidia-smi -c DEFAULT, as root"));
  } else if (device.compute_mode == cuda::ComputeMode::kExclusiveProcess) {
    findings.push_back(note(subject, "is in compute mode Exclusive_Process",
                            "expect a second process on it to fail"));
  }
  if (device.granularity == 0) {
    findings.push_back(note(subject, "has no virtual memory management",
                            "stay with segments:plain here, also in later versions"));
  }
  if (device.is_integrated) {
    findings.push_back(note(subject, "shares its memory with the host",
                            "set per_process_memory_fraction, so that the host keeps enough"));
  }
}

void check_peers(const MachineReport& machine, Findings& findings) {
  for (std::size_t from = 0; from < machine.peers.size(); ++from) {
    for (std::size_t to = 0; to < machine.peers[from].size(); ++to) {
      if (machine.peers[from][to]) continue;
      findings.push_back(note(fmt::format("device {}", from),
                              fmt::format("cannot reach the memory of device {}", to),
                              "copy through the host between these two"));
    }
  }
}

// The options that are not at their defaults.
std::string format_changes(const Config& config) {
  const auto now = parse_items(format_config(config));
  const auto defaults = parse_items(format_config(Config{}));
  std::string text;
  for (std::size_t i = 0; i < now.value().size(); ++i) {
    const ConfigItem& item = now.value()[i];
    const std::string value = format_value(item);
    if (value == format_value(defaults.value()[i])) continue;
    text += (text.empty() ? "" : ",") + item.key.text + ":" + value;
  }
  return text.empty() ? "the default of every option" : text;
}

Choice explain_sharing(const MachineReport& machine, bool is_sim) {
  constexpr char kWhat[] = "sharing between processes";
  if (is_sim) return {kWhat, "none", "the simulated device belongs to one process"};
  const bool has_ipc =
      std::all_of(machine.devices.begin(), machine.devices.end(),
                  [](const DeviceReport& device) { return device.has_legacy_ipc; });
  if (!has_ipc) return {kWhat, "none", "not every device has legacy IPC"};
  return {kWhat, "cuIpcGetMemHandle of a whole segment",
          "plain segments; file descriptors and fabric handles need expandable ones"};
}

void add_limits(const Config& config, const MachineReport& machine, std::vector<Choice>& choices) {
  for (std::size_t device = 0; device < machine.devices.size(); ++device) {
    const auto total = static_cast<double>(machine.devices[device].total_bytes);
    const auto limit = static_cast<Bytes>(total * config.per_process_memory_fraction);
    choices.push_back(
        {fmt::format("limit on device {}", device),
         config.per_process_memory_fraction < 1.0 ? format_count(limit) + " bytes"
                                                  : "none but the device's memory",
         fmt::format("per_process_memory_fraction is {}", config.per_process_memory_fraction)});
  }
}

void add_mechanisms(const Config& config, const MachineReport& machine,
                    std::vector<Choice>& choices) {
  const bool has_vmm =
      !machine.devices.empty() &&
      std::all_of(machine.devices.begin(), machine.devices.end(),
                  [](const DeviceReport& device) { return device.granularity != 0; });
  choices.push_back({"segments", "plain, one driver allocation each",
                     has_vmm ? "expandable segments are not built yet (the devices have what "
                               "they need)"
                             : "expandable segments are not built yet"});
  choices.push_back({"thread cache", config.thread_cache ? "on" : "off",
                     config.thread_cache ? "thread_cache is True: repeated sizes need no lock"
                                         : "thread_cache is False: decisions equal PyTorch's"});
  choices.push_back({"fences", "events on the other streams of a block, recorded at its free",
                     "the library is told of every stream; cuCtxRecordEvent is not needed"});
}

}  // namespace

std::string format_cuda_version(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

Findings check_machine(const MachineReport& machine, int visible) {
  Findings findings;
  check_driver(machine, findings);
  const auto found = static_cast<int>(machine.devices.size());
  if (machine.error.empty() && found > 0 && visible > found) {
    findings.push_back(hurts("CUDA_VISIBLE_DEVICES",
                             fmt::format("names {} devices, and CUDA finds {}", visible, found),
                             "correct the list: CUDA stops at the first entry that names none"));
  }
  for (int device = 0; device < found; ++device) {
    check_device(fmt::format("device {}", device),
                 machine.devices[static_cast<std::size_t>(device)], findings);
  }
  check_peers(machine, findings);
  return findings;
}

Choice explain_owner_order(const OwnerOrderChoice& order) {
  return {"lock of magazines",
          order.order == OwnerOrder::kByMembarrier
              ? "no locked instruction; who empties them calls membarrier"
              : "a locked instruction in every malloc and free",
          order.why};
}

std::vector<Choice> explain_choices(const Environment& environment, const MachineReport& machine) {
  const Result<ProcessOptions> options = read_process_options(environment);
  const Result<Config> config = read_config(environment);
  std::vector<Choice> choices;
  for (const Status* refused : {&options.status(), &config.status()}) {
    if (refused->is_ok()) continue;
    choices.push_back(
        {"allocator", "none: it refuses every call", std::string(refused->message())});
    return choices;
  }
  const bool is_sim = options.value().driver == DriverKind::kSim;
  if (!is_sim && !machine.error.empty()) {
    choices.push_back(
        {"allocator", "none: it refuses every call", "there is no CUDA driver that it can use"});
    return choices;
  }
  if (is_sim) {
    choices.push_back({"driver", "the simulated device", "QUARRY_DRIVER is sim"});
  } else {
    choices.push_back(
        {"driver",
         "CUDA " + format_cuda_version(machine.driver_version) + ", " + machine.library_path,
         find_variable(environment, "QUARRY_DRIVER").empty() ? "QUARRY_DRIVER is not set"
                                                             : "QUARRY_DRIVER is cuda"});
  }
  if (options.value().is_disabled) {
    choices.push_back({"caching", "off: every request goes to the driver", "QUARRY_DISABLE is 1"});
    return choices;
  }
  choices.push_back({"caching", "on", "QUARRY_DISABLE is not 1"});
  choices.push_back({"configuration", format_changes(config.value()),
                     find_variable(environment, "QUARRY_CONF").empty() ? "QUARRY_CONF is not set"
                                                                       : "QUARRY_CONF says so"});
  add_limits(config.value(), machine, choices);
  add_mechanisms(config.value(), machine, choices);
  choices.push_back(explain_sharing(machine, is_sim));
  return choices;
}

}  // namespace quarry::tools
