// SPDX-License-Identifier: Apache-2.0
#include "tools/machine_probe.hpp"

namespace quarry::tools {
namespace {

cuda::DeviceReport ask_device(Driver& driver, DeviceId device) {
  cuda::DeviceReport report;
  report.name = "simulated";
  if (const auto properties = driver.get_device_properties(device); properties.is_ok()) {
    report.total_bytes = properties.value.total_bytes;
    report.granularity = properties.value.extent_granularity;
    report.least_granularity = properties.value.extent_granularity;
    report.has_context_events = properties.value.has_context_events;
    report.has_fd_handles = properties.value.has_fd_handles;
    report.has_vmm_rdma = properties.value.has_rdma;
  }
  const auto memory = driver.get_memory_info(device);
  if (memory.is_ok()) {
    report.free_bytes = memory.value.free_bytes;
  } else {
    report.free_bytes_error = describe(memory.code);
  }
  return report;
}

// What the Driver interface tells. Simulated devices reach each other's memory.
cuda::MachineReport probe_simulated(const ProcessOptions& options) {
  cuda::MachineReport report;
  Result<std::unique_ptr<Driver>> made = make_driver(options);
  if (!made.is_ok()) {
    report.error = made.status().message();
    return report;
  }
  const std::unique_ptr<Driver> driver = std::move(made).value();
  for (DeviceId device = 0; device < options.sim_device_count; ++device) {
    report.devices.push_back(ask_device(*driver, device));
    std::vector<bool> row;
    for (DeviceId peer = 0; peer < options.sim_device_count; ++peer) {
      const bool is_reached =
          peer == device || driver->enable_peer_access(device, peer) == DriverCode::kSuccess;
      row.push_back(is_reached);
    }
    report.peers.push_back(std::move(row));
  }
  return report;
}

cuda::MachineReport probe_real() {
#if QUARRY_HAVE_CUDA
  return cuda::make_machine_report();
#else
  cuda::MachineReport report;
  report.is_built_in = false;
  report.error = make_driver(ProcessOptions{}).status().message();
  return report;
#endif
}

}  // namespace

cuda::MachineReport probe_machine(const ProcessOptions& options) {
  return options.driver == DriverKind::kSim ? probe_simulated(options) : probe_real();
}

}  // namespace quarry::tools
