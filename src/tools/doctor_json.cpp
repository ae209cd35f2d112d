// SPDX-License-Identifier: Apache-2.0
// `quarry doctor --json`. Fields are only ever added.
#include <nlohmann/json.hpp>

#include "tools/doctor_report.hpp"

namespace quarry::tools {
namespace {

using Json = nlohmann::ordered_json;

std::string_view get_name(LibraryKind kind) {
  switch (kind) {
    case LibraryKind::kQuarry:
      return "quarry";
    case LibraryKind::kQuarryShim:
      return "quarry_shim";
    case LibraryKind::kCudaDriver:
      return "cuda_driver";
    case LibraryKind::kCudaHook:
      return "cuda_hook";
    case LibraryKind::kGpuAllocator:
      return "gpu_allocator";
    case LibraryKind::kHostAllocator:
      return "host_allocator";
    case LibraryKind::kUnknown:
      break;
  }
  return "unknown";
}

std::string_view get_name(cuda::ComputeMode mode) {
  switch (mode) {
    case cuda::ComputeMode::kDefault:
      return "default";
    case cuda::ComputeMode::kProhibited:
      return "prohibited";
    case cuda::ComputeMode::kExclusiveProcess:
      return "exclusive_process";
  }
  return "unknown";
}

Json make_driver(const DoctorReport& report) {
  const cuda::MachineReport& machine = report.machine;
  Json missing = Json::array();
  for (const cuda::MissingEntry& entry : machine.missing_entries) {
    missing.push_back({{"name", entry.name},
                       {"cuda_version", format_cuda_version(entry.version)},
                       {"is_required", entry.is_required}});
  }
  return {
      {"kind", report.is_simulated ? "sim" : "cuda"},
      {"error", machine.error.empty() ? Json() : Json(machine.error)},
      {"cuda_version",
       machine.driver_version == 0 ? Json() : Json(format_cuda_version(machine.driver_version))},
      {"kernel_module", machine.kernel_module},
      {"library", machine.library_path},
      {"resolver", machine.resolver},
      {"missing_entries", missing}};
}

Json make_device(const cuda::DeviceReport& device) {
  const auto& free_bytes = device.free_bytes;
  return {{"name", device.name},
          {"compute_capability",
           std::to_string(device.compute_major) + "." + std::to_string(device.compute_minor)},
          {"compute_mode", get_name(device.compute_mode)},
          {"total_bytes", device.total_bytes},
          {"free_bytes", free_bytes.has_value() ? Json(*free_bytes) : Json()},
          {"vmm_granularity_bytes", device.granularity},
          {"vmm_least_granularity_bytes", device.least_granularity},
          {"has_context_events", device.has_context_events},
          {"has_legacy_ipc", device.has_legacy_ipc},
          {"has_fd_handles", device.has_fd_handles},
          {"has_fabric_handles", device.has_fabric_handles},
          {"has_rdma", device.has_rdma},
          {"has_vmm_rdma", device.has_vmm_rdma},
          {"is_integrated", device.is_integrated}};
}

}  // namespace

std::string format_doctor_json(const DoctorReport& report) {
  Json devices = Json::array();
  for (const cuda::DeviceReport& device : report.machine.devices)
    devices.push_back(make_device(device));
  Json choices = Json::array();
  for (const Choice& choice : report.choices) {
    choices.push_back({{"what", choice.what}, {"value", choice.value}, {"why", choice.why}});
  }
  Json findings = Json::array();
  for (const Finding& finding : report.findings) {
    findings.push_back({{"hurts", finding.severity == Severity::kHurts},
                        {"subject", finding.subject},
                        {"text", finding.text},
                        {"advice", finding.advice}});
  }
  Json json = {{"driver", make_driver(report)},
               {"devices", devices},
               {"peers", report.machine.peers},
               {"uses", choices}};
  if (report.pid.has_value()) {
    Json libraries = Json::array();
    for (const LoadedLibrary& loaded : report.libraries)
      libraries.push_back({{"kind", get_name(loaded.library.kind)}, {"path", loaded.path}});
    json["process"] = {{"pid", *report.pid}, {"libraries", libraries}};
  }
  json["findings"] = findings;
  json["hurts"] = report.hurts();
  // Paths and variables may hold bytes that are no UTF-8.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace quarry::tools
