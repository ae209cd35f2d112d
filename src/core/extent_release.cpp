// SPDX-License-Identifier: Apache-2.0
// How extents leave expandable segments, and when the addresses that they have left are holes.
#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "core/expandable_memory.hpp"

namespace quarry {

void ExpandableMemory::update_has_passed(Departure& departure) {
  if (departure.has_passed) return;
  departure.has_passed = true;
  departure.for_each_block([&departure](const Block& block) {
    departure.has_passed = departure.has_passed && has_passed(block);
  });
}

// The extent of a claimed departure has gone elsewhere.
void ExpandableMemory::start_leaving(Departure& departure) {
  Segment& from = *departure.block->segment;
  from.range->extents.erase(departure.address);
  count_reserved(from, -static_cast<std::int64_t>(departure.extent.size));
  ++from.range->leaving;
  if (departure.is_unmapped) {
    finish_leaving(departure);
  } else {
    leaving_.push_back(departure);
  }
}

// Of a claimed departure that was to be released: it has gone, or is free again.
void ExpandableMemory::return_or_leave(Departure& departure) {
  if (departure.is_unmapped) {
    count_release(*departure.block->segment);
    start_leaving(departure);
    return;
  }
  departure.for_each_block([this](Block& block) {
    assume_locked();
    return_claimed(block);
  });
}

// The addresses are unmapped.
void ExpandableMemory::finish_leaving(Departure& departure) {
  Segment& segment = *departure.block->segment;
  --segment.range->leaving;
  departure.for_each_block([this](Block& block) {
    assume_locked();
    make_hole(block);
  });
  drop_range_if_unused(segment);
}

// At most `most` left addresses that nobody uses any more: to be unmapped, which the caller does.
std::vector<Departure> ExpandableMemory::take_left_addresses(std::size_t most) {
  std::vector<Departure> taken;
  std::erase_if(leaving_, [&taken, most](Departure& departure) {
    update_has_passed(departure);
    if (!departure.has_passed || taken.size() == most) return false;
    taken.push_back(departure);
    return true;
  });
  return taken;
}

void ExpandableMemory::return_left_addresses(std::vector<Departure>& left) {
  for (Departure& departure : left) {
    if (departure.is_unmapped) {
      finish_leaving(departure);
    } else {
      leaving_.push_back(departure);  // the driver refused: another time
    }
  }
}

// Appends the extents of the segment that lie in free blocks which nobody may need: what is pinned
// stays, and what a capture was given as long as its pool is held.
void ExpandableMemory::list_idle(const Segment& segment, std::vector<Departure>& idle) {
  if (segment.holds > 0) return;
  const bool is_held = !segment.pool->is_default() && segment.pool->use_count > 0;
  const auto is_idle = [is_held](const Block& block) {
    return block.is_free() && !(is_held && block.owner->is_captured);
  };
  Block* block = segment.first;
  for (const auto& [address, extent] : segment.range->extents) {
    while (block->end() <= address)
      block = block->next;
    const Block* last = block;
    while (is_idle(*last) && last->end() < address + extent.size)
      last = last->next;
    if (!is_idle(*last) || extent.pins > 0) continue;
    Departure& departure = idle.emplace_back();
    departure.in = block;
    departure.address = address;
    departure.extent = extent;
    departure.is_released = true;
  }
}

DriverCode ExpandableMemory::release_idle(const std::vector<Segment*>& segments) {
  assume_locked();
  wait_until_nobody_moves();
  std::vector<Departure> departures;
  for (const Segment* segment : segments) {
    if (ranges_.contains(segment)) list_idle(*segment, departures);
  }
  claim_departures(departures);
  // What was left before comes first: an extent is free only when nothing is mapped to it.
  std::vector<Departure> left(leaving_.begin(), leaving_.end());
  leaving_.clear();
  for (Departure& departure : left)
    update_has_passed(departure);
  DriverCode failure = DriverCode::kSuccess;
  if (!departures.empty() || !left.empty() || !unreleased_.empty()) {
    is_moving_ = true;
    failure = device_.run_unlocked([&] { return unmap_after_drain(left, departures); });
    is_moving_ = false;
  }
  return_left_addresses(left);
  for (Departure& departure : departures)
    return_or_leave(departure);
  for (Segment* segment : segments) {
    if (ranges_.contains(segment)) drop_range_if_unused(*segment);
  }
  return failure;
}

// With the mutex released. First what needs no wait.
DriverCode ExpandableMemory::unmap_after_drain(std::vector<Departure>& left,
                                               std::vector<Departure>& departures) {
  Driver& driver = device_.driver_;
  CaptureModeBracket bracket(driver);
  std::erase_if(unreleased_, [&driver](ExtentHandle extent) {
    return driver.release_extent(extent) == DriverCode::kSuccess;
  });
  DriverCode failure = unmap_departures(driver, left, unreleased_);
  const auto note = [&failure](DriverCode code) {
    if (failure == DriverCode::kSuccess) failure = code;
    return code == DriverCode::kSuccess;
  };
  note(unmap_departures(driver, departures, unreleased_));
  const auto waits = [](const Departure& departure) { return !departure.has_passed; };
  if (std::ranges::none_of(left, waits) && std::ranges::none_of(departures, waits)) return failure;
  const DriverCode drained = drain_.wait();
  if (drained == DriverCode::kOutOfMemory) return failure;  // what waits stays
  if (!note(drained)) return failure;
  for (std::vector<Departure>* some : {&left, &departures}) {
    for (Departure& departure : *some)
      departure.has_passed = true;
    note(unmap_departures(driver, *some, unreleased_));
  }
  drain_.make_ready();
  return failure;
}

void ExpandableMemory::count_release(const Segment& segment) {
  ++device_.stats_.num_device_free;
  ++device_.stats_.extents_released;
  if (segment.is_private) ++segment.pool->stats.num_device_free;
}

void ExpandableMemory::drop_unused_ranges(MemPool& pool) {
  assume_locked();
  std::vector<Segment*> segments;
  for (Segment* segment = pool.first_segment; segment != nullptr; segment = segment->next) {
    if (segment->is_expandable()) segments.push_back(segment);
  }
  for (Segment* segment : segments)
    drop_range_if_unused(*segment);
}

// Nothing that is mapped is in use afterwards, as after a driver's free.
void ExpandableMemory::drain_before_tear_down() {
  assume_locked();
  if (!ranges_.empty()) static_cast<void>(drain_.wait());
}

void ExpandableMemory::tear_down(Segment& segment) {
  assume_locked();
  Driver& driver = device_.driver_;
  for (const auto& [address, extent] : segment.range->extents) {
    static_cast<void>(driver.unmap(address, extent.size));
    static_cast<void>(driver.release_extent(extent.handle));
  }
  std::erase_if(leaving_, [&](const Departure& departure) {
    if (departure.block->segment != &segment) return false;
    static_cast<void>(driver.unmap(departure.address, departure.extent.size));
    return true;
  });
  static_cast<void>(driver.free_addresses(segment.address, segment.size));
  count_reserved(segment, -static_cast<std::int64_t>(segment.reserved_bytes));
  // The segment itself goes next, and is an expandable one until then.
}

void ExpandableMemory::finish_tear_down() {
  assume_locked();
  for (const ExtentHandle extent : std::exchange(unreleased_, {}))
    static_cast<void>(device_.driver_.release_extent(extent));
  drain_.release();
}

}  // namespace quarry
