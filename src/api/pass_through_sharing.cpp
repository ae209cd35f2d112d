// SPDX-License-Identifier: Apache-2.0
// Memory that others use too, under the kill switch: all of it is plain, so peers are the driver's
// affair; and what is freed while it is pinned is kept from the driver until it is not.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "api/pass_through.hpp"
#include "core/thread_state.hpp"

namespace quarry {

Status PassThrough::enable_peer_access(DeviceId device, DeviceId peer) noexcept {
  if (Status status = check_device(device); !status.is_ok()) return status;
  if (Status status = check_device(peer); !status.is_ok()) return status;
  if (device == peer) {
    return {StatusCode::kInvalidArgument,
            fmt::format("device and peer are both {}; a device always reaches its own memory",
                        device)};
  }
  if (is_driver_callback_thread()) {
    return {StatusCode::kBusy, "peer access cannot be enabled from a driver callback"};
  }
  CaptureModeBracket bracket(driver_);
  const DriverCode code = driver_.enable_peer_access(device, peer);
  if (code == DriverCode::kSuccess) return {};
  return {StatusCode::kDriverError,
          fmt::format("the driver failed to enable access of device {} to memory of device {}: {}",
                      device, peer, describe(code))};
}

bool PassThrough::is_pinned(const Allocation& allocation) const {
  const Address end = allocation.driver_address + allocation.driver_bytes;
  bool is_any = false;
  pins_.for_each([&](const PinnedRange& range) {
    is_any = is_any || (range.address < end && allocation.driver_address < range.end());
  });
  return is_any;
}

std::int64_t PassThrough::calculate_pinned_bytes(DeviceId device) const {
  std::int64_t bytes = 0;
  const auto add = [&](const Allocation& allocation) QUARRY_REQUIRES(mutex_) {
    if (allocation.stream.device == device && is_pinned(allocation))
      bytes += static_cast<std::int64_t>(allocation.driver_bytes);
  };
  for (const auto& [address, allocation] : held_)
    add(allocation);
  for (const Allocation& allocation : kept_)
    add(allocation);
  return bytes;
}

Status PassThrough::pin(Address address, Bytes bytes) noexcept {
  if (Status alive = check_alive(); !alive.is_ok()) return alive;
  if (bytes == 0) return {StatusCode::kInvalidArgument, "pin: bytes is 0"};
  MutexLock lock(mutex_);
  const auto after = held_.upper_bound(address);
  if (after != held_.begin()) {
    const Allocation& allocation = std::prev(after)->second;
    const Address end = allocation.driver_address + allocation.driver_bytes;
    if (address < end && bytes <= end - address) {
      static_cast<void>(pins_.add({address, bytes}));
      return {};
    }
  }
  return {StatusCode::kInvalidPointer,
          fmt::format("pin: {} bytes at {:#x} are not inside one live block", bytes, address)};
}

Status PassThrough::unpin(Address address, Bytes bytes) noexcept {
  if (Status alive = check_alive(); !alive.is_ok()) return alive;
  std::vector<Allocation> unpinned;
  {
    MutexLock lock(mutex_);
    if (pins_.remove({address, bytes}) == Pins::Removed::kNone) {
      return {StatusCode::kInvalidArgument,
              fmt::format("unpin: {} bytes at {:#x} are not pinned; it takes the range that was "
                          "given to pin",
                          bytes, address)};
    }
    const auto still = std::partition(kept_.begin(), kept_.end(),
                                      [this](const Allocation& kept)
                                          QUARRY_REQUIRES(mutex_) { return is_pinned(kept); });
    unpinned.assign(still, kept_.end());
    kept_.erase(still, kept_.end());
  }
  Status failed;
  for (const Allocation& allocation : unpinned) {
    if (Status status = release(allocation); !status.is_ok()) failed = std::move(status);
  }
  return failed;
}

}  // namespace quarry
