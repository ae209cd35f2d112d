// SPDX-License-Identifier: Apache-2.0
// The Driver side of the simulated device: each call counts itself, asks the fault plan, applies
// the rules of captures, does its work and charges its modelled cost.
#include "sim/sim_driver.hpp"

#include "sim/sim_state.hpp"

namespace quarry {

using sim::CallSize;
using sim::StreamIndex;

SimDriver::SimDriver(const sim::SimOptions& options)
    : state_(std::make_unique<SimState>(options)) {
  QUARRY_CHECK(options.device_count > 0 && options.device_count <= 64);
}

SimDriver::~SimDriver() = default;

DriverResult<int> SimDriver::get_device_count() noexcept {
  MutexLock lock(state_->mutex);
  const DriverEntry entry = DriverEntry::kGetDeviceCount;
  if (const DriverCode code = state_->enter(entry); code != DriverCode::kSuccess) return code;
  state_->charge(entry);
  return state_->options.device_count;
}

DriverResult<DeviceProperties> SimDriver::get_device_properties(DeviceId device) noexcept {
  MutexLock lock(state_->mutex);
  const DriverEntry entry = DriverEntry::kGetDeviceProperties;
  if (const DriverCode code = state_->enter(entry); code != DriverCode::kSuccess) return code;
  if (!state_->is_device(device)) return DriverCode::kInvalidDevice;
  state_->charge(entry);
  const sim::SimOptions& options = state_->options;
  return DeviceProperties{state_->memory.budget(device).limit_bytes(), options.extent_granularity,
                          options.has_context_events, options.has_rdma, options.has_fd_handles};
}

DriverResult<MemoryInfo> SimDriver::get_memory_info(DeviceId device) noexcept {
  MutexLock lock(state_->mutex);
  const DriverEntry entry = DriverEntry::kGetMemoryInfo;
  if (const DriverCode code = state_->enter(entry); code != DriverCode::kSuccess) return code;
  if (!state_->is_device(device)) return DriverCode::kInvalidDevice;
  state_->charge(entry);
  const sim::PhysicalBudget& budget = state_->memory.budget(device);
  return MemoryInfo{budget.free_bytes(), budget.limit_bytes()};
}

DriverCode SimDriver::enable_peer_access(DeviceId device, DeviceId peer) noexcept {
  MutexLock lock(state_->mutex);
  const DriverEntry entry = DriverEntry::kEnablePeerAccess;
  if (const DriverCode code = state_->enter(entry); code != DriverCode::kSuccess) return code;
  if (!state_->is_device(device) || !state_->is_device(peer) || device == peer) {
    return DriverCode::kInvalidDevice;
  }
  state_->memory.enable_peer(device, peer);
  state_->charge(entry);
  return DriverCode::kSuccess;
}

DriverResult<Address> SimDriver::allocate(DeviceId device, Bytes bytes) noexcept {
  MutexLock lock(state_->mutex);
  const DriverEntry entry = DriverEntry::kAllocate;
  if (const DriverCode code = state_->enter(entry, bytes); code != DriverCode::kSuccess) {
    return code;
  }
  if (!state_->is_device(device)) return DriverCode::kInvalidDevice;
  if (const DriverCode code = state_->check_unsafe(entry); code != DriverCode::kSuccess) {
    return code;
  }
  sim::PlainMemory& plain = state_->memory.plain(device);
  CallSize size{.bytes = bytes, .fits_open_page = plain.fits_open_page(bytes)};
  const auto address = plain.allocate(bytes, state_->memory.make_physical_id());
  size.has_failed = !address.is_ok();
  state_->charge(entry, size);
  return address;
}

DriverCode SimDriver::free(DeviceId device, Address address) noexcept {
  const FiringLock lock(*state_);
  const DriverEntry entry = DriverEntry::kFree;
  if (const DriverCode code = state_->enter(entry); code != DriverCode::kSuccess) return code;
  if (!state_->is_device(device)) return DriverCode::kInvalidDevice;
  if (const DriverCode code = state_->check_unsafe(entry); code != DriverCode::kSuccess) {
    return code;
  }
  sim::PlainMemory& plain = state_->memory.plain(device);
  if (!plain.allocations().contains(address)) return DriverCode::kInvalidValue;
  if (!state_->streams.wait_for_device(device)) {
    state_->note_misuse(sim::MisuseKind::kDeadlock, entry, "behind endless work");
    return DriverCode::kUnknown;
  }
  state_->streams.host_sees_device(device);
  const auto allocation = plain.free(address);
  if (state_->options.oracle) {
    state_->oracle.note_plain_free(allocation->physical, {address, allocation->bytes});
  }
  const bool is_page_kept = plain.is_small_page(allocation->small_page);
  state_->charge(entry, {.bytes = allocation->bytes, .fits_open_page = is_page_kept});
  return DriverCode::kSuccess;
}

DriverResult<Address> SimDriver::reserve_addresses(Bytes bytes, Bytes alignment) noexcept {
  MutexLock lock(state_->mutex);
  const DriverEntry entry = DriverEntry::kReserveAddresses;
  if (const DriverCode code = state_->enter(entry, bytes); code != DriverCode::kSuccess) {
    return code;
  }
  state_->charge(entry);
  return state_->memory.virtual_memory().reserve(bytes, alignment);
}

DriverCode SimDriver::free_addresses(Address address, Bytes bytes) noexcept {
  MutexLock lock(state_->mutex);
  const DriverEntry entry = DriverEntry::kFreeAddresses;
  if (const DriverCode code = state_->enter(entry, bytes); code != DriverCode::kSuccess) {
    return code;
  }
  state_->charge(entry);
  return state_->memory.virtual_memory().free_reservation(address, bytes);
}

DriverResult<ExtentHandle> SimDriver::create_extent(DeviceId device, Bytes bytes,
                                                    ExtentKind kind) noexcept {
  MutexLock lock(state_->mutex);
  const DriverEntry entry = DriverEntry::kCreateExtent;
  if (const DriverCode code = state_->enter(entry, bytes); code != DriverCode::kSuccess) {
    return code;
  }
  if (!state_->is_device(device)) return DriverCode::kInvalidDevice;
  state_->charge(entry, {.bytes = bytes});
  return state_->memory.virtual_memory().create(device, bytes, kind,
                                                state_->memory.make_physical_id());
}

DriverCode SimDriver::release_extent(ExtentHandle extent) noexcept {
  MutexLock lock(state_->mutex);
  const DriverEntry entry = DriverEntry::kReleaseExtent;
  sim::VirtualMemory& memory = state_->memory.virtual_memory();
  const Bytes bytes = memory.find_bytes(extent);
  if (const DriverCode code = state_->enter(entry, bytes); code != DriverCode::kSuccess) {
    return code;
  }
  state_->freed.clear();
  const DriverCode code = memory.release(extent, state_->freed);
  state_->drop_freed();
  state_->charge(entry, {.bytes = bytes});
  return code;
}

DriverCode SimDriver::map(Address address, Bytes bytes, ExtentHandle extent) noexcept {
  MutexLock lock(state_->mutex);
  const DriverEntry entry = DriverEntry::kMap;
  if (const DriverCode code = state_->enter(entry, bytes); code != DriverCode::kSuccess) {
    return code;
  }
  state_->charge(entry, {.bytes = bytes});
  return state_->memory.virtual_memory().map(address, bytes, extent);
}

DriverCode SimDriver::unmap(Address address, Bytes bytes) noexcept {
  MutexLock lock(state_->mutex);
  const DriverEntry entry = DriverEntry::kUnmap;
  if (const DriverCode code = state_->enter(entry, bytes); code != DriverCode::kSuccess) {
    return code;
  }
  sim::VirtualMemory& memory = state_->memory.virtual_memory();
  const DriverCode code = memory.check_whole_mappings(address, bytes);
  if (code != DriverCode::kSuccess) return code;
  std::uint64_t count = 0;
  auto mapping = memory.mappings().find(address);
  for (; mapping != memory.mappings().end() && mapping->first < address + bytes; ++mapping) {
    ++count;
    if (!state_->options.oracle) continue;
    const sim::PhysicalId physical = memory.extent(mapping->second).physical;
    state_->oracle.note_unmap(mapping->first, mapping->second, physical);
  }
  state_->freed.clear();
  memory.unmap(address, bytes, state_->freed);
  state_->drop_freed();
  state_->charge(entry, {.bytes = bytes, .count = count});
  return code;
}

DriverCode SimDriver::set_access(Address address, Bytes bytes,
                                 std::span<const DeviceId> devices) noexcept {
  MutexLock lock(state_->mutex);
  const DriverEntry entry = DriverEntry::kSetAccess;
  if (const DriverCode code = state_->enter(entry, bytes); code != DriverCode::kSuccess) {
    return code;
  }
  std::uint64_t count = 0;
  const DriverCode code =
      state_->memory.virtual_memory().set_access(address, bytes, devices, count);
  state_->charge(entry, {.bytes = bytes, .count = count});
  return code;
}

DriverCode SimDriver::revoke_access(Address address, Bytes bytes, DeviceId device) noexcept {
  MutexLock lock(state_->mutex);
  const DriverEntry entry = DriverEntry::kRevokeAccess;
  if (const DriverCode code = state_->enter(entry, bytes); code != DriverCode::kSuccess) {
    return code;
  }
  std::uint64_t count = 0;
  const DriverCode code =
      state_->memory.virtual_memory().revoke_access(address, bytes, device, count);
  state_->charge(entry, {.bytes = bytes, .count = count});
  return code;
}

}  // namespace quarry
