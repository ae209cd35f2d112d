// SPDX-License-Identifier: Apache-2.0
#include "sim/memory_map.hpp"

#include <algorithm>
#include <iterator>

namespace quarry::sim {
namespace {

// All addresses are below 2^47, as those of a real device in a Linux process.
constexpr Address kFirstAddress = 64_GiB;
constexpr Address kEndOfAddresses = Address{1} << 47;
constexpr Bytes kPlainBytesOfAllDevices = 2304_GiB;

Bytes calculate_plain_region(const SimOptions& options) {
  const Bytes share = kPlainBytesOfAllDevices / static_cast<Bytes>(options.device_count);
  return round_up(std::max(share, 2 * options.physical_bytes), kDriverPageBytes);
}

Address calculate_first_reservation(const SimOptions& options) {
  return kFirstAddress +
         calculate_plain_region(options) * static_cast<Bytes>(options.device_count);
}

Bytes calculate_reservable(const SimOptions& options) {
  return std::min(options.address_space_bytes,
                  kEndOfAddresses - calculate_first_reservation(options));
}

}  // namespace

MemoryMap::MemoryMap(const SimOptions& options)
    : plain_region_bytes_(calculate_plain_region(options)),
      virtual_(options, calculate_first_reservation(options), calculate_reservable(options),
               budgets_) {
  budgets_.assign(options.device_count, {options.physical_bytes, options.external_bytes});
  for (DeviceId device = 0; device < options.device_count; ++device) {
    reaches_.push_back(std::uint64_t{1} << device);
    plain_.emplace_back(kFirstAddress + plain_region_bytes_ * static_cast<Bytes>(device),
                        plain_region_bytes_, options.reuse_addresses, budgets_[device]);
  }
}

bool MemoryMap::translate(MemoryRange range, std::vector<PhysicalPiece>& pieces) const {
  pieces.clear();
  if (range.address < kFirstAddress) return false;
  const Bytes device = (range.address - kFirstAddress) / plain_region_bytes_;
  if (device >= plain_.size()) return translate_mapped(range, pieces);
  PhysicalPiece piece;
  if (!translate_plain(static_cast<DeviceId>(device), range, piece)) return false;
  pieces.push_back(piece);
  return true;
}

Address MemoryMap::find_mapping(Address address) const {
  const auto& mappings = virtual_.mappings();
  const auto after = mappings.upper_bound(address);
  if (after == mappings.begin()) return 0;
  const auto& [begin, mapping] = *std::prev(after);
  return address - begin < mapping.bytes ? begin : 0;
}

bool MemoryMap::translate_plain(DeviceId device, MemoryRange range, PhysicalPiece& piece) const {
  const auto& allocations = plain_[device].allocations();
  const auto after = allocations.upper_bound(range.address);
  if (after == allocations.begin()) return false;
  const auto& [begin, allocation] = *std::prev(after);
  const Bytes offset = range.address - begin;
  if (offset >= allocation.bytes || range.bytes > allocation.bytes - offset) return false;
  piece = {allocation.physical, offset, range.bytes, range.address, 0, device, reaches_[device]};
  return true;
}

bool MemoryMap::translate_mapped(MemoryRange range, std::vector<PhysicalPiece>& pieces) const {
  const auto& mappings = virtual_.mappings();
  auto entry = mappings.upper_bound(range.address);
  if (entry == mappings.begin()) return false;
  --entry;
  Bytes left = range.bytes;
  for (Address at = range.address; left > 0; ++entry) {
    if (entry == mappings.end() || entry->first > at) return false;
    const auto& [begin, mapping] = *entry;
    if (at - begin >= mapping.bytes) return false;
    const Extent& extent = virtual_.extent(mapping);
    const Bytes bytes = std::min(left, mapping.bytes - (at - begin));
    pieces.push_back(
        {extent.physical, at - begin, bytes, at, begin, extent.device, mapping.access_mask});
    at += bytes;
    left -= bytes;
  }
  return true;
}

}  // namespace quarry::sim
