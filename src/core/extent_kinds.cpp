// SPDX-License-Identifier: Apache-2.0
// The kind of a device's extents, and ranges of a kind that is not asked for any more: *outdated*
// ones. Their free blocks are in an index of their own, where no request looks; what is freed
// there neither parks nor passes a lane; they get no extents and give none to others; and what is
// idle in them goes back at the next growth.
#include <algorithm>
#include <utility>

#include "core/expandable_memory.hpp"
#include "core/extent_kind.hpp"

namespace quarry {

// After a change of settings, or a refusal. Makes no driver call.
void ExpandableMemory::update_kind() {
  assume_locked();
  const ExtentKind wanted = get_wanted_kind(device_.config_);
  if (wanted != wanted_kind_) refused_kinds_.clear();  // another try, as the user may expect
  wanted_kind_ = wanted;
  const ExtentKind kind = choose_kind(wanted, device_.properties_, refused_kinds_);
  if (kind == kind_) return;
  kind_ = kind;
  {
    // Nobody parks or takes what is parked while blocks lose their homes.
    const OthersKeptOut others(device_.magazines_, device_.serial_);
    device_.for_each_pool([this](MemPool& pool) {
      assume_locked();
      for (Segment* segment = pool.first_segment; segment != nullptr; segment = segment->next) {
        if (!segment->is_expandable()) continue;
        ExtentRange& range = *segment->range;
        // A growth that is under way may be about to add extents of the kind before.
        if (range.extents.empty() && !is_moving_) range.kind = kind_;
        set_outdated(*segment, range.kind != kind_);
      }
    });
  }
  device_.empty_magazines();
}

void ExpandableMemory::set_outdated(Segment& segment, bool is_outdated) {
  if (segment.is_outdated == is_outdated) return;
  const auto for_each_free = [&segment](auto visit) {
    for (Block* block = segment.first; block != nullptr; block = block->next)
      if (block->is_free()) visit(*block);
  };
  for_each_free([&segment](Block& block) { segment.get_free_blocks().remove(block); });
  segment.is_outdated = is_outdated;
  for_each_free([&segment](Block& block) { segment.get_free_blocks().insert(block); });
  outdated_ += is_outdated ? 1 : -1;
  segment.lane = kNoLane;
  if (is_outdated) {
    for (Block* block = segment.first; block != nullptr; block = block->next)
      if (block->state() == BlockState::kAllocated) block->home = 0;
  } else if (!segment.is_private) {
    segment.lane = find_common_lane(segment);
  }
}

// Of all blocks that have memory.
int ExpandableMemory::find_common_lane(const Segment& segment) {
  int lane = kNoLane;
  bool is_first = true;
  for (const Block* block = segment.first; block != nullptr; block = block->next) {
    if (block->state() == BlockState::kUnmapped) continue;
    const int own = block->owner->lane.load(std::memory_order_relaxed);
    if (!std::exchange(is_first, false) && own != lane) return kNoLane;
    lane = own;
  }
  return lane;
}

// The driver makes no extents of this kind: from now on the next weaker one.
void ExpandableMemory::refuse_kind(const ExtentKind& kind) {
  refused_kinds_.push_back(kind);
  update_kind();
}

void ExpandableMemory::note_kind() {
  device_.note("event=extent_kind_refused device=" + std::to_string(device_.device_) +
               " wanted=\"" + describe(wanted_kind_) + "\" made=\"" + describe(kind_) + "\"");
}

// What is idle in outdated ranges and has passed goes back, and ranges that are empty go; but for
// pools that keep their memory until they are trimmed.
void ExpandableMemory::release_outdated() {
  std::vector<Segment*> ranges;
  std::vector<Departure> departures;
  device_.for_each_pool([&](MemPool& pool) {
    assume_locked();
    if (pool.options.no_recycle && pool.use_count > 0) return;
    for (Segment* segment = pool.first_segment; segment != nullptr; segment = segment->next) {
      if (!segment->is_outdated) continue;
      ranges.push_back(segment);
      list_idle(*segment, departures);
    }
  });
  // An extent goes back when it is unmapped everywhere: first what was left before, and where that
  // is still in use not at all.
  std::vector<Departure> left = take_left_addresses(leaving_.size());
  std::erase_if(departures, [this](const Departure& departure) {
    assume_locked();
    return std::ranges::any_of(leaving_, [&departure](const Departure& earlier) {
      return earlier.extent.handle == departure.extent.handle;
    });
  });
  claim_departures(departures);
  if (!departures.empty() || !left.empty()) {
    is_moving_ = true;
    static_cast<void>(device_.run_unlocked([&] {
      CaptureModeBracket bracket(device_.driver_);
      static_cast<void>(unmap_departures(device_.driver_, left, unreleased_));
      return unmap_departures(device_.driver_, departures, unreleased_);
    }));
    is_moving_ = false;
    device_.changed_.notify_all();
  }
  return_left_addresses(left);
  for (Departure& departure : departures)
    return_or_leave(departure);
  for (Segment* segment : ranges) {
    if (ranges_.contains(segment)) drop_range_if_unused(*segment);
  }
}

}  // namespace quarry
