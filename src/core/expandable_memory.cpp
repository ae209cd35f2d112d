// SPDX-License-Identifier: Apache-2.0
// Addresses and blocks of expandable segments, and their figures.
#include "core/expandable_memory.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.hpp"
#include "core/thread_state.hpp"

namespace quarry {
namespace {

// Together some 128 TiB can be reserved in a process. Ranges are chained when one is full.
Bytes calculate_range_size(Bytes device_bytes, bool is_private, StatFamily family) {
  const Bytes wished =
      is_private || family == StatFamily::kSmall ? device_bytes : 4 * device_bytes;
  return round_up(std::max(wished, Bytes{1_GiB}), kExtentPage);
}

}  // namespace

ExpandableMemory::ExpandableMemory(DeviceAllocator& device) noexcept
    : device_(device), drain_(device.driver_, device.device_), access_{device.device_} {}
ExpandableMemory::~ExpandableMemory() = default;

bool ExpandableMemory::serves(const MemPool& pool) const {
  assume_locked();
  const Bytes granularity = device_.properties_.extent_granularity;
  const bool is_possible = granularity != 0 && kExtentPage % granularity == 0;
  return device_.config_.expandable_segments && is_possible && !pool.options.backend.is_set() &&
         !pool.options.no_split;
}

// --- addresses ---

// A new segment for the request's pool and family, all of it a hole. False if the driver has no
// addresses.
bool ExpandableMemory::make_range(const Request& request, Bytes least_bytes) {
  MemPool& pool = *request.pool;
  const Bytes least = round_up(least_bytes, kExtentPage) + kExtentPage;
  Bytes size = std::max(least, calculate_range_size(device_.properties_.total_bytes,
                                                    !pool.is_default(), request.family));
  DriverResult<Address> address = DriverCode::kOutOfMemory;
  while (true) {
    address = device_.driver_.reserve_addresses(size, kExtentPage);
    if (address.is_ok() || size == least) break;
    size = std::max(least, round_up(size / 2, kExtentPage));
  }
  if (!address.is_ok()) return false;
  {
    CaptureModeBracket bracket(device_.driver_);
    drain_.make_ready();
  }
  Segment& segment = *device_.segments_.take();
  Block& hole = *std::construct_at(device_.stock_.take());
  segment.address = address.value;
  segment.size = size;
  segment.family = request.family;
  segment.sequence = device_.next_sequence_++;
  segment.stream = request.stream->ref;
  segment.first = &hole;
  segment.range = (ranges_[&segment] = std::make_unique<ExtentRange>()).get();
  segment.range->kind = kind_;
  device_.segments_by_address_.emplace(segment.address, &segment);
  pool.add(segment);
  hole.address = segment.address;
  hole.size = size;
  hole.segment = &segment;
  hole.become_retiring();
  make_hole(hole);
  device_.stats_.segment.add(segment.family, 1);
  if (segment.is_private) pool.stats.segments.add(1);
  return true;
}

void ExpandableMemory::note_no_addresses() {
  if (std::exchange(has_noted_no_addresses_, true)) return;
  device_.note("event=no_addresses device=" + std::to_string(device_.device_) +
               " effect=\"plain segments are used where expandable ones have no room\"");
}

// Once moves have become dear.
void ExpandableMemory::note_cost() {
  constexpr std::int64_t kMany = 1000;
  const std::int64_t moves = device_.stats_.extents_moved;
  if (has_noted_cost_ || moves < kMany) return;
  const double share = moving_time_.calculate_share(device_.driver_.read_clock_ns());
  if (share <= kMovingShare) return;
  has_noted_cost_ = true;
  const double slack = device_.config_.reserve_slack;
  const auto to_percent = [](double part) { return std::to_string(std::lround(part * 100)); };
  device_.note("event=recycling_cost device=" + std::to_string(device_.device_) +
               " extents_moved=" + std::to_string(moves) + " time_percent=" + to_percent(share) +
               " effect=\"up to " + to_percent(slack + kMostMoreSlack) + " instead of " +
               to_percent(slack) + " % is reserved beyond what is used\"" +
               " advice=\"a larger reserve_slack spares moves\"");
}

// Outdated ranges and those of a released pool, once nothing is in them; where the driver may not
// be called, when memory is released next.
void ExpandableMemory::drop_range_if_unused(Segment& segment) {
  const MemPool& pool = *segment.pool;
  const bool is_wanted = !segment.is_outdated && (pool.is_default() || pool.use_count > 0);
  if (is_wanted || !segment.is_vacant()) return;
  if (!segment.range->extents.empty() || segment.range->leaving > 0) return;
  // All of them may be claimed by a growth that is under way.
  const bool is_hole = segment.first->state() == BlockState::kUnmapped;
  if (!is_hole || segment.first->size != segment.size || is_driver_callback_thread()) return;
  if (device_.driver_.free_addresses(segment.address, segment.size) != DriverCode::kSuccess)
    return;
  outdated_ -= segment.is_outdated ? 1 : 0;
  ranges_.erase(&segment);
  device_.erase_segment(segment);
}

// --- blocks ---

// Takes [begin, end) out of a free block or a hole: it is retiring, and in no index.
Block& ExpandableMemory::claim(Block& block, Address begin, Address end) {
  QUARRY_ASSERT(block.address <= begin && begin < end && end <= block.end());
  const bool is_hole = block.state() == BlockState::kUnmapped;
  InactiveSplitChange change;
  if (is_hole) {
    block.segment->range->holes.erase(block.address);
    block.leave_hole();
  } else {
    device_.pool_remove(block, change);
    block.become_retiring();
  }
  device_.apply(change, block.segment->family);
  BlockStock& stock = device_.get_stock(*block.owner);
  Block* claimed = &block;
  if (begin > block.address) {
    claimed = split(block, begin - block.address, stock);
    claimed->become_retiring();
    return_part(block, is_hole);
  }
  if (end < claimed->end()) {
    Block& behind = *split(*claimed, end - begin, stock);
    behind.become_retiring();
    return_part(behind, is_hole);
  }
  return *claimed;
}

// What was cut off: as it was before, and joined with nobody.
void ExpandableMemory::return_part(Block& block, bool is_hole) {
  if (is_hole) {
    block.become_hole();
    block.segment->range->holes.emplace(block.address, &block);
    return;
  }
  InactiveSplitChange change;
  block.return_from_retiring();
  device_.pool_insert(block, change);
  device_.apply(change, block.segment->family);
}

// A claimed free block is free again.
void ExpandableMemory::return_claimed(Block& block) {
  InactiveSplitChange change;
  block.return_from_retiring();
  if (block.owner->life == StreamLife::kDrained) {
    device_.set_owner(block, device_.get_idle_owner(block));
  }
  device_.pool_insert(device_.coalesce(block, change), change);
  device_.apply(change, block.segment->family);
}

// Addresses with no memory, joined with the holes beside them.
void ExpandableMemory::make_hole(Block& retiring) {
  ExtentRange& range = *retiring.segment->range;
  Block* hole = &retiring;
  hole->become_hole();
  device_.set_owner(*hole, device_.streams_.idle());
  const auto absorb_next_hole = [this, &range](Block& block) QUARRY_REQUIRES(device_.mutex_) {
    Block& next = *block.next;
    range.holes.erase(next.address);
    next.leave_hole();
    next.return_from_retiring();
    absorb_next(block, device_.stock_);
  };
  const auto is_hole = [](const Block* block) {
    return block != nullptr && block->state() == BlockState::kUnmapped;
  };
  if (is_hole(hole->next)) absorb_next_hole(*hole);
  if (is_hole(hole->previous)) {
    hole = hole->previous;
    range.holes.emplace(hole->next->address, hole->next);
    absorb_next_hole(*hole);
  }
  range.holes.insert_or_assign(hole->address, hole);
}

// Whether the host has seen the last use of the block done, but for launches of graphs.
bool ExpandableMemory::has_passed(const Block& block) {
  const Stream& owner = *block.owner;
  if (owner.is_captured) return false;
  return block.fence_number <= owner.passed_number || owner.life == StreamLife::kDrained;
}

void ExpandableMemory::cover_free_memory() {
  assume_locked();
  CaptureModeBracket bracket(device_.driver_);
  for (const auto& stream : device_.streams_.get_all()) {
    if (stream == nullptr || stream->is_captured || !stream->has_uncovered_frees) continue;
    if (stream.get() != &device_.streams_.idle()) device_.fences_.cover(*stream);
  }
}

// --- figures ---

void ExpandableMemory::count_reserved(Segment& segment, std::int64_t bytes) {
  segment.reserved_bytes =
      static_cast<Bytes>(static_cast<std::int64_t>(segment.reserved_bytes) + bytes);
  device_.stats_.reserved_bytes.add(segment.family, bytes);
  if (segment.is_private) segment.pool->stats.reserved_bytes.add(bytes);
}

// Of allocated bytes, once the request is served. What threads have not told yet may be missing
// from the sum, and so make it less than nothing.
Bytes ExpandableMemory::calculate_peak(const Request& request) const {
  const std::int64_t allocated = device_.stats_.allocated_bytes.all.current;
  const Bytes told = static_cast<Bytes>(std::max(allocated, std::int64_t{0}));
  return std::max(peak_bytes_, told + request.block_bytes);
}

// What may still be reserved before idle extents move instead.
Bytes ExpandableMemory::calculate_left(const Request& request) const {
  const double share = moving_time_.calculate_share(device_.driver_.read_clock_ns());
  const double slack = calculate_slack(device_.config_.reserve_slack, share);
  const Bytes budget = calculate_budget(calculate_peak(request), slack);
  const Bytes taken =
      static_cast<Bytes>(device_.stats_.reserved_bytes.all.current) + device_.growing_bytes_;
  return budget > taken ? budget - taken : 0;
}

// What the limits leave.
ExpandableMemory::Room ExpandableMemory::calculate_room(const Request& request) const {
  const auto get_room = [](Bytes limit, std::int64_t reserved, Bytes growing) {
    const Bytes taken = static_cast<Bytes>(reserved) + growing;
    return limit > taken ? limit - taken : 0;
  };
  const MemPool& pool = *request.pool;
  return {
      get_room(device_.calculate_allowed_bytes(), device_.stats_.reserved_bytes.all.current,
               device_.growing_bytes_),
      get_room(pool.options.limit_bytes, pool.stats.reserved_bytes.current, pool.growing_bytes)};
}

void ExpandableMemory::wait_until_nobody_moves() {
  device_.wait_for_turn();
  while (is_moving_) {
    device_.changed_.wait(device_.mutex_);
    device_.wait_for_turn();
  }
}

// --- for validate() ---

void ExpandableMemory::validate(const Segment& segment) const {
  assume_locked();
  const ExtentRange& range = *segment.range;
  std::size_t holes = 0;
  Bytes mapped = 0;
  for (const auto& [address, extent] : range.extents) {
    QUARRY_CHECK(is_aligned(address, kExtentPage) && is_aligned(extent.size, kExtentPage));
    mapped += extent.size;
  }
  QUARRY_CHECK_EQ(mapped, segment.reserved_bytes);
  QUARRY_CHECK_EQ(segment.is_outdated, range.kind != kind_);
  if (segment.is_outdated) QUARRY_CHECK_EQ(segment.lane, kNoLane);
  auto extent = range.extents.begin();
  for (const Block* block = segment.first; block != nullptr; block = block->next) {
    if (block->state() == BlockState::kUnmapped) {
      ++holes;
      const auto found = range.holes.find(block->address);
      QUARRY_CHECK(found != range.holes.end() && found->second == block);
      QUARRY_CHECK(is_aligned(block->address | block->size, kExtentPage));
      QUARRY_CHECK(block->next == nullptr || block->next->state() != BlockState::kUnmapped);
    }
    if (block->state() == BlockState::kRetiring) continue;
    // Extents tile exactly what is no hole.
    for (Address at = block->address; at < block->end();) {
      while (extent != range.extents.end() && extent->first + extent->second.size <= at)
        ++extent;
      const bool is_mapped = extent != range.extents.end() && extent->first <= at;
      QUARRY_CHECK_EQ(is_mapped, block->state() != BlockState::kUnmapped);
      if (!is_mapped) {
        if (extent != range.extents.end()) QUARRY_CHECK_GE(extent->first, block->end());
        break;
      }
      at = extent->first + extent->second.size;
    }
  }
  QUARRY_CHECK_EQ(holes, range.holes.size());
}

}  // namespace quarry
