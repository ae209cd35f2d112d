// SPDX-License-Identifier: Apache-2.0
#include "sim/virtual_memory.hpp"

#include <algorithm>
#include <iterator>

namespace quarry::sim {
namespace {

ExtentHandle make_handle(std::uint32_t slot, std::uint32_t generation) {
  return static_cast<ExtentHandle>((std::uint64_t{generation} << 32) | (slot + 1));
}

}  // namespace

DriverResult<Address> VirtualMemory::reserve(Bytes bytes, Bytes alignment) {
  if (options_.extent_granularity == 0) return DriverCode::kNotSupported;
  if (bytes == 0 || !is_granular(bytes)) return DriverCode::kInvalidValue;
  if (alignment != 0 && !is_power_of_two(alignment)) return DriverCode::kInvalidValue;
  const auto address = space_.take(bytes, std::max(alignment, options_.extent_granularity));
  if (!address) return DriverCode::kOutOfMemory;
  reservations_[*address] = bytes;
  return *address;
}

DriverCode VirtualMemory::free_reservation(Address address, Bytes bytes) {
  const auto found = reservations_.find(address);
  if (found == reservations_.end() || found->second != bytes) return DriverCode::kInvalidValue;
  if (!is_free_of_mappings(address, bytes)) return DriverCode::kInvalidValue;
  reservations_.erase(found);
  space_.give_back(address, bytes);
  return DriverCode::kSuccess;
}

DriverResult<ExtentHandle> VirtualMemory::create(DeviceId device, Bytes bytes, ExtentKind kind,
                                                 PhysicalId physical) {
  using HandleType = ExtentKind::HandleType;
  if (options_.extent_granularity == 0) return DriverCode::kNotSupported;
  if (bytes == 0 || !is_granular(bytes)) return DriverCode::kInvalidValue;
  if (kind.handle_type == HandleType::kFabric && !options_.has_fabric_handles) {
    return DriverCode::kNotPermitted;
  }
  if (kind.handle_type == HandleType::kFileDescriptor && !options_.has_fd_handles) {
    return DriverCode::kNotSupported;
  }
  if (kind.gpu_direct_rdma && !options_.has_rdma) return DriverCode::kNotSupported;
  if (!budgets_[device].try_take(bytes)) return DriverCode::kOutOfMemory;
  if (free_slots_.empty()) {
    free_slots_.push_back(static_cast<std::uint32_t>(extents_.size()));
    extents_.emplace_back();
  }
  const std::uint32_t slot = free_slots_.back();
  free_slots_.pop_back();
  Extent& extent = extents_[slot];
  extent = Extent{extent.generation + 1, device, bytes, kind, physical, 0, false};
  return make_handle(slot, extent.generation);
}

DriverCode VirtualMemory::release(ExtentHandle handle, std::vector<PhysicalId>& freed) {
  Extent* extent = find_extent(handle);
  if (extent == nullptr) return DriverCode::kInvalidValue;
  extent->is_released = true;
  free_if_unused(static_cast<std::uint32_t>(extent - extents_.data()), freed);
  return DriverCode::kSuccess;
}

DriverCode VirtualMemory::map(Address address, Bytes bytes, ExtentHandle handle) {
  Extent* extent = find_extent(handle);
  if (extent == nullptr || bytes == 0) return DriverCode::kInvalidValue;
  if (!is_granular(address) || !is_granular(bytes)) return DriverCode::kInvalidValue;
  if (bytes < extent->bytes) return DriverCode::kNotSupported;
  if (bytes > extent->bytes) return DriverCode::kInvalidValue;
  if (!is_reserved(address, bytes)) return DriverCode::kInvalidValue;
  if (!is_free_of_mappings(address, bytes)) return DriverCode::kInvalidValue;
  ++extent->mapping_count;
  mappings_[address] = Mapping{bytes, static_cast<std::uint32_t>(extent - extents_.data()), 0};
  return DriverCode::kSuccess;
}

DriverCode VirtualMemory::check_whole_mappings(Address address, Bytes bytes) const {
  if (bytes == 0 || address + bytes < address) return DriverCode::kInvalidValue;
  const Address end = address + bytes;
  auto mapping = mappings_.find(address);
  for (Address at = address; at != end; ++mapping) {
    if (mapping == mappings_.end() || mapping->first != at) return DriverCode::kInvalidValue;
    if (mapping->second.bytes > end - at) return DriverCode::kInvalidValue;
    at += mapping->second.bytes;
  }
  return DriverCode::kSuccess;
}

void VirtualMemory::unmap(Address address, Bytes bytes, std::vector<PhysicalId>& freed) {
  auto mapping = mappings_.find(address);
  while (mapping != mappings_.end() && mapping->first < address + bytes) {
    mapping = erase_mapping(mapping, freed);
  }
}

DriverCode VirtualMemory::set_access(Address address, Bytes bytes,
                                     std::span<const DeviceId> devices,
                                     std::uint64_t& mapping_count) {
  if (const DriverCode code = check_whole_mappings(address, bytes); code != DriverCode::kSuccess) {
    return code;
  }
  std::uint64_t mask = 0;
  for (const DeviceId device : devices) {
    if (device < 0 || device >= options_.device_count) return DriverCode::kInvalidDevice;
    mask |= std::uint64_t{1} << device;
  }
  auto mapping = mappings_.find(address);
  for (; mapping != mappings_.end() && mapping->first < address + bytes; ++mapping) {
    mapping->second.access_mask |= mask;
    ++mapping_count;
  }
  return DriverCode::kSuccess;
}

DriverCode VirtualMemory::revoke_access(Address address, Bytes bytes, DeviceId device,
                                        std::uint64_t& mapping_count) {
  if (const DriverCode code = check_whole_mappings(address, bytes); code != DriverCode::kSuccess) {
    return code;
  }
  if (device < 0 || device >= options_.device_count) return DriverCode::kInvalidDevice;
  auto mapping = mappings_.find(address);
  for (; mapping != mappings_.end() && mapping->first < address + bytes; ++mapping) {
    mapping->second.access_mask &= ~(std::uint64_t{1} << device);
    ++mapping_count;
  }
  return DriverCode::kSuccess;
}

void VirtualMemory::reset_device(DeviceId device, std::vector<PhysicalId>& freed) {
  for (auto mapping = mappings_.begin(); mapping != mappings_.end();) {
    const bool is_here = extents_[mapping->second.extent_slot].device == device;
    mapping = is_here ? erase_mapping(mapping, freed) : std::next(mapping);
  }
  for (std::uint32_t slot = 0; slot < extents_.size(); ++slot) {
    Extent& extent = extents_[slot];
    if (extent.device != device || extent.is_released) continue;
    extent.is_released = true;
    free_if_unused(slot, freed);
  }
}

std::uint64_t VirtualMemory::extent_count(DeviceId device) const {
  return static_cast<std::uint64_t>(
      std::count_if(extents_.begin(), extents_.end(), [device](const Extent& extent) {
        return extent.device == device && (!extent.is_released || extent.mapping_count > 0);
      }));
}

std::uint64_t VirtualMemory::mapping_count(DeviceId device) const {
  return static_cast<std::uint64_t>(std::count_if(
      mappings_.begin(), mappings_.end(),
      [this, device](const auto& entry) { return extent(entry.second).device == device; }));
}

Extent* VirtualMemory::find_extent(ExtentHandle handle) {
  const auto value = static_cast<std::uint64_t>(handle);
  const std::uint64_t slot = (value & 0xffff'ffffu) - 1;
  if (slot >= extents_.size()) return nullptr;
  Extent& extent = extents_[slot];
  if (extent.generation != value >> 32 || extent.is_released) return nullptr;
  return &extent;
}

bool VirtualMemory::is_reserved(Address address, Bytes bytes) const {
  auto after = reservations_.upper_bound(address);
  if (after == reservations_.begin()) return false;
  const auto& [begin, length] = *std::prev(after);
  return address - begin < length && length - (address - begin) >= bytes;
}

bool VirtualMemory::is_free_of_mappings(Address address, Bytes bytes) const {
  auto next = mappings_.lower_bound(address);
  if (next != mappings_.end() && next->first < address + bytes) return false;
  if (next == mappings_.begin()) return true;
  const auto& [begin, mapping] = *std::prev(next);
  return begin + mapping.bytes <= address;
}

void VirtualMemory::free_if_unused(std::uint32_t slot, std::vector<PhysicalId>& freed) {
  const Extent& extent = extents_[slot];
  if (!extent.is_released || extent.mapping_count > 0) return;
  budgets_[extent.device].give_back(extent.bytes);
  free_slots_.push_back(slot);
  freed.push_back(extent.physical);
}

std::map<Address, Mapping>::iterator VirtualMemory::erase_mapping(
    std::map<Address, Mapping>::iterator mapping, std::vector<PhysicalId>& freed) {
  const std::uint32_t slot = mapping->second.extent_slot;
  --extents_[slot].mapping_count;
  free_if_unused(slot, freed);
  return mappings_.erase(mapping);
}

}  // namespace quarry::sim
