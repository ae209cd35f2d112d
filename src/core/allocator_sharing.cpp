// SPDX-License-Identifier: Apache-2.0
// The calls of Allocator about memory that others use too: other devices, and what uses it by its
// address.
#include <string>
#include <utility>

#include "core/allocator.hpp"
#include "core/device_allocator.hpp"

namespace quarry {
namespace {

std::string describe_range(Address address, Bytes bytes) {
  return std::to_string(bytes) + " bytes at " + format_address(address);
}

}  // namespace

Status Allocator::enable_peer_access(DeviceId device, DeviceId peer) noexcept {
  if (auto found = find_device(device); !found.is_ok()) return std::move(found).status();
  auto owner = find_device(peer);
  if (!owner.is_ok()) return std::move(owner).status();
  if (device == peer) {
    return Status(StatusCode::kInvalidArgument, "device and peer are both " +
                                                    std::to_string(device) +
                                                    "; a device always reaches its own memory");
  }
  return owner.value()->let_in_peer(device);
}

Status Allocator::pin(Address address, Bytes bytes) noexcept {
  if (Status alive = check_alive(); !alive.is_ok()) return alive;
  if (bytes == 0) return Status(StatusCode::kInvalidArgument, "pin: bytes is 0");
  for (const auto& device : devices_) {
    Status status = device->pin(address, bytes);
    if (status.is_ok()) return status;
  }
  return Status(StatusCode::kInvalidPointer,
                "pin: " + describe_range(address, bytes) + " are not inside one live block");
}

Status Allocator::unpin(Address address, Bytes bytes) noexcept {
  if (Status alive = check_alive(); !alive.is_ok()) return alive;
  for (const auto& device : devices_) {
    Status status = device->unpin(address, bytes);
    if (status.is_ok()) return status;
  }
  return Status(StatusCode::kInvalidArgument,
                "unpin: " + describe_range(address, bytes) +
                    " are not pinned; it takes the range that was given to pin");
}

}  // namespace quarry
