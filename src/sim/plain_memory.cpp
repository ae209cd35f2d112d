// SPDX-License-Identifier: Apache-2.0
#include "sim/plain_memory.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace quarry::sim {

DriverResult<Address> PlainMemory::allocate(Bytes bytes, PhysicalId physical) {
  if (bytes == 0) return DriverCode::kInvalidValue;
  if (bytes > budget_.limit_bytes()) return DriverCode::kOutOfMemory;  // and rounding cannot wrap
  const Bytes rounded = round_up(bytes, kPlainAlignment);
  if (rounded < kDriverPageBytes) return allocate_small(rounded, physical);
  const auto address = take_pages(round_up(rounded, kDriverPageBytes));
  if (!address) return DriverCode::kOutOfMemory;
  allocations_.emplace_hint(allocations_.end(), *address, PlainAllocation{rounded, 0, physical});
  return *address;
}

std::optional<PlainAllocation> PlainMemory::free(Address address) {
  const auto found = allocations_.find(address);
  if (found == allocations_.end()) return std::nullopt;
  const PlainAllocation allocation = found->second;
  allocations_.erase(found);
  if (allocation.small_page != 0) {
    free_small(address, allocation);
  } else {
    give_back_pages(address, round_up(allocation.bytes, kDriverPageBytes));
  }
  return allocation;
}

bool PlainMemory::fits_open_page(Bytes bytes) const noexcept {
  const auto page = small_pages_.find(open_page_);
  return page != small_pages_.end() && bytes <= kDriverPageBytes - page->second.bump_bytes;
}

std::optional<Address> PlainMemory::take_pages(Bytes bytes) {
  if (!budget_.try_take(bytes)) return std::nullopt;
  const auto address = space_.take(bytes, kDriverPageBytes);
  if (!address) budget_.give_back(bytes);
  return address;
}

void PlainMemory::give_back_pages(Address address, Bytes bytes) {
  space_.give_back(address, bytes);
  budget_.give_back(bytes);
}

DriverResult<Address> PlainMemory::allocate_small(Bytes bytes, PhysicalId physical) {
  if (reuse_) {
    for (auto& [address, page] : small_pages_) {
      const Address placed = place_in(address, page, bytes, physical);
      if (placed != 0) return placed;
    }
  } else if (const auto open = small_pages_.find(open_page_); open != small_pages_.end()) {
    const Address placed = place_in(open->first, open->second, bytes, physical);
    if (placed != 0) return placed;
  }
  const auto fresh = take_pages(kDriverPageBytes);
  if (!fresh) return DriverCode::kOutOfMemory;
  open_page_ = *fresh;
  const auto page = small_pages_.emplace(
      *fresh, SmallPage{AddressSpace(*fresh, kDriverPageBytes, reuse_), 0, 0});
  return place_in(*fresh, page.first->second, bytes, physical);
}

Address PlainMemory::place_in(Address page_address, SmallPage& page, Bytes bytes,
                              PhysicalId physical) {
  // Without address reuse a page is filled once, so that no address comes back within it.
  if (!reuse_ && bytes > kDriverPageBytes - page.bump_bytes) return 0;
  const auto address = page.space.take(bytes, kPlainAlignment);
  if (!address) return 0;
  page.bump_bytes = std::max(page.bump_bytes, *address + bytes - page_address);
  ++page.live;
  allocations_.emplace(*address, PlainAllocation{bytes, page_address, physical});
  return *address;
}

void PlainMemory::free_small(Address address, const PlainAllocation& allocation) {
  const auto page = small_pages_.find(allocation.small_page);
  QUARRY_ASSERT(page != small_pages_.end());
  page->second.space.give_back(address, allocation.bytes);
  if (--page->second.live > 0) return;
  give_back_pages(page->first, kDriverPageBytes);
  if (open_page_ == page->first) open_page_ = 0;
  small_pages_.erase(page);
}

}  // namespace quarry::sim
