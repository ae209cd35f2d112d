// SPDX-License-Identifier: Apache-2.0
// Memory that others use by its address: peers that reach it, and pins. What is pinned keeps its
// physical memory at its addresses, whether its block is freed or not: a plain segment is not
// vacant, an extent neither moves nor goes back. Blocks come and go there as everywhere.
#include <algorithm>

#include "core/device_allocator.hpp"
#include "core/expandable_memory.hpp"
#include "core/thread_state.hpp"

namespace quarry {

Status DeviceAllocator::let_in_peer(DeviceId peer) noexcept {
  const std::string what = "access of device " + std::to_string(peer) + " to memory of device " +
                           std::to_string(device_);
  if (is_driver_callback_thread()) {
    return Status(StatusCode::kBusy, what + " cannot be enabled from a driver callback");
  }
  Section section(*this);
  const DriverCode code = expandable_->let_in(peer);
  if (code == DriverCode::kSuccess) return Status::ok();
  return Status(StatusCode::kDriverError,
                "the driver failed to enable " + what + ": " + describe(code));
}

Status DeviceAllocator::pin(Address address, Bytes bytes) noexcept {
  Section section(*this);
  const Block* const block = find_held(address);
  if (block == nullptr || bytes > block->end() - address) {
    return Status(StatusCode::kInvalidPointer, "the range is not inside one block that is held");
  }
  const PinnedRange range{address, bytes};
  if (pins_.add(range)) change_pins(range, 1);
  return Status::ok();
}

Status DeviceAllocator::unpin(Address address, Bytes bytes) noexcept {
  Section section(*this);
  const PinnedRange range{address, bytes};
  const Pins::Removed removed = pins_.remove(range);
  if (removed == Pins::Removed::kNone) {
    return Status(StatusCode::kInvalidArgument, "this range is not pinned");
  }
  if (removed == Pins::Removed::kLast) {
    change_pins(range, -1);
    note_if_finished(*find_segment(address));
    if (has_finished_backends_ && !is_driver_callback_thread()) return_finished();
  }
  return Status::ok();
}

// A range has become pinned (1), or is so no longer (-1). Its segment cannot have gone.
void DeviceAllocator::change_pins(const PinnedRange& range, int change) {
  const auto count = [&](std::uint32_t& pins, Bytes size) QUARRY_REQUIRES(mutex_) {
    const bool was_pinned = pins > 0;
    pins = static_cast<std::uint32_t>(static_cast<int>(pins) + change);
    if ((pins > 0) != was_pinned) stats_.pinned_bytes += change * static_cast<std::int64_t>(size);
  };
  Segment& segment = *find_segment(range.address);
  if (!segment.is_expandable()) return count(segment.pins, segment.size);
  segment.range->for_each_extent(range.address, range.end(), [&](Address, Extent& extent) {
    count(extent.pins, extent.size);
  });
}

// For validate(): everything that is pinned, and nothing else, is counted so.
void DeviceAllocator::validate_pins() {
  std::int64_t pinned_bytes = 0;
  const auto check = [&pinned_bytes](std::uint32_t pins, std::uint32_t counted, Bytes size) {
    QUARRY_CHECK_EQ(pins, counted);
    pinned_bytes += pins > 0 ? static_cast<std::int64_t>(size) : 0;
  };
  const auto count_ranges = [this](Address begin, Address end) QUARRY_REQUIRES(mutex_) {
    std::uint32_t count = 0;
    pins_.for_each([&](const PinnedRange& range) {
      count += range.address < end && begin < range.end() ? 1 : 0;
    });
    return count;
  };
  for_each_pool([&](const MemPool& pool) QUARRY_REQUIRES(mutex_) {
    for (const Segment* at = pool.first_segment; at != nullptr; at = at->next) {
      if (!at->is_expandable()) {
        check(at->pins, at->is_detached ? 0 : count_ranges(at->address, at->address + at->size),
              at->size);
        continue;
      }
      QUARRY_CHECK_EQ(at->pins, 0u);
      for (const auto& [address, extent] : at->range->extents)
        check(extent.pins, count_ranges(address, address + extent.size), extent.size);
    }
  });
  QUARRY_CHECK_EQ(stats_.pinned_bytes, pinned_bytes);
  pins_.for_each([this](const PinnedRange& range) QUARRY_REQUIRES(mutex_) {
    const Segment* const segment = find_segment(range.address);
    QUARRY_CHECK(segment != nullptr);
    QUARRY_CHECK_GE(segment->address + segment->size, range.end());
    if (!segment->is_expandable()) return;
    Bytes mapped = 0;
    segment->range->for_each_extent(
        range.address, range.end(), [&](Address address, const Extent& extent) {
          mapped +=
              std::min(range.end(), address + extent.size) - std::max(range.address, address);
        });
    QUARRY_CHECK_EQ(mapped, range.bytes);
  });
}

}  // namespace quarry
