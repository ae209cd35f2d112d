// SPDX-License-Identifier: Apache-2.0
// Private pools, seen from all devices: which pool a request is for, and forwarding.
#include "core/allocator.hpp"
#include "core/device_allocator.hpp"
#include "core/size_policy.hpp"

namespace quarry {
namespace {

Status refuse_default_pool() {
  return Status(StatusCode::kInvalidArgument,
                "pool (0, 0) is the default pool, which is there always; name another");
}

}  // namespace

// What no route wants is served as if there were none.
Result<Address> Allocator::allocate_routed(StreamRef stream, Bytes bytes, Bytes alignment) {
  DeviceAllocator& device = *devices_[static_cast<std::size_t>(stream.device)];
  while (true) {
    const auto target = router_.find(stream);
    if (!target.is_ok()) return describe_unknown_capture(target.code);
    if (target.value.pool.is_default()) break;
    if (target.value.automatic != AutomaticPools::kNone) {
      const bool may_make = target.value.automatic == AutomaticPools::kForEach;
      auto is_there = device.make_graph_pool(target.value.pool, stream.handle, may_make);
      if (!is_there.is_ok()) return std::move(is_there).status();
      if (!is_there.value()) break;
    }
    auto result = device.allocate(stream.handle, bytes, alignment, target.value.pool);
    // Its pool was released meanwhile, perhaps with its graph, and so the route ends.
    const bool is_gone = !result.is_ok() && result.status().code() == StatusCode::kInvalidArgument;
    if (!is_gone) return result;
    router_.end_all(stream.device, target.value.pool, target.value.tenure);
  }
  if (alignment == kMinBlock) {
    ThreadMagazines* const magazines = find_thread_magazines(first_serial_ + stream.device);
    const Block* block =
        magazines != nullptr ? magazines->try_take(bytes, stream.handle) : nullptr;
    if (block == nullptr) block = device.take_from_lane(stream.handle, bytes);
    if (block != nullptr) return block->address;
  }
  return device.allocate(stream.handle, bytes, alignment, PoolId{});
}

Result<Address> Allocator::allocate_in_pool(StreamRef stream, Bytes bytes, Bytes alignment,
                                            PoolId pool) {
  auto device = find_device(stream.device);
  if (!device.is_ok()) return std::move(device).status();
  if (Status possible = check_request(bytes, alignment); !possible.is_ok()) return possible;
  if (bytes == 0) return Address{0};
  return device.value()->allocate(to_canonical(stream.handle), bytes, alignment, pool);
}

Status Allocator::retain_pool(DeviceId id, PoolId pool, const PoolOptions& options) {
  auto device = find_device(id);
  if (!device.is_ok()) return std::move(device).status();
  if (pool.is_default()) return refuse_default_pool();
  return device.value()->retain_pool(pool, options);
}

Status Allocator::hold_pool(DeviceId id, PoolId pool) {
  auto device = find_device(id);
  if (!device.is_ok()) return std::move(device).status();
  if (pool.is_default()) return refuse_default_pool();
  return device.value()->hold_pool(pool);
}

Status Allocator::release_pool(DeviceId id, PoolId pool) noexcept {
  auto device = find_device(id);
  if (!device.is_ok()) return std::move(device).status();
  if (pool.is_default()) return refuse_default_pool();
  auto holders = device.value()->release_pool(pool);
  if (!holders.is_ok()) return std::move(holders).status();
  if (holders.value().count == 0) router_.end_all(id, pool, holders.value().tenure);
  return Status::ok();
}

Status Allocator::begin_pool(const Route& route) {
  auto device = find_device(route.device);
  if (!device.is_ok()) return std::move(device).status();
  if (route.pool.is_default()) return refuse_default_pool();
  const bool may_capture =
      route.kind == Route::Kind::kCapture || route.kind == Route::Kind::kFilter;
  auto tenure = device.value()->prepare_pool(route.pool, may_capture);
  if (!tenure.is_ok()) return std::move(tenure).status();
  if (Status begun = router_.begin(route, tenure.value()); !begun.is_ok()) return begun;
  // A release meanwhile has ended the routes that there were, and this one came after it.
  auto now = device.value()->prepare_pool(route.pool, false);
  if (now.is_ok() && now.value() == tenure.value()) return Status::ok();
  router_.end_all(route.device, route.pool, tenure.value());
  if (!now.is_ok()) return std::move(now).status();
  return Status(StatusCode::kBusy,
                "pool " + to_text(route.pool) + " was released and held again meanwhile");
}

Status Allocator::end_pool(DeviceId id, PoolId pool) {
  auto device = find_device(id);
  if (!device.is_ok()) return std::move(device).status();
  if (Status ended = router_.end(id, pool); !ended.is_ok()) return ended;
  device.value()->settle();
  return Status::ok();
}

Status Allocator::trim_pool(DeviceId id, PoolId pool) {
  auto device = find_device(id);
  if (!device.is_ok()) return std::move(device).status();
  if (pool.is_default()) return refuse_default_pool();
  return device.value()->trim_pool(pool);
}

Status Allocator::change_pool(DeviceId id, PoolId pool, const PoolChange& change) {
  auto device = find_device(id);
  if (!device.is_ok()) return std::move(device).status();
  if (pool.is_default()) return refuse_default_pool();
  return device.value()->change_pool(pool, change);
}

Result<PoolReport> Allocator::get_pool_report(DeviceId id, PoolId pool) {
  auto device = find_device(id);
  if (!device.is_ok()) return std::move(device).status();
  return device.value()->get_pool_report(pool);
}

Result<std::vector<PoolReport>> Allocator::get_pool_reports(DeviceId id) {
  auto device = find_device(id);
  if (!device.is_ok()) return std::move(device).status();
  return device.value()->get_pool_reports();
}

Result<PoolCheckpoint> Allocator::save_pool(DeviceId id, PoolId pool) {
  auto device = find_device(id);
  if (!device.is_ok()) return std::move(device).status();
  if (pool.is_default()) return refuse_default_pool();
  return device.value()->save_pool(pool);
}

Result<RestoredPool> Allocator::restore_pool(const PoolCheckpoint& saved, StaleFrees frees) {
  if (Status alive = check_alive(); !alive.is_ok()) return alive;
  // Another allocator may have the same pool, at the same addresses.
  if (saved.device_serial != first_serial_ + static_cast<unsigned>(saved.device)) {
    return Status(StatusCode::kInvalidArgument,
                  "the checkpoint is of an allocator that was shut down since");
  }
  auto device = find_device(saved.device);
  if (!device.is_ok()) return std::move(device).status();
  if (saved.pool.is_default()) return refuse_default_pool();
  return device.value()->restore_pool(saved, frees);
}

Status Allocator::forget_stale(Address address) {
  if (Status alive = check_alive(); !alive.is_ok()) return alive;
  for (const auto& device : devices_) {
    if (device->forget_stale(address)) return Status::ok();
  }
  return Status(StatusCode::kInvalidPointer, format_address(address) + " is no stale block");
}

Result<std::vector<Address>> Allocator::get_live_blocks(DeviceId id, PoolId pool) {
  auto device = find_device(id);
  if (!device.is_ok()) return std::move(device).status();
  return device.value()->get_live_blocks(pool);
}

}  // namespace quarry
