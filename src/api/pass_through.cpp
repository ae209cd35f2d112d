// SPDX-License-Identifier: Apache-2.0
#include "api/pass_through.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.hpp"
#include "core/size_policy.hpp"
#include "core/thread_state.hpp"

namespace quarry {
namespace {

constexpr Bytes kDriverAlignment = 512;

// Adds `sign` times the allocation to all figures that a live block has.
void count_block(DeviceStats& stats, Bytes requested_bytes, Bytes driver_bytes, int sign) {
  const StatFamily family = get_family(requested_bytes);
  const auto bytes = static_cast<std::int64_t>(driver_bytes) * sign;
  stats.allocation.add(family, sign);
  stats.active.add(family, sign);
  stats.segment.add(family, sign);
  stats.allocated_bytes.add(family, bytes);
  stats.active_bytes.add(family, bytes);
  stats.reserved_bytes.add(family, bytes);
  stats.requested_bytes.add(family, static_cast<std::int64_t>(requested_bytes) * sign);
}

}  // namespace

PassThrough::PassThrough(Driver& driver, const Config& config, std::vector<Device> devices)
    : driver_(driver),
      device_count_(static_cast<int>(devices.size())),
      config_(config),
      devices_(std::move(devices)) {}

Result<std::unique_ptr<PassThrough>> PassThrough::create(Driver& driver, const Config& config) {
  const auto count = driver.get_device_count();
  if (!count.is_ok() || count.value == 0) {
    return Status(StatusCode::kDriverError, "the driver shows no device: " + describe(count.code));
  }
  std::vector<Device> devices;
  for (DeviceId device = 0; device < count.value; ++device) {
    const auto properties = driver.get_device_properties(device);
    if (!properties.is_ok()) {
      return Status(StatusCode::kDriverError,
                    fmt::format("the driver failed to describe device {}: {}", device,
                                describe(properties.code)));
    }
    devices.push_back(
        {properties.value.total_bytes, config.per_process_memory_fraction, kUnlimited, 0, {}});
  }
  return std::unique_ptr<PassThrough>(new PassThrough(driver, config, std::move(devices)));
}

PassThrough::~PassThrough() {
  if (is_forked_.load(std::memory_order_relaxed)) return;
  for (const Allocation& allocation : queued_)
    static_cast<void>(free_in_driver(allocation));
  for (const Allocation& allocation : kept_)
    static_cast<void>(free_in_driver(allocation));
  for (const auto& [address, allocation] : held_)
    static_cast<void>(free_in_driver(allocation));
}

Status PassThrough::check_alive() const {
  if (!is_forked_.load(std::memory_order_relaxed)) return {};
  return {StatusCode::kForked,
          "this process was forked after the allocator was initialised; the child has no device"};
}

Status PassThrough::check_device(DeviceId device) const {
  if (Status alive = check_alive(); !alive.is_ok()) return alive;
  if (device >= 0 && device < device_count_) return {};
  return {StatusCode::kInvalidArgument,
          fmt::format("device is {}; there are devices 0 to {}", device, device_count_ - 1)};
}

// --- malloc ---

Result<Address> PassThrough::allocate(StreamRef stream, Bytes bytes, Bytes alignment) {
  if (Status status = check_device(stream.device); !status.is_ok()) return status;
  if (!is_power_of_two(alignment) || alignment > 1_GiB) {
    return Status(
        StatusCode::kInvalidArgument,
        fmt::format("alignment is {}; it must be a power of two, at most 1 GiB", alignment));
  }
  if (bytes == 0) return Address{0};
  if (bytes >= kRequestMax) {
    return Status(StatusCode::kOutOfMemory,
                  "CUDA out of memory. Tried to allocate more than 1EB memory.");
  }
  if (is_driver_callback_thread()) {
    return Status(StatusCode::kBusy, "a driver callback may not ask the driver for memory");
  }
  release_queued();
  const Bytes room = alignment > kDriverAlignment ? alignment - kDriverAlignment : 0;
  Allocation allocation{0, bytes + room, bytes, stream};
  auto driver_address = ask_driver(allocation);
  if (!driver_address.is_ok()) return driver_address;
  allocation.driver_address = driver_address.value();
  const Address address = round_up(allocation.driver_address, alignment);
  MutexLock lock(mutex_);
  held_.emplace(address, allocation);
  return address;
}

Result<Address> PassThrough::ask_driver(const Allocation& wanted) {
  const DeviceId id = wanted.stream.device;
  auto address = try_allocate(wanted);
  if (address.code == DriverCode::kOutOfMemory &&
      callbacks_.free_memory(id, wanted.driver_bytes)) {
    address = try_allocate(wanted);
  }
  if (address.code == DriverCode::kOutOfMemory) return fail_out_of_memory(wanted);
  if (address.is_ok()) return address.value;
  return Status(StatusCode::kDriverError,
                fmt::format("the driver failed to allocate {} bytes on device {}: {}",
                            wanted.driver_bytes, id, describe(address.code)));
}

// kOutOfMemory above the limit too.
DriverResult<Address> PassThrough::try_allocate(const Allocation& wanted) {
  const DeviceId id = wanted.stream.device;
  if (!try_reserve(wanted)) return DriverCode::kOutOfMemory;
  DriverResult<Address> address(DriverCode::kUnknown);
  {
    CaptureModeBracket bracket(driver_);
    address = driver_.allocate(id, wanted.driver_bytes);
  }
  MutexLock lock(mutex_);
  Device& device = at(id);
  device.asked_bytes -= wanted.driver_bytes;
  if (address.is_ok()) {
    count_block(device.stats, wanted.requested_bytes, wanted.driver_bytes, 1);
    ++device.stats.num_device_alloc;
  }
  return address;
}

bool PassThrough::try_reserve(const Allocation& wanted) {
  MutexLock lock(mutex_);
  Device& device = at(wanted.stream.device);
  const Bytes taken =
      static_cast<Bytes>(device.stats.reserved_bytes.all.current) + device.asked_bytes;
  const Bytes allowed = calculate_allowed_bytes(wanted.stream.device);
  if (taken > allowed || wanted.driver_bytes > allowed - taken) return false;
  device.asked_bytes += wanted.driver_bytes;
  return true;
}

Bytes PassThrough::calculate_allowed_bytes(DeviceId id) const {
  const Device& device = at(id);
  if (device.fraction >= 1.0) return device.limit;
  const auto part = static_cast<Bytes>(device.fraction * static_cast<double>(device.total_bytes));
  return std::min(part, device.limit);
}

Status PassThrough::fail_out_of_memory(const Allocation& wanted) {
  OomReport report;
  report.device = wanted.stream.device;
  report.stream = static_cast<std::uint64_t>(wanted.stream.handle);
  report.requested_bytes = wanted.requested_bytes;
  report.rounded_bytes = report.segment_bytes = wanted.driver_bytes;
  {
    MutexLock lock(mutex_);
    Device& device = at(report.device);
    ++device.stats.num_ooms;
    report.reserved_bytes = static_cast<Bytes>(device.stats.reserved_bytes.all.current);
    report.allocated_bytes = static_cast<Bytes>(device.stats.allocated_bytes.all.current);
    report.limit_bytes = calculate_allowed_bytes(report.device);
    report.device_total_bytes = device.total_bytes;
  }
  add_driver_ledger(report, driver_, false);
  callbacks_.notify_oom(report);
  return {StatusCode::kOutOfMemory, format(report)};
}

// --- free ---

Status PassThrough::take(Address address, Allocation& taken, const char* call) {
  if (Status alive = check_alive(); !alive.is_ok()) return alive;
  MutexLock lock(mutex_);
  const auto found = held_.find(address);
  if (found == held_.end()) {
    ++devices_.front().stats.invalid_frees;
    return {
        StatusCode::kInvalidPointer,
        fmt::format("{}: invalid device pointer: {:#x}: no block that a user holds begins there",
                    call, address)};
  }
  taken = found->second;
  held_.erase(found);
  return {};
}

Status PassThrough::free(Address address) noexcept {
  if (address == 0) return check_alive();
  Allocation allocation;
  if (Status status = take(address, allocation, "free"); !status.is_ok()) return status;
  return release(allocation);
}

Status PassThrough::free_sized(Address address, Bytes bytes) noexcept {
  if (address == 0) return check_alive();
  Allocation allocation;
  if (Status status = take(address, allocation, "free_sized"); !status.is_ok()) return status;
  if (Status status = release(allocation); !status.is_ok()) return status;
  if (bytes == allocation.requested_bytes) return {};
  MutexLock lock(mutex_);
  ++at(allocation.stream.device).stats.size_mismatches;
  return {StatusCode::kSizeMismatch,
          fmt::format("free_sized: bytes is {}, but {} were asked for; the block was freed", bytes,
                      allocation.requested_bytes)};
}

Status PassThrough::free_on_stream(Address address, StreamHandle) noexcept {
  return free(address);
}

// Gives the memory to the driver, or keeps it where that must not be now.
Status PassThrough::release(const Allocation& allocation) {
  {
    MutexLock lock(mutex_);
    if (is_pinned(allocation)) {
      kept_.push_back(allocation);
      return {};
    }
  }
  if (is_driver_callback_thread() || !free_gate_.enter()) {
    MutexLock lock(mutex_);
    queued_.push_back(allocation);
    has_queued_.store(true, std::memory_order_relaxed);
    return {};
  }
  Status status = free_in_driver(allocation);
  free_gate_.leave();
  return status;
}

Status PassThrough::free_in_driver(const Allocation& allocation) {
  const DeviceId id = allocation.stream.device;
  DriverCode code = DriverCode::kSuccess;
  {
    CaptureModeBracket bracket(driver_);
    code = driver_.free(id, allocation.driver_address);
  }
  MutexLock lock(mutex_);
  DeviceStats& stats = at(id).stats;
  count_block(stats, allocation.requested_bytes, allocation.driver_bytes, -1);
  if (code == DriverCode::kSuccess) {
    ++stats.num_device_free;
    return {};
  }
  ++stats.driver_free_failures;
  return {StatusCode::kDriverError, fmt::format("the driver failed to free {:#x} on device {}: {}",
                                                allocation.driver_address, id, describe(code))};
}

void PassThrough::release_queued() {
  if (!has_queued_.load(std::memory_order_relaxed) || is_driver_callback_thread()) return;
  std::vector<Allocation> queued;
  {
    MutexLock lock(mutex_);
    queued.swap(queued_);
    has_queued_.store(false, std::memory_order_relaxed);
  }
  for (const Allocation& allocation : queued) {
    if (Status status = release(allocation); !status.is_ok()) {
      log_warning(fmt::format("event=queued_free_failed text=\"{}\"", status.message()));
    }
  }
}

Status PassThrough::record_stream(Address address, StreamHandle) noexcept {
  if (address == 0) return check_alive();
  auto info = find_block(address);
  if (!info.is_ok()) return std::move(info).status();
  if (info.value().address == address) return {};
  return {StatusCode::kInvalidPointer,
          fmt::format("record_stream: invalid device pointer: {:#x}: it lies {} bytes inside a "
                      "live block",
                      address, address - info.value().address)};
}

Status PassThrough::retire_stream(StreamRef stream) noexcept {
  return check_device(stream.device);
}

Status PassThrough::empty_cache(DeviceId device) {
  if (Status status = check_device(device); !status.is_ok()) return status;
  release_queued();
  return {};
}

}  // namespace quarry
