// SPDX-License-Identifier: Apache-2.0
#include "sim/address_space.hpp"

#include <iterator>

namespace quarry::sim {

std::optional<Address> AddressSpace::take(Bytes bytes, Bytes alignment) {
  std::optional<Address> address;
  if (lowest_first_) address = take_from_freed(bytes, alignment);
  if (!address) address = take_from_tail(bytes, alignment);
  if (address || lowest_first_) return address;
  // The space is used up once: what was freed may be used again, the tail's rest included.
  address = take_from_freed(bytes, alignment);
  if (address) return address;
  merge_tail();
  return take_from_tail(bytes, alignment);
}

void AddressSpace::give_back(Address address, Bytes bytes) {
  auto next = freed_.lower_bound(address);
  if (next != freed_.begin()) {
    auto before = std::prev(next);
    if (before->first + before->second == address) {
      address = before->first;
      bytes += before->second;
    }
  }
  if (next != freed_.end() && address + bytes >= next->first) {
    bytes = next->first + next->second - address;
    freed_.erase(next);
  }
  freed_[address] = bytes;
  if (lowest_first_) merge_tail();
}

std::optional<Address> AddressSpace::take_from_tail(Bytes bytes, Bytes alignment) {
  const Address address = round_up(tail_, alignment);
  if (address < tail_ || address > end_ || end_ - address < bytes) return std::nullopt;
  const Address gap = tail_;
  tail_ = address + bytes;
  if (address > gap) give_back(gap, address - gap);
  return address;
}

std::optional<Address> AddressSpace::take_from_freed(Bytes bytes, Bytes alignment) {
  for (auto range = freed_.begin(); range != freed_.end(); ++range) {
    const auto [begin, length] = *range;
    const Address address = round_up(begin, alignment);
    const Bytes gap = address - begin;
    if (gap > length || length - gap < bytes) continue;
    freed_.erase(range);
    if (gap > 0) freed_[begin] = gap;
    if (length - gap > bytes) freed_[address + bytes] = length - gap - bytes;
    return address;
  }
  return std::nullopt;
}

void AddressSpace::merge_tail() {
  if (freed_.empty()) return;
  const auto last = std::prev(freed_.end());
  if (last->first + last->second != tail_) return;
  tail_ = last->first;
  freed_.erase(last);
}

}  // namespace quarry::sim
