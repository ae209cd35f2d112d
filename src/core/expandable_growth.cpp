// SPDX-License-Identifier: Apache-2.0
// Where a request that missed gets its memory in expandable segments, from the cheapest to the
// dearest: pieces side by side; new extents within the budget, or idle ones that move; what other
// streams still use, after a wait on the device; new extents beyond the budget. Each step is a
// plan (growth.hpp) that is made only if it suffices.
#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "core/expandable_memory.hpp"

namespace quarry {
namespace {

// Left addresses that one growth unmaps besides, so that they do not pile up.
constexpr std::size_t kUnmapsAtATime = 16;
// Up to this much reserved, streams overlap rather than save memory (case C95).
constexpr Bytes kNobodyWaits = 32_MiB;

// So that what happens does not depend on where records lie.
struct BySerial {
  bool operator()(const Stream* one, const Stream* other) const {
    return one->serial < other->serial;
  }
};

}  // namespace

Result<Block*> ExpandableMemory::grow(const Request& request) {
  assume_locked();
  // Addresses for it would never be used, nor be had back.
  if (request.block_bytes > device_.properties_.total_bytes) return nullptr;
  wait_until_nobody_moves();
  cover_free_memory();
  device_.settle_everything();
  if (Block* block = device_.find_fitting(request)) return block;
  if (outdated_ > 0) {
    release_outdated();
    wait_until_nobody_moves();
    if (Block* block = device_.find_fitting(request)) return block;
  }
  if (!std::exchange(has_grown_, true)) moving_time_.begin(device_.driver_.read_clock_ns());
  device_.take_all_counts();
  Result<Block*> found = grow_in_ranges(request);
  if (found.code() == StatusCode::kNotSupported) {
    do {
      found = grow_in_ranges(request);
    } while (found.code() == StatusCode::kNotSupported);
    note_kind();
  }
  // What is refused raises no budget.
  if (found.is_ok() && found.value() != nullptr) peak_bytes_ = calculate_peak(request);
  return found;
}

// kNotSupported: the driver refused the kind of extents; the next weaker one is to be tried.
Result<Block*> ExpandableMemory::grow_in_ranges(const Request& request) {
  if (!find_place(request, {}).has_value() && !make_range(request, request.needed_bytes)) {
    note_no_addresses();
    return device_.grow_plain(request);
  }
  Result<Block*> found = grow_within_budget(request, Means::kNew);
  if (!found.is_ok() || found.value() != nullptr) return found;
  found = grow_after_waiting(request);
  if (!found.is_ok() || found.value() != nullptr) return found;
  found = grow_within_budget(request, Means::kNewAndMoved);
  if (!found.is_ok() || found.value() != nullptr) return found;
  found = grow_beyond_budget(request, Budget::kExceeded);
  if (!found.is_ok() || found.value() != nullptr) return found;
  return grow_beyond_budget(request, Budget::kExactly);
}

// --- the steps ---

Result<Block*> ExpandableMemory::grow_within_budget(const Request& request, Means means) {
  std::optional<Growth> growth = find_place(request, {});
  if (!growth.has_value() || !fill(*growth, request, {}, Budget::kKept)) return nullptr;
  if (means == Means::kNew && !growth->departures.empty()) return nullptr;
  return carry_out(*growth, request);
}

// Beyond the budget the stream waits, on the device, for what others still use. That is tried
// before moves of its own memory, which cost the host a hundred times as much.
Result<Block*> ExpandableMemory::grow_after_waiting(const Request& request) {
  const bool may_wait = device_.config_.cross_stream_reuse == CrossStreamReuse::kWait;
  if (!may_wait || request.is_captured()) return nullptr;
  const auto reserved = static_cast<Bytes>(device_.stats_.reserved_bytes.all.current);
  if (reserved + request.needed_bytes <= kNobodyWaits) return nullptr;
  CaptureModeBracket bracket(device_.driver_);
  if (Block* block = take_ordered_pending(request)) return block;
  if (Block* block = take_pending_of_others(request)) return block;
  Reach reach;
  reach.has_others = true;
  while (true) {
    std::optional<Growth> growth = find_place(request, reach);
    if (!growth.has_value() || !fill(*growth, request, reach, Budget::kKept)) return nullptr;
    if (order_after_owners(*growth, request, reach)) return carry_out(*growth, request);
  }
}

Result<Block*> ExpandableMemory::grow_beyond_budget(const Request& request, Budget budget) {
  std::optional<Growth> growth = find_place(request, {});
  if (!growth.has_value() || !fill(*growth, request, {}, budget)) return nullptr;
  return carry_out(*growth, request);
}

Block* ExpandableMemory::join(const Request& request) {
  assume_locked();
  if (is_moving_) return nullptr;
  std::optional<Growth> growth = find_place(request, {});
  if (!growth.has_value() || growth->missing > 0) return nullptr;
  claim_all(*growth);
  return &settle(*growth, request);
}

// --- waiting for other streams, on the device ---

// Makes the request's stream come after all that others have submitted which use what the growth
// takes. False if one cannot be waited for; it is refused from now on.
bool ExpandableMemory::order_after_owners(const Growth& growth, const Request& request,
                                          Reach& reach) {
  std::vector<const Block*> used;
  for (const Block* block = growth.first; block != nullptr && block->address < growth.end;
       block = block->next)
    if (block->is_free()) used.push_back(block);
  for (const Departure& departure : growth.departures) {
    for (const Block* block = departure.in; block != nullptr && block->address < departure.end();
         block = block->next)
      used.push_back(block);
  }
  // First all fences: one owner may have blocks that are covered, and others that cannot be.
  std::vector<Stream*> owners;
  for (const Block* block : used) {
    Stream& owner = *block->owner;
    if (&owner == request.stream || has_passed(*block)) continue;
    if (block->fence_number >= owner.fence_number) device_.fences_.cover(owner);
    if (block->fence_number >= owner.fence_number) {
      reach.refused.push_back(&owner);
      return false;
    }
    if (std::ranges::find(owners, &owner) == owners.end()) owners.push_back(&owner);
  }
  for (const Stream* owner : owners) {
    if (!device_.fences_.order(*owner, *request.stream)) {
      reach.refused.push_back(owner);
      return false;
    }
    ++device_.stats_.stream_waits;
  }
  return true;
}

// What the stream itself has freed and other streams still use: it waits for those and has it.
Block* ExpandableMemory::take_ordered_pending(const Request& request) {
  std::vector<Stream*> users;
  device_.fences_.for_each([&](const Fence& fence) {
    const bool is_wanted = std::ranges::any_of(fence.waiters, [&](const Block* block) {
      const Segment& segment = *block->segment;
      return block->owner == request.stream && segment.pool == request.pool &&
             !segment.is_outdated;
    });
    const bool is_new = users.empty() || users.back() != fence.stream;
    if (is_wanted && is_new) users.push_back(fence.stream);
  });
  std::erase_if(users, [&](const Stream* user) QUARRY_REQUIRES(device_.mutex_) {
    return !device_.fences_.order(*user, *request.stream);
  });
  if (users.empty()) return nullptr;
  device_.stats_.stream_waits += static_cast<std::int64_t>(users.size());
  device_.fences_.take_ordered(*request.stream, users, device_.done_);
  device_.complete_done();
  return device_.find_fitting(request);
}

// What others have freed and somebody still uses, perhaps this stream itself: it waits for all of
// those and has it. All or nothing: a block may not lose one of the fences that its owner needs.
Block* ExpandableMemory::take_pending_of_others(const Request& request) {
  Stream& self = *request.stream;
  std::map<Block*, std::uint32_t> waits;
  std::set<Stream*, BySerial> earlier;
  device_.fences_.for_each([&](const Fence& fence) {
    for (Block* block : fence.waiters) {
      const Segment& segment = *block->segment;
      const bool is_wanted = block->owner != &self && !block->owner->is_captured &&
                             segment.is_expandable() && segment.pool == request.pool &&
                             segment.family == request.family && !segment.is_outdated;
      if (is_wanted && fence.event != EventHandle::kNull) ++waits[block];
    }
  });
  std::set<Block*> taken;
  for (const auto& [block, count] : waits)
    if (count == block->pending_fences) taken.insert(block);
  if (taken.empty()) return nullptr;
  device_.fences_.for_each([&](const Fence& fence) {
    const auto is_taken = [&taken](Block* block) { return taken.contains(block); };
    if (std::ranges::any_of(fence.waiters, is_taken)) earlier.insert(fence.stream);
  });
  std::set<Stream*, BySerial> owners;
  for (const Block* block : taken)
    owners.insert(block->owner);
  for (Stream* owner : owners)
    device_.fences_.cover(*owner);
  earlier.insert(owners.begin(), owners.end());
  earlier.erase(&self);
  for (const Stream* stream : earlier) {
    if (stream->open_fence != nullptr || !device_.fences_.order(*stream, self)) return nullptr;
    ++device_.stats_.stream_waits;
  }
  device_.fences_.take_waiters(taken, device_.done_);
  for (Block* block : taken)
    device_.set_owner(*block, self);
  device_.complete_done();
  return device_.find_fitting(request);
}

// --- doing it ---

// The free block of the request's stream at the place; null if the driver is out of memory.
Result<Block*> ExpandableMemory::carry_out(Growth& growth, const Request& request) {
  claim_all(growth);
  std::vector<Departure> left = take_left_addresses(kUnmapsAtATime);
  DriverCode code = DriverCode::kSuccess;
  if (!growth.arrivals.empty() || !left.empty()) {
    const Bytes created = growth.get_created_bytes();
    const ExtentTerms terms{device_.device_, growth.segment->range->kind, access_};
    device_.growing_bytes_ += created;
    request.pool->growing_bytes += created;
    is_moving_ = true;
    code = device_.run_unlocked([&] {
      Driver& driver = device_.driver_;
      CaptureModeBracket bracket(driver);
      static_cast<void>(unmap_departures(driver, left, unreleased_));
      static_cast<void>(release_departures(driver, growth.departures, unreleased_));
      const DriverCode mapped = map_arrivals(driver, terms, growth, unreleased_);
      if (mapped == DriverCode::kSuccess) {
        static_cast<void>(unmap_departures(driver, growth.departures, unreleased_));
      }
      return mapped;
    });
    is_moving_ = false;
    device_.growing_bytes_ -= created;
    request.pool->growing_bytes -= created;
  }
  return_left_addresses(left);
  if (code == DriverCode::kSuccess) {
    Block& block = settle(growth, request);
    note_cost();
    return &block;
  }
  roll_back(growth);
  if (growth.is_kind_refused) {
    refuse_kind(growth.segment->range->kind);
    return Status(StatusCode::kNotSupported, "the driver refused that kind of extents");
  }
  if (code == DriverCode::kOutOfMemory) return nullptr;
  return Status(StatusCode::kDriverError,
                "the driver failed to map " + std::to_string(growth.missing) +
                    " bytes on device " + std::to_string(device_.device_) + ": " + describe(code));
}

void ExpandableMemory::claim_all(Growth& growth) {
  for (Block* block = growth.first; block != nullptr && block->address < growth.end;) {
    Piece piece;
    piece.was_hole = block->state() == BlockState::kUnmapped;
    piece.block =
        &claim(*block, std::max(block->address, growth.begin), std::min(block->end(), growth.end));
    growth.pieces.push_back(piece);
    block = piece.block->next;
  }
  claim_departures(growth.departures);
}

void ExpandableMemory::claim_departures(std::vector<Departure>& departures) {
  for (Departure& departure : departures) {
    Block* in = departure.in;
    while (in->end() <= departure.address)
      in = in->next;
    departure.block = &claim(*in, std::max(in->address, departure.address),
                             std::min(in->end(), departure.end()));
    for (Block* last = departure.block; last->end() < departure.end();)
      last = &claim(*last->next, last->end(), std::min(last->next->end(), departure.end()));
    departure.has_passed = false;
    update_has_passed(departure);
  }
}

// The pieces become one free block of the request's stream.
Block& ExpandableMemory::settle(Growth& growth, const Request& request) {
  Segment& segment = *growth.segment;
  Stream& stream = *request.stream;
  if (segment.range->extents.empty() && segment.may_have_lane()) segment.lane = stream.lane;
  for (Departure& departure : growth.departures) {
    if (departure.is_released) {
      count_release(*departure.block->segment);
    } else {
      ++device_.stats_.extents_moved;
      moving_time_.add_move();
    }
    start_leaving(departure);
  }
  for (const Arrival& arrival : growth.arrivals) {
    segment.range->extents.emplace(arrival.address, arrival.extent);
    count_reserved(segment, static_cast<std::int64_t>(arrival.extent.size));
    if (arrival.departure.has_value()) continue;
    ++device_.stats_.extents_created;
    ++device_.stats_.num_device_alloc;
    if (segment.is_private) ++segment.pool->stats.num_device_alloc;
  }
  bool is_unused = !stream.is_captured;  // nothing on any stream may still use it
  for (const Piece& piece : growth.pieces) {
    is_unused = is_unused && (piece.was_hole || has_passed(*piece.block));
    piece.block->return_from_retiring();
  }
  for (const Departure& departure : growth.departures)
    is_unused = is_unused && departure.has_passed;
  Block& block = *growth.pieces.front().block;
  for (const Piece& piece : growth.pieces)
    device_.set_owner(*piece.block, stream);
  for (std::size_t i = 1; i < growth.pieces.size(); ++i)
    absorb_next(block, device_.get_stock(stream));
  block.fence_number = is_unused ? 0 : stream.fence_number;
  stream.has_uncovered_frees |= !is_unused;
  InactiveSplitChange change;
  Block& joined = device_.coalesce(block, change);
  device_.pool_insert(joined, change);
  device_.apply(change, segment.family);
  return joined;
}

// As it was, but for what went back to the driver, and mappings that it did not take back.
void ExpandableMemory::roll_back(Growth& growth) {
  for (Departure& departure : growth.departures)
    return_or_leave(departure);
  for (const Piece& piece : growth.pieces) {
    if (!piece.was_hole) return_claimed(*piece.block);
  }
  for (const Piece& piece : growth.pieces) {
    if (piece.was_hole) make_hole(*piece.block);
  }
  for (const Arrival& arrival : growth.arrivals) {
    if (!arrival.is_stuck) continue;
    Block* in = std::prev(growth.segment->range->holes.upper_bound(arrival.address))->second;
    Departure stuck;
    stuck.address = arrival.address;
    stuck.extent = arrival.extent;
    stuck.has_passed = true;
    stuck.block = &claim(*in, arrival.address, arrival.address + arrival.extent.size);
    ++growth.segment->range->leaving;
    leaving_.push_back(stuck);
  }
}

}  // namespace quarry
