// SPDX-License-Identifier: Apache-2.0
// What the pass-through says of itself, and its limits: no driver memory changes hands here.
#include <fmt/format.h>

#include <algorithm>

#include "api/pass_through.hpp"

namespace quarry {

void PassThrough::configure(const Config& config) {
  MutexLock lock(mutex_);
  if (config.per_process_memory_fraction != config_.per_process_memory_fraction) {
    for (Device& device : devices_)
      device.fraction = config.per_process_memory_fraction;
  }
  config_ = config;
}

Config PassThrough::get_config() const {
  MutexLock lock(mutex_);
  return config_;
}

Status PassThrough::set_memory_fraction(DeviceId device, double fraction) {
  if (Status status = check_device(device); !status.is_ok()) return status;
  if (!(fraction >= 0.0 && fraction <= 1.0)) {
    return {StatusCode::kInvalidArgument,
            fmt::format("invalid fraction: {}. Please set within [0, 1].", fraction)};
  }
  MutexLock lock(mutex_);
  at(device).fraction = fraction;
  return {};
}

Result<double> PassThrough::get_memory_fraction(DeviceId device) const {
  if (Status status = check_device(device); !status.is_ok()) return status;
  MutexLock lock(mutex_);
  return at(device).fraction;
}

Status PassThrough::set_limit(DeviceId device, Bytes bytes) {
  if (Status status = check_device(device); !status.is_ok()) return status;
  MutexLock lock(mutex_);
  at(device).limit = bytes;
  return {};
}

Result<Bytes> PassThrough::get_limit(DeviceId device) const {
  if (Status status = check_device(device); !status.is_ok()) return status;
  MutexLock lock(mutex_);
  return at(device).limit;
}

Result<DeviceStats> PassThrough::get_stats(DeviceId device) {
  if (Status status = check_device(device); !status.is_ok()) return status;
  DriverResult<MemoryInfo> info = DriverCode::kUnknown;
  {
    CaptureModeBracket bracket(driver_);
    info = driver_.get_memory_info(device);
  }
  MutexLock lock(mutex_);
  DeviceStats stats = at(device).stats;
  stats.pinned_bytes = calculate_pinned_bytes(device);
  stats.allocator_slack = stats.allocated_bytes.all.current - stats.requested_bytes.all.current;
  if (info.is_ok()) {
    const auto used = static_cast<std::int64_t>(info.value.total_bytes - info.value.free_bytes);
    stats.external_bytes = std::max<std::int64_t>(used - stats.reserved_bytes.all.current, 0);
  }
  return stats;
}

Result<std::vector<StreamCache>> PassThrough::get_stream_caches(DeviceId device) {
  if (Status status = check_device(device); !status.is_ok()) return status;
  return std::vector<StreamCache>{};
}

Status PassThrough::reset_peak_stats(DeviceId device) {
  if (Status status = check_device(device); !status.is_ok()) return status;
  MutexLock lock(mutex_);
  at(device).stats.reset_peak();
  return {};
}

Status PassThrough::reset_accumulated_stats(DeviceId device) {
  if (Status status = check_device(device); !status.is_ok()) return status;
  MutexLock lock(mutex_);
  at(device).stats.reset_accumulated();
  return {};
}

Result<BlockInfo> PassThrough::find_block(Address address) const {
  if (Status alive = check_alive(); !alive.is_ok()) return alive;
  MutexLock lock(mutex_);
  auto after = held_.upper_bound(address);
  if (after != held_.begin()) {
    const auto& [start, allocation] = *std::prev(after);
    const Bytes bytes = allocation.driver_bytes - (start - allocation.driver_address);
    if (address - start < bytes) {
      return BlockInfo{start,
                       bytes,
                       allocation.requested_bytes,
                       allocation.driver_address,
                       allocation.driver_bytes,
                       false,
                       allocation.stream};
    }
  }
  return Status(
      StatusCode::kInvalidPointer,
      fmt::format("invalid device pointer: {:#x}: no block that a user holds is there", address));
}

}  // namespace quarry
