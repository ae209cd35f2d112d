// SPDX-License-Identifier: Apache-2.0
#include "machine_report.hpp"

#include <cctype>
#include <fstream>

#include "cuda_driver_class.hpp"
#include "driver_entries.hpp"

namespace quarry::cuda {
namespace {

// "NVRM version: NVIDIA UNIX ... Kernel Module  580.159.04  ...": the first word made of digits
// and dots.
std::string read_kernel_module() {
  std::ifstream file("/proc/driver/nvidia/version");
  for (std::string word; file >> word;) {
    const bool is_version = word.find('.') != std::string::npos &&
                            word.find_first_not_of("0123456789.") == std::string::npos;
    if (is_version) return word;
  }
  return {};
}

// The answers of one device. Entries that fail leave "no" behind: an older driver does not know
// newer attributes.
class DeviceQuestions {
 public:
  DeviceQuestions(const DriverEntries& entries, CUdevice device)
      : entries_(entries), device_(device) {}

  int get(CUdevice_attribute attribute) const {
    int value = 0;
    const CUresult code = entries_.device_get_attribute(&value, attribute, device_);
    return code == CUDA_SUCCESS ? value : 0;
  }
  bool has(CUdevice_attribute attribute) const { return get(attribute) != 0; }

  std::string get_name() const {
    char name[256] = "";
    if (entries_.device_get_name != nullptr) {
      static_cast<void>(entries_.device_get_name(name, sizeof name - 1, device_));
    }
    return name;
  }

  Bytes get_granularity(CUmemAllocationGranularity_flags which) const {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device_}};
    std::size_t bytes = 0;
    const CUresult code = entries_.mem_get_granularity(&bytes, &properties, which);
    return code == CUDA_SUCCESS ? bytes : 0;
  }

 private:
  const DriverEntries& entries_;
  CUdevice device_;
};

void describe_memory(const DriverEntries& entries, const DeviceQuestions& ask, CUdevice device,
                     DeviceReport& report) {
  std::size_t total = 0;
  if (entries.device_total_mem(&total, device) == CUDA_SUCCESS) report.total_bytes = total;
  if (ask.has(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)) {
    report.least_granularity = ask.get_granularity(CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    report.granularity = ask.get_granularity(CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
  }
  report.is_integrated = ask.has(CU_DEVICE_ATTRIBUTE_INTEGRATED);
}

void describe_sharing(const DeviceQuestions& ask, DeviceReport& report) {
  // The attribute that cuda.h names for "does legacy IPC work"; it is newer than that.
  report.has_legacy_ipc = ask.has(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING) &&
                          ask.has(CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED);
  report.has_fd_handles = ask.has(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
  report.has_fabric_handles = ask.has(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED);
  report.has_rdma = ask.has(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED);
  report.has_vmm_rdma = ask.has(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
}

DeviceReport describe_device(const DriverEntries& entries, CUdevice device) {
  const DeviceQuestions ask(entries, device);
  DeviceReport report;
  report.name = ask.get_name();
  report.compute_major = ask.get(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  report.compute_minor = ask.get(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  report.compute_mode = ComputeMode{ask.get(CU_DEVICE_ATTRIBUTE_COMPUTE_MODE)};
  report.has_context_events = entries.ctx_record_event != nullptr;
  describe_memory(entries, ask, device, report);
  describe_sharing(ask, report);
  return report;
}

void ask_free_memory(CudaDriver& driver, DeviceId device, DeviceReport& report) {
  const DriverResult<MemoryInfo> info = driver.get_memory_info(device);
  if (info.is_ok()) {
    report.free_bytes = info.value.free_bytes;
  } else {
    report.free_bytes_error = describe(info.code);
  }
}

std::vector<bool> list_peers(const DriverEntries& entries, const std::vector<CUdevice>& devices,
                             CUdevice from) {
  std::vector<bool> row;
  for (const CUdevice to : devices) {
    int can_access = 0;
    if (from != to && entries.can_access_peer != nullptr &&
        entries.can_access_peer(&can_access, from, to) != CUDA_SUCCESS) {
      can_access = 0;
    }
    row.push_back(from == to || can_access != 0);
  }
  return row;
}

void describe_devices(const DriverEntries& entries, int count, MachineReport& report) {
  std::vector<CUdevice> devices;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    CUdevice device = 0;
    const CUresult code = entries.device_get(&device, ordinal);
    if (code != CUDA_SUCCESS) {
      report.error = "device " + std::to_string(ordinal) +
                     " cannot be opened: " + quarry::describe(to_code(code));
      return;
    }
    devices.push_back(device);
  }
  CudaDriver driver(entries, count);
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    const CUdevice device = devices[static_cast<std::size_t>(ordinal)];
    report.devices.push_back(describe_device(entries, device));
    ask_free_memory(driver, ordinal, report.devices.back());
    report.peers.push_back(list_peers(entries, devices, device));
  }
}

}  // namespace

MachineReport make_machine_report() {
  MachineReport report;
  report.kernel_module = read_kernel_module();
  const Result<DriverLibrary> library = DriverLibrary::open();
  if (!library.is_ok()) {
    report.error = library.status().message();
    return report;
  }
  report.library_path = library.value().get_path();
  report.resolver = library.value().get_resolver_name();
  const DriverEntries entries = find_driver_entries(library.value());
  for (const EntryState& entry : list_entries(entries)) {
    if (entry.is_found) continue;
    report.missing_entries.push_back({entry.name, entry.version, entry.is_required});
  }
  if (entries.driver_get_version != nullptr) {
    static_cast<void>(entries.driver_get_version(&report.driver_version));
  }
  if (Status status = check_entries(entries); !status.is_ok()) {
    report.error = status.message();
    return report;
  }
  int count = 0;
  CUresult code = entries.init(0);
  if (code == CUDA_SUCCESS) code = entries.device_get_count(&count);
  if (code != CUDA_SUCCESS) {
    report.error = "the CUDA driver does not start: " + quarry::describe(to_code(code));
    return report;
  }
  describe_devices(entries, count, report);
  return report;
}

}  // namespace quarry::cuda
