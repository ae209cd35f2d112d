// SPDX-License-Identifier: Apache-2.0
// Virtual memory management (cuMemAddressReserve, cuMemCreate, cuMemMap, ...) with the
// restrictions of the real one: whole extents, whole mappings, a granularity, addresses that run
// out. Whether work still uses what is unmapped is the oracle's question, not this file's.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "driver/driver_types.hpp"
#include "sim/plain_memory.hpp"
#include "sim/sim_types.hpp"

namespace quarry::sim {

struct Mapping {
  Bytes bytes = 0;
  std::uint32_t extent_slot = 0;
  std::uint64_t access_mask = 0;  // bit d: device d may read and write
};

struct Extent {
  std::uint32_t generation = 0;  // counts the slot's uses; part of the handle
  DeviceId device = 0;
  Bytes bytes = 0;
  ExtentKind kind;
  PhysicalId physical = PhysicalId::kNone;
  std::uint32_t mapping_count = 0;
  bool is_released = true;  // by the caller; the memory goes with the last mapping
};

class VirtualMemory {
 public:
  VirtualMemory(const SimOptions& options, Address begin, Bytes bytes,
                std::vector<PhysicalBudget>& budgets)
      : options_(options), space_(begin, bytes, options.reuse_addresses), budgets_(budgets) {}

  DriverResult<Address> reserve(Bytes bytes, Bytes alignment);
  DriverCode free_reservation(Address address, Bytes bytes);
  // The extent's number for the oracle is `physical`.
  DriverResult<ExtentHandle> create(DeviceId device, Bytes bytes, ExtentKind kind,
                                    PhysicalId physical);
  // 0 for a handle that names no extent.
  Bytes find_bytes(ExtentHandle handle) {
    const Extent* extent = find_extent(handle);
    return extent != nullptr ? extent->bytes : 0;
  }
  // Adds to `freed` the physical memory that went back to the device by this call.
  DriverCode release(ExtentHandle handle, std::vector<PhysicalId>& freed);
  DriverCode map(Address address, Bytes bytes, ExtentHandle handle);
  // kSuccess if the range is a row of whole mappings; then `unmap` may be called for it.
  DriverCode check_whole_mappings(Address address, Bytes bytes) const;
  void unmap(Address address, Bytes bytes, std::vector<PhysicalId>& freed);
  // Counts the mappings that the range has.
  DriverCode set_access(Address address, Bytes bytes, std::span<const DeviceId> devices,
                        std::uint64_t& mapping_count);
  DriverCode revoke_access(Address address, Bytes bytes, DeviceId device,
                           std::uint64_t& mapping_count);

  // Unmaps and releases all extents of the device.
  void reset_device(DeviceId device, std::vector<PhysicalId>& freed);

  const std::map<Address, Mapping>& mappings() const noexcept { return mappings_; }
  const Extent& extent(const Mapping& mapping) const { return extents_[mapping.extent_slot]; }
  std::uint64_t reservation_count() const noexcept { return reservations_.size(); }
  std::uint64_t extent_count(DeviceId device) const;
  std::uint64_t mapping_count(DeviceId device) const;

 private:
  Extent* find_extent(ExtentHandle handle);
  bool is_granular(std::uint64_t n) const noexcept {
    return options_.extent_granularity != 0 && is_aligned(n, options_.extent_granularity);
  }
  bool is_reserved(Address address, Bytes bytes) const;
  bool is_free_of_mappings(Address address, Bytes bytes) const;
  // Gives the memory back if nothing holds it.
  void free_if_unused(std::uint32_t slot, std::vector<PhysicalId>& freed);
  std::map<Address, Mapping>::iterator erase_mapping(std::map<Address, Mapping>::iterator mapping,
                                                     std::vector<PhysicalId>& freed);

  const SimOptions& options_;
  AddressSpace space_;
  std::vector<PhysicalBudget>& budgets_;
  std::map<Address, Bytes> reservations_;
  std::map<Address, Mapping> mappings_;
  std::vector<Extent> extents_;
  std::vector<std::uint32_t> free_slots_;
};

}  // namespace quarry::sim
