// SPDX-License-Identifier: Apache-2.0
// All memory of the simulated devices, and from an address to the physical bytes behind it. Owns
// plain and virtual memory and the budgets that they share; lays out the one address space: a
// region of plain memory for each device, then what reservations come from.
#pragma once

#include <deque>
#include <vector>

#include "sim/plain_memory.hpp"
#include "sim/virtual_memory.hpp"

namespace quarry::sim {

// A run of physical bytes that lies behind a run of addresses.
struct PhysicalPiece {
  PhysicalId physical = PhysicalId::kNone;
  Bytes offset = 0;
  Bytes bytes = 0;
  Address address = 0;
  Address mapping = 0;  // the mapping's first address; 0 for plain memory
  DeviceId device = 0;  // where the memory is
  std::uint64_t access_mask = 0;
};

class MemoryMap {
 public:
  explicit MemoryMap(const SimOptions& options);
  MemoryMap(const MemoryMap&) = delete;
  MemoryMap& operator=(const MemoryMap&) = delete;

  PlainMemory& plain(DeviceId device) { return plain_[device]; }
  const PlainMemory& plain(DeviceId device) const { return plain_[device]; }
  VirtualMemory& virtual_memory() { return virtual_; }
  const VirtualMemory& virtual_memory() const { return virtual_; }
  PhysicalBudget& budget(DeviceId device) { return budgets_[device]; }
  const PhysicalBudget& budget(DeviceId device) const { return budgets_[device]; }
  PhysicalId make_physical_id() { return static_cast<PhysicalId>(++last_physical_); }

  // `device` may reach plain memory of `peer`.
  void enable_peer(DeviceId device, DeviceId peer) {
    reaches_[peer] |= std::uint64_t{1} << device;
  }
  // Replaces `pieces`. False if a part of the range has no memory; the pieces are those before it.
  bool translate(MemoryRange range, std::vector<PhysicalPiece>& pieces) const;
  // The mapping that covers the address: its first address, 0 if there is none.
  Address find_mapping(Address address) const;

 private:
  bool translate_plain(DeviceId device, MemoryRange range, PhysicalPiece& piece) const;
  bool translate_mapped(MemoryRange range, std::vector<PhysicalPiece>& pieces) const;

  const Bytes plain_region_bytes_;  // of each device
  std::vector<PhysicalBudget> budgets_;
  std::vector<std::uint64_t> reaches_;  // bit d of [owner]: device d reaches its plain memory
  std::deque<PlainMemory> plain_;
  VirtualMemory virtual_;
  std::uint64_t last_physical_ = 0;
};

}  // namespace quarry::sim
