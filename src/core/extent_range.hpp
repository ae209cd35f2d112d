// SPDX-License-Identifier: Apache-2.0
// What an expandable segment has besides its blocks: which extents are mapped where, and its
// holes. A value without rules; expandable_memory.hpp has those. Guarded by the device's mutex.
//
// Every byte of a block that is free, allocated or pending lies on an extent in `extents`; no byte
// of a hole is mapped. What is retiring is in the driver's hands: it may be mapped or not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "core/block.hpp"
#include "core/extent_policy.hpp"
#include "driver/driver_types.hpp"

namespace quarry {

// Physical memory, mapped whole. Between a move and the passing of its fence also at the addresses
// that it came from.
struct Extent {
  ExtentHandle handle = ExtentHandle::kNull;
  Bytes size = 0;
  std::uint32_t pins = 0;  // pinned ranges that lie on it, in part at least: above 0 it stays
};

struct ExtentRange {
  ExtentKind kind;                    // of all of them
  std::map<Address, Extent> extents;  // by the address where blocks use them
  std::map<Address, Block*> holes;    // by address; neighbours are one
  // Blocks whose addresses an extent has left: unmapped when their fence has passed, or by a
  // growth or release that is under way.
  std::size_t leaving = 0;

  // Calls visit(Address, Extent&) for those that [begin, end) touches, by address.
  template <class Visit>
  void for_each_extent(Address begin, Address end, Visit visit) {
    auto at = extents.upper_bound(begin);
    if (at != extents.begin()) --at;
    for (; at != extents.end() && at->first < end; ++at) {
      if (at->first + at->second.size > begin) visit(at->first, at->second);
    }
  }
};

}  // namespace quarry
