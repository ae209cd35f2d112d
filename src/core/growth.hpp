// SPDX-License-Identifier: Apache-2.0
// One growth of expandable memory: which addresses a request gets, which extents arrive there and
// from where, and the driver calls that do it. A plan; expandable_growth.cpp makes it, and keeps
// the books before and after.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "core/block.hpp"
#include "core/extent_range.hpp"
#include "core/segment.hpp"
#include "driver/driver.hpp"

namespace quarry {

// An extent that leaves its addresses: it moves, or goes back to the driver.
struct Departure {
  Block* in = nullptr;  // the free block that it lies in, or where to look for that
  Address address = 0;
  Extent extent;
  bool has_passed = false;  // nobody uses it: it may be unmapped at once
  bool is_released = false;
  Block* block = nullptr;  // while under way: the first of those that tile it, all retiring
  bool is_unmapped = false;

  Address end() const noexcept { return address + extent.size; }
  // Calls visit(Block&) for each block of one that is under way. It may join the block with what
  // is before it.
  template <class Visit>
  void for_each_block(Visit visit) const {
    for (Block* at = block; at != nullptr;) {
      Block* const next = at->end() < end() ? at->next : nullptr;
      visit(*at);
      at = next;
    }
  }
};

// An extent that comes to new addresses: a new one, or that of a departure.
struct Arrival {
  Address address = 0;
  Extent extent;
  std::optional<std::size_t> departure;
  bool is_stuck = false;  // of a growth that failed: the driver refused to unmap it again
};

// Addresses that have memory everywhere, in whole extents.
struct MappedRun {
  Address address = 0;
  Bytes size = 0;
};

struct Piece {
  Block* block = nullptr;  // retiring
  bool was_hole = false;
};

struct Growth {
  Segment* segment = nullptr;
  Block* first = nullptr;  // that `begin` lies in
  Address begin = 0;       // what the request needs, and more where an extent is larger
  Address end = 0;
  Bytes missing = 0;  // of it, in whole pages
  std::vector<Arrival> arrivals;
  std::vector<Departure> departures;
  std::vector<Piece> pieces;  // tile [begin, end), once it is claimed
  // It failed because the driver makes no extents of that kind, though perhaps of a weaker one.
  bool is_kind_refused = false;

  Bytes get_created_bytes() const;
};

// Extents that are nobody's any more and that the driver refused to release: to be tried again.
using UnreleasedExtents = std::vector<ExtentHandle>;

// What memory that is mapped must be.
struct ExtentTerms {
  DeviceId device = 0;           // where it is
  ExtentKind kind;               // of new extents
  std::vector<DeviceId> access;  // who may use it: the device itself, and peers
};

// Makes and maps what arrives; or leaves everything as it was, but for what is stuck, and says
// why. Waits for nobody.
DriverCode map_arrivals(Driver& driver, const ExtentTerms& terms, Growth& growth,
                        UnreleasedExtents& unreleased);

// Unmaps and releases what is to be released and has passed: before anything is made in its place.
DriverCode release_departures(Driver& driver, std::vector<Departure>& departures,
                              UnreleasedExtents& unreleased);

// Unmaps the departures that have passed, and releases those that are to be. One that the driver
// refuses to unmap stays as it is; the first refusal's code.
DriverCode unmap_departures(Driver& driver, std::vector<Departure>& departures,
                            UnreleasedExtents& unreleased);

// Waits until the device has done all that was submitted to its context before, as a driver's free
// does; loses no capture. Freeing needs something to free, and when it is needed most the device
// may have no room for that: so it is held ready, 512 bytes.
class DeviceDrain {
 public:
  DeviceDrain(Driver& driver, DeviceId device) noexcept : driver_(driver), device_(device) {}

  // Where it cannot be had, `wait` tries again.
  void make_ready() noexcept;
  DriverCode wait() noexcept;
  // The last call: gives back what is held.
  void release() noexcept;

 private:
  Driver& driver_;
  const DeviceId device_;
  Address held_ = 0;
};

}  // namespace quarry
