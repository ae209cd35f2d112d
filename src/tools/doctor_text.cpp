// SPDX-License-Identifier: Apache-2.0
// `quarry doctor` for people.
#include <fmt/format.h>

#include <algorithm>

#include "tools/doctor_report.hpp"
#include "tools/number_text.hpp"

namespace quarry::tools {
namespace {

const char* yes_or_no(bool is_so) {
  return is_so ? "yes" : "no";
}

std::string format_driver(const DoctorReport& report) {
  const cuda::MachineReport& machine = report.machine;
  if (report.is_simulated) return "driver: simulated (QUARRY_DRIVER=sim); the GPU is not asked\n";
  if (!machine.error.empty()) return "driver: none: " + machine.error + "\n";
  std::string text = "driver: CUDA " + format_cuda_version(machine.driver_version);
  if (!machine.kernel_module.empty()) text += ", kernel module " + machine.kernel_module;
  text += "\n  library: " + machine.library_path + ", entries by " + machine.resolver + "\n";
  std::string missing;
  for (const cuda::MissingEntry& entry : machine.missing_entries)
    missing += (missing.empty() ? "" : ", ") + entry.name;
  return text + "  optional entries missing: " + (missing.empty() ? "none" : missing) + "\n";
}

std::string format_device(std::size_t ordinal, const cuda::DeviceReport& device) {
  std::string text =
      fmt::format("device {}: {}", ordinal, device.name.empty() ? "(no name)" : device.name);
  if (device.compute_major != 0) {
    text += fmt::format(", compute capability {}.{}", device.compute_major, device.compute_minor);
  }
  text += "\n";
  text += fmt::format(
      "  memory: {} bytes, {} free{}\n", format_count(device.total_bytes),
      device.free_bytes.has_value() ? format_count(*device.free_bytes) : device.free_bytes_error,
      device.is_integrated ? ", shared with the host" : "");
  if (device.granularity == 0) {
    text += "  virtual memory management: no\n";
  } else {
    text += fmt::format("  virtual memory management: yes, granularity {} bytes (least {})\n",
                        format_count(device.granularity), format_count(device.least_granularity));
  }
  text += fmt::format("  context events (cuCtxRecordEvent): {}\n",
                      yes_or_no(device.has_context_events));
  text += fmt::format(
      "  sharing between processes: legacy IPC {}, file descriptors {}, fabric handles {}\n",
      yes_or_no(device.has_legacy_ipc), yes_or_no(device.has_fd_handles),
      yes_or_no(device.has_fabric_handles));
  text += fmt::format("  GPUDirect RDMA: plain memory {}, virtual memory {}\n",
                      yes_or_no(device.has_rdma), yes_or_no(device.has_vmm_rdma));
  return text;
}

std::string format_peers(const std::vector<std::vector<bool>>& peers) {
  if (peers.size() < 2) return {};
  std::string text = "peer access (row: from, column: to)\n     ";
  for (std::size_t to = 0; to < peers.size(); ++to)
    text += fmt::format("{:>4}", to);
  text += "\n";
  for (std::size_t from = 0; from < peers.size(); ++from) {
    text += fmt::format("  {:>3}", from);
    for (std::size_t to = 0; to < peers[from].size(); ++to)
      text += fmt::format("{:>4}", from == to ? "-" : yes_or_no(peers[from][to]));
    text += "\n";
  }
  return text;
}

std::string format_choices(const std::vector<Choice>& choices) {
  std::size_t width = 0;
  for (const Choice& choice : choices)
    width = std::max(width, choice.what.size());
  std::string text = "\nQuarry uses\n";
  for (const Choice& choice : choices) {
    text += fmt::format("  {:<{}}  {}\n", choice.what, width, choice.value);
    text += fmt::format("  {:<{}}    because {}\n", "", width, choice.why);
  }
  return text;
}

std::string format_process(const DoctorReport& report) {
  if (!report.pid.has_value()) return {};
  std::string text = fmt::format("\nprocess {} has loaded\n", *report.pid);
  for (const LoadedLibrary& loaded : report.libraries)
    text += fmt::format("  {} ({})\n", loaded.path, loaded.library.name);
  return report.libraries.empty() ? text + "  nothing that doctor knows\n" : text;
}

std::string format_findings(const Findings& findings) {
  if (findings.empty()) return "\nfindings: none\n";
  std::string text = "\nfindings\n";
  for (const Severity severity : {Severity::kHurts, Severity::kNote}) {
    for (const Finding& finding : findings) {
      if (finding.severity != severity) continue;
      text += fmt::format("  {} {}: {}\n        -> {}\n",
                          severity == Severity::kHurts ? "HURTS" : "note ", finding.subject,
                          finding.text, finding.advice);
    }
  }
  return text;
}

}  // namespace

bool DoctorReport::hurts() const {
  return std::any_of(findings.begin(), findings.end(),
                     [](const Finding& finding) { return finding.severity == Severity::kHurts; });
}

std::string format_doctor_text(const DoctorReport& report) {
  std::string text = format_driver(report);
  for (std::size_t i = 0; i < report.machine.devices.size(); ++i)
    text += format_device(i, report.machine.devices[i]);
  text += format_peers(report.machine.peers);
  text += format_choices(report.choices);
  text += format_process(report);
  return text + format_findings(report.findings);
}

}  // namespace quarry::tools
