// SPDX-License-Identifier: Apache-2.0
// What this machine's CUDA driver and devices offer, as plain values. Only answers: what Quarry
// makes of them, and how they are printed, is the command line tool's. Needs no CUDA header.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "driver/driver_types.hpp"

namespace quarry::cuda {

enum class ComputeMode : int { kDefault = 0, kProhibited = 2, kExclusiveProcess = 3 };

struct DeviceReport {
  std::string name;
  int compute_major = 0;
  int compute_minor = 0;
  ComputeMode compute_mode = ComputeMode::kDefault;
  Bytes total_bytes = 0;
  std::optional<Bytes> free_bytes;  // beside the context that asking for it makes
  std::string free_bytes_error;     // why there is none
  Bytes least_granularity = 0;      // of virtual memory; 0: the device has none
  Bytes granularity = 0;            // the recommended one
  bool has_context_events = false;  // cuCtxRecordEvent is there
  // Memory can be shared between processes by...
  bool has_legacy_ipc = false;      // ...cuIpcGetMemHandle (plain memory only)
  bool has_fd_handles = false;      // ...file descriptors (virtual memory)
  bool has_fabric_handles = false;  // ...fabric handles (virtual memory, over NVLink)
  bool has_rdma = false;            // GPUDirect RDMA with plain memory
  bool has_vmm_rdma = false;        // ...with virtual memory
  bool is_integrated = false;       // shares its memory with the host
};

struct MissingEntry {
  std::string name;
  int version = 0;           // CUDA's, 12050 for 12.5
  bool is_required = false;  // Quarry cannot work without it
};

struct MachineReport {
  bool is_built_in = true;    // false: this build has no CUDA driver, whatever the machine has
  std::string error;          // why there is no usable driver; empty if there is one
  std::string library_path;   // of libcuda.so.1; empty if it is not found
  std::string resolver;       // how entries are looked up: the driver's own resolver, or dlsym
  std::string kernel_module;  // version of the kernel's side, as nvidia-smi shows it; may be empty
  int driver_version = 0;     // CUDA's: 13000 for 13.0
  std::vector<MissingEntry> missing_entries;
  std::vector<DeviceReport> devices;     // by DeviceId
  std::vector<std::vector<bool>> peers;  // [from][to]: from can reach memory of to
};

// Asks the real driver. Retains each device's primary context to learn how much memory is free;
// the caller's own context is current again afterwards.
MachineReport make_machine_report();

}  // namespace quarry::cuda
