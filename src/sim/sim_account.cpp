// SPDX-License-Identifier: Apache-2.0
// The user side, second half: faults to inject, calls made, their modelled cost, what is held.
#include <utility>

#include "sim/sim_driver.hpp"
#include "sim/sim_state.hpp"

namespace quarry {

void SimDriver::fail_call(DriverEntry entry, std::uint64_t k, DriverCode code) {
  MutexLock lock(state_->mutex);
  state_->faults.fail_kth(entry, k, code);
}

void SimDriver::fail_any_call(std::uint64_t k, DriverCode code) {
  MutexLock lock(state_->mutex);
  state_->faults.fail_kth(std::nullopt, k, code);
}

void SimDriver::fail_calls_if(DriverEntry entry, std::function<bool(Bytes)> predicate,
                              DriverCode code) {
  MutexLock lock(state_->mutex);
  state_->faults.fail_if(entry, std::move(predicate), code);
}

void SimDriver::clear_faults() {
  MutexLock lock(state_->mutex);
  state_->faults.clear();
}

std::uint64_t SimDriver::injected_fault_count() const {
  MutexLock lock(state_->mutex);
  return state_->faults.injected_count();
}

std::uint64_t SimDriver::call_count(DriverEntry entry) const {
  MutexLock lock(state_->mutex);
  return state_->ledger.count_of(entry);
}

std::uint64_t SimDriver::call_count() const {
  MutexLock lock(state_->mutex);
  return state_->ledger.count();
}

void SimDriver::reset_call_counts() {
  MutexLock lock(state_->mutex);
  state_->ledger.reset();
}

std::uint64_t SimDriver::driver_time_ns() const {
  MutexLock lock(state_->mutex);
  return state_->ledger.ns();
}

std::uint64_t SimDriver::driver_time_ns(DriverEntry entry) const {
  MutexLock lock(state_->mutex);
  return state_->ledger.ns_of(entry);
}

std::uint64_t SimDriver::misuse_count() const {
  MutexLock lock(state_->mutex);
  return state_->misuses.size();
}

std::vector<sim::Misuse> SimDriver::get_misuses() const {
  MutexLock lock(state_->mutex);
  return state_->misuses;
}

SimDriver::Holdings SimDriver::get_holdings(DeviceId device) const {
  MutexLock lock(state_->mutex);
  const sim::VirtualMemory& mapped = state_->memory.virtual_memory();
  Holdings holdings;
  holdings.physical_bytes = state_->memory.budget(device).used_bytes();
  holdings.plain_allocations = state_->memory.plain(device).allocations().size();
  holdings.extents = mapped.extent_count(device);
  holdings.mappings = mapped.mapping_count(device);
  holdings.reservations = mapped.reservation_count();
  holdings.events = state_->events.live_count(device);
  return holdings;
}

std::optional<ExtentKind> SimDriver::find_extent_kind(Address address) const {
  MutexLock lock(state_->mutex);
  const Address begin = state_->memory.find_mapping(address);
  if (begin == 0) return std::nullopt;
  const sim::VirtualMemory& mapped = state_->memory.virtual_memory();
  return mapped.extent(mapped.mappings().at(begin)).kind;
}

}  // namespace quarry
