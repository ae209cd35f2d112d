// SPDX-License-Identifier: Apache-2.0
#include "core/allocator.hpp"

#include <algorithm>
#include <utility>

#include "base/log.hpp"
#include "core/device_allocator.hpp"
#include "core/size_policy.hpp"

namespace quarry {
namespace {

constexpr bool is_possible_alignment(Bytes alignment) {
  return is_power_of_two(alignment) && alignment <= 1_GiB;
}

}  // namespace

Status Allocator::check_request(Bytes bytes, Bytes alignment) {
  if (!is_possible_alignment(alignment)) {
    return Status(StatusCode::kInvalidArgument, "alignment is " + std::to_string(alignment) +
                                                    "; it must be a power of two, at most 1 GiB");
  }
  if (bytes < kRequestMax) return Status::ok();
  return Status(StatusCode::kOutOfMemory,
                "CUDA out of memory. Tried to allocate more than 1EB memory.");
}

Allocator::Allocator(Driver& driver, const Config& config)
    : router_(driver, routing_), config_(config) {}

Result<std::unique_ptr<Allocator>> Allocator::create(Driver& driver, const Config& config) {
  get_owner_order();  // now, while no thread waits for a device
  const auto count = driver.get_device_count();
  if (!count.is_ok()) {
    return Status(StatusCode::kDriverError,
                  "the driver failed to count devices: " + describe(count.code));
  }
  if (count.value == 0) return Status(StatusCode::kNotSupported, "the driver shows no device");
  const int shown = std::min(count.value, PointerMap::kDeviceMax + 1);
  std::unique_ptr<Allocator> allocator(new Allocator(driver, config));
  allocator->count_ = static_cast<unsigned>(shown);
  allocator->first_serial_ = make_device_serials(shown);
  const SharedParts shared{driver, allocator->pointer_map_, allocator->callbacks_,
                           allocator->free_gate_, allocator->first_serial_};
  for (DeviceId device = 0; device < shown; ++device) {
    const auto properties = driver.get_device_properties(device);
    if (!properties.is_ok()) {
      return Status(StatusCode::kDriverError, "the driver failed to describe device " +
                                                  std::to_string(device) + ": " +
                                                  describe(properties.code));
    }
    allocator->devices_.push_back(
        std::make_unique<DeviceAllocator>(shared, device, properties.value, config));
  }
  if (config.automatic_graph_pools) allocator->router_.set_automatic(AutomaticPools::kForEach);
  return allocator;
}

void Allocator::mark_forked() noexcept {
  routing_.set(RoutingReason::kForked);
  for (const auto& device : devices_)
    device->mark_forked();
}

Allocator::~Allocator() {
  if (routing_.has(RoutingReason::kForked)) return;
  for (const auto& device : devices_) {
    const std::size_t live = device->tear_down();
    if (live > 0) log_info("event=tear_down live_blocks=" + std::to_string(live));
  }
}

Status Allocator::check_alive() const {
  if (!routing_.has(RoutingReason::kForked)) [[likely]]
    return Status::ok();
  return Status(
      StatusCode::kForked,
      "this process was forked after the allocator was initialised; a forked child cannot "
      "use the device (start workers with spawn or exec)");
}

Result<DeviceAllocator*> Allocator::find_device(DeviceId device) const {
  if (Status alive = check_alive(); !alive.is_ok()) return alive;
  if (device >= 0 && device < device_count()) [[likely]] {
    return devices_[static_cast<std::size_t>(device)].get();
  }
  return Status(StatusCode::kInvalidArgument, "device is " + std::to_string(device) +
                                                  "; there are devices 0 to " +
                                                  std::to_string(device_count() - 1));
}

Address Allocator::take_from_lane(StreamRef stream, Bytes bytes) noexcept {
  if (!routing_.is_clear() || static_cast<unsigned>(stream.device) >= count_) return 0;
  DeviceAllocator& device = *devices_[static_cast<std::size_t>(stream.device)];
  const Block* const block = device.take_from_lane(to_canonical(stream.handle), bytes);
  return block == nullptr ? 0 : block->address;
}

Result<Address> Allocator::allocate_from_device(StreamRef stream, Bytes bytes, Bytes alignment) {
  auto device = find_device(stream.device);
  if (!device.is_ok()) return std::move(device).status();
  if (Status possible = check_request(bytes, alignment); !possible.is_ok()) return possible;
  if (bytes == 0) return Address{0};
  const StreamHandle handle = to_canonical(stream.handle);
  if (routing_.has(RoutingReason::kPools)) {
    return allocate_routed({stream.device, handle}, bytes, alignment);
  }
  return device.value()->allocate(handle, bytes, alignment, PoolId{});
}

Status Allocator::explain_pointer(Address address, PointerUse use, const char* call) const {
  std::string why = "no block of this allocator begins there";
  bool is_freed_block = false;
  DeviceAllocator* owner = devices_.front().get();
  for (const auto& device : devices_) {
    std::string found = device->describe_address(address, &is_freed_block);
    if (found.empty()) continue;
    owner = device.get();
    why = std::move(found);
    break;
  }
  const bool is_free = use == PointerUse::kFree;
  if (is_free) owner->count_invalid_free();
  return Status(
      is_free && is_freed_block ? StatusCode::kDoubleFree : StatusCode::kInvalidPointer,
      std::string(call) + ": invalid device pointer: " + format_address(address) + ": " + why);
}

Result<PointerMap::Found> Allocator::take_from_user(Address address, const char* call) {
  if (Status alive = check_alive(); !alive.is_ok()) return alive;
  if (address == 0) return PointerMap::Found{};
  const PointerMap::Found found = pointer_map_.find(address);
  if (found.block == nullptr || !found.block->is_held.exchange(false, std::memory_order_acq_rel)) {
    if (forget_stale(address).is_ok()) return PointerMap::Found{};
    return explain_pointer(address, PointerUse::kFree, call);
  }
  return found;
}

void Allocator::free_elsewhere(Block& block, DeviceId device) noexcept {
  devices_[static_cast<std::size_t>(device)]->free(block, std::nullopt);
}

// What is no live block of a running allocator.
Status Allocator::free_other(Address address) {
  auto held = take_from_user(address, "free");
  if (!held.is_ok()) return std::move(held).status();
  if (held.value().block != nullptr) free_held(*held.value().block, held.value().device);
  return Status::ok();
}

Status Allocator::free_sized(Address address, Bytes bytes) noexcept {
  auto held = take_from_user(address, "free_sized");
  if (!held.is_ok() || held.value().block == nullptr) return std::move(held).status();
  const Bytes requested = held.value().block->requested_bytes;
  free_held(*held.value().block, held.value().device);
  if (bytes == requested) return Status::ok();
  DeviceAllocator& device = *devices_[static_cast<std::size_t>(held.value().device)];
  return device.fail_size_mismatch(bytes, requested);
}

Status Allocator::free_on_stream(Address address, StreamHandle stream) noexcept {
  auto held = take_from_user(address, "free_on_stream");
  if (!held.is_ok() || held.value().block == nullptr) return std::move(held).status();
  devices_[static_cast<std::size_t>(held.value().device)]->free(*held.value().block, stream);
  return Status::ok();
}

Status Allocator::record_stream(Address address, StreamHandle stream) noexcept {
  if (Status alive = check_alive(); !alive.is_ok()) return alive;
  if (address == 0) return Status::ok();
  const PointerMap::Found found = pointer_map_.find(address);
  if (found.block == nullptr)
    return explain_pointer(address, PointerUse::kRecord, "record_stream");
  Status status = devices_[static_cast<std::size_t>(found.device)]->record_stream(address, stream);
  if (status.code() == StatusCode::kInvalidPointer) {
    return explain_pointer(address, PointerUse::kRecord, "record_stream");
  }
  return status;
}

Status Allocator::retire_stream(StreamRef stream) noexcept {
  auto device = find_device(stream.device);
  if (!device.is_ok()) return std::move(device).status();
  if (stream.handle == StreamHandle::kLegacy || stream.handle == StreamHandle::kLegacyExplicit) {
    return Status(StatusCode::kInvalidArgument,
                  "the legacy default stream is never destroyed, so it cannot be retired");
  }
  Status retired = device.value()->retire_stream(stream.handle);
  if (retired.is_ok()) router_.forget_stream(stream);
  return retired;
}

void Allocator::retire_thread_streams() noexcept {
  if (!check_alive().is_ok()) return;
  for (const auto& device : devices_)
    device->retire_thread_streams();
  for (DeviceId device = 0; device < device_count(); ++device)
    router_.forget_stream({device, StreamHandle::kPerThread});
}

std::size_t Allocator::end_thread_pools() {
  return check_alive().is_ok() ? router_.end_routes_of_thread() : 0;
}

Status Allocator::empty_cache(DeviceId device) {
  auto found = find_device(device);
  if (!found.is_ok()) return std::move(found).status();
  return found.value()->empty_cache();
}

void Allocator::configure(const Config& config) {
  {
    MutexLock lock(config_mutex_);
    config_ = config;
  }
  if (!check_alive().is_ok()) return;
  for (const auto& device : devices_)
    device->configure(config);
  if (config.automatic_graph_pools) {
    router_.set_automatic(AutomaticPools::kForEach);
    return;
  }
  // A graph goes on using what its capture was given: none of it may be the default pool's.
  router_.set_automatic(AutomaticPools::kThatThereAre);
  const bool is_any = std::ranges::any_of(
      devices_, [](const auto& device) { return device->has_captures_of_graph_pools(); });
  if (!is_any) router_.set_automatic(AutomaticPools::kNone);
}

Config Allocator::get_config() const {
  MutexLock lock(config_mutex_);
  return config_;
}

Status Allocator::set_memory_fraction(DeviceId device, double fraction) {
  auto found = find_device(device);
  if (!found.is_ok()) return std::move(found).status();
  if (!(fraction >= 0.0 && fraction <= 1.0)) {
    return Status(StatusCode::kInvalidArgument,
                  "invalid fraction: " + std::to_string(fraction) + ". Please set within [0, 1]");
  }
  found.value()->set_memory_fraction(fraction);
  return Status::ok();
}

Result<double> Allocator::get_memory_fraction(DeviceId device) const {
  auto found = find_device(device);
  if (!found.is_ok()) return std::move(found).status();
  return found.value()->get_memory_fraction();
}

Status Allocator::set_limit(DeviceId device, Bytes bytes) {
  auto found = find_device(device);
  if (!found.is_ok()) return std::move(found).status();
  found.value()->set_limit(bytes);
  return Status::ok();
}

Result<Bytes> Allocator::get_limit(DeviceId device) const {
  auto found = find_device(device);
  if (!found.is_ok()) return std::move(found).status();
  return found.value()->get_limit();
}

Result<DeviceStats> Allocator::get_stats(DeviceId device) {
  auto found = find_device(device);
  if (!found.is_ok()) return std::move(found).status();
  return found.value()->get_stats();
}

Result<std::vector<StreamCache>> Allocator::get_stream_caches(DeviceId device) {
  auto found = find_device(device);
  if (!found.is_ok()) return std::move(found).status();
  return found.value()->get_stream_caches();
}

Status Allocator::reset_peak_stats(DeviceId device) {
  auto found = find_device(device);
  if (!found.is_ok()) return std::move(found).status();
  found.value()->reset_peak_stats();
  return Status::ok();
}

Status Allocator::reset_accumulated_stats(DeviceId device) {
  auto found = find_device(device);
  if (!found.is_ok()) return std::move(found).status();
  found.value()->reset_accumulated_stats();
  return Status::ok();
}

Result<BlockInfo> Allocator::find_block(Address address) const {
  if (Status alive = check_alive(); !alive.is_ok()) return alive;
  for (const auto& device : devices_) {
    if (auto info = device->find_block(address)) return *info;
  }
  return Status(StatusCode::kInvalidPointer,
                format_address(address) + " is not inside a live block of this allocator");
}

void Allocator::validate() {
  for (const auto& device : devices_)
    device->validate();
}

void Allocator::validate_segment(Address address) {
  for (const auto& device : devices_)
    device->validate_segment(address);
}

}  // namespace quarry
