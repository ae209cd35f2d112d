// SPDX-License-Identifier: Apache-2.0
// Which growth of expandable memory would serve a request: whose memory it may have, the place
// that lacks the fewest pages, and the extents that come there. Changes nothing.
#include <algorithm>
#include <bit>
#include <iterator>
#include <utility>

#include "core/expandable_memory.hpp"

namespace quarry {

// --- whose memory ---

bool ExpandableMemory::may_wait_for(const Stream& owner, const Reach& reach) {
  if (!reach.has_others || owner.is_captured) return false;
  return std::ranges::find(reach.refused, &owner) == reach.refused.end();
}

// Whether the request may have the free block where it lies.
bool ExpandableMemory::is_usable(const Block& block, const Request& request,
                                 const Reach& reach) const {
  if (!block.is_free()) return false;
  if (block.owner == request.stream || block.owner == &device_.streams_.idle()) return true;
  if (request.is_captured()) {
    return has_passed(block) || block.owner == request.pool->captured_idle;
  }
  if (device_.config_.cross_stream_reuse == CrossStreamReuse::kOff) return false;
  return has_passed(block) || may_wait_for(*block.owner, reach);
}

// Whether extents may leave the free block for the request.
bool ExpandableMemory::may_move(const Block& block, const Request& request,
                                const Reach& reach) const {
  const MemPool& pool = *block.segment->pool;
  if (!block.is_free()) return false;
  if (block.owner->is_captured || block.segment->holds > 0 || pool.options.no_recycle)
    return false;
  const bool is_own = block.owner == request.stream || block.owner == &device_.streams_.idle();
  if (!is_own && device_.config_.cross_stream_reuse == CrossStreamReuse::kOff) return false;
  if (has_passed(block)) return true;
  if (request.is_captured() || device_.config_.recycle != Recycle::kStream) return false;
  return block.owner == request.stream || may_wait_for(*block.owner, reach);
}

// --- places ---

std::optional<Growth> ExpandableMemory::find_place(const Request& request,
                                                   const Reach& reach) const {
  std::optional<Growth> best;
  Place best_place;
  for (Segment* segment = request.pool->first_segment; segment != nullptr;
       segment = segment->next) {
    if (!segment->is_expandable() || segment->family != request.family) continue;
    if (segment->holds > 0 || segment->is_outdated) continue;
    Address run_end = 0;
    for (const auto& [address, hole] : segment->range->holes) {
      if (address >= run_end) consider_run(*hole, request, reach, run_end, best, best_place);
    }
  }
  // What others have: pieces side by side with no hole between them, or one that is enough.
  const auto consider_block = [&](Block& block) {
    assume_locked();
    Address run_end = 0;
    const bool is_beside = (block.previous != nullptr && block.previous->is_free()) ||
                           (block.next != nullptr && block.next->is_free());
    const bool is_candidate = is_beside || block.size >= request.needed_bytes;
    if (!is_candidate || block.segment->holds > 0 || !is_usable(block, request, reach)) return;
    consider_run(block, request, reach, run_end, best, best_place);
  };
  for (const auto& owner : device_.streams_.get_all()) {
    if (owner == nullptr || owner.get() == request.stream) continue;
    if (best.has_value() && best_place.missing == 0) break;
    request.pool->get_blocks(request.family).for_each_in_ranges(*owner, 1, consider_block);
  }
  return best;
}

// The run of usable memory and holes around `in`, and the best place for the request there.
void ExpandableMemory::consider_run(Block& in, const Request& request, const Reach& reach,
                                    Address& run_end, std::optional<Growth>& best,
                                    Place& best_place) const {
  const auto is_part = [&](const Block* block) QUARRY_REQUIRES(device_.mutex_) {
    return block != nullptr &&
           (block->state() == BlockState::kUnmapped || is_usable(*block, request, reach));
  };
  Block* first = &in;
  while (is_part(first->previous))
    first = first->previous;
  std::vector<Gap> run;
  Block* last = first;
  for (Block* block = first; is_part(block); block = block->next) {
    run.push_back({block->address, block->size, block->state() == BlockState::kUnmapped});
    last = block;
  }
  run_end = last->end();
  auto place = quarry::find_place(run, request.needed_bytes, PlaceTie::kLowestAddress);
  if (!place.has_value()) return;
  if (request.needed_bytes != request.block_bytes)
    place = align_place(run, *place, request.block_bytes, request.alignment);
  if (best.has_value() && !is_better_place(*place, best_place, PlaceTie::kLowestAddress)) return;
  best_place = *place;
  best.emplace();
  while (first->end() <= place->begin)
    first = first->next;
  best->segment = in.segment;
  best->first = first;
  best->begin = place->begin;
  best->end = place->begin + request.block_bytes;
  best->missing = place->missing;
}

// Where extents for a place come from: what may be made, and what may move.
class ExpandableMemory::Sources {
 public:
  Sources(const ExpandableMemory& memory, const Growth& growth, const Request& request,
          const Reach& reach)
      : memory_(memory),
        growth_(growth),
        request_(request),
        reach_(reach),
        left_(memory.calculate_left(request)),
        room_(memory.calculate_room(request)) {}

  Bytes get_left() const { return left_; }
  // Within the budget, and within the limits.
  bool may_make(Bytes size) const { return size <= std::min(left_, room_.get_least()); }
  bool is_in_limits(Bytes size) const { return size <= room_.get_least(); }
  void make(Bytes size) {
    left_ -= std::min(left_, size);
    room_.of_device -= size;
    room_.of_pool -= size;
  }

  // An extent of at most `most` bytes that can move; none if there is none.
  std::optional<Departure> take_movable(Bytes most) {
    list();
    const auto is_fitting = [&](const Departure& one) {
      return one.extent.size <= most && (is_own(one) || one.extent.size <= room_.of_pool);
    };
    const auto found = std::ranges::find_if(movable_, is_fitting);
    if (found == movable_.end()) return std::nullopt;
    const Departure taken = *found;
    movable_.erase(found);
    if (!is_own(taken)) room_.of_pool -= taken.extent.size;
    return taken;
  }

  // An idle extent that nobody uses and that fits nowhere goes back, for another of a size that
  // does. None if there is none.
  std::optional<Departure> take_released() {
    list();
    const auto found = std::ranges::find_if(movable_.rbegin(), movable_.rend(),
                                            [](const Departure& one) { return one.has_passed; });
    if (found == movable_.rend()) return std::nullopt;
    Departure taken = *found;
    taken.is_released = true;
    movable_.erase(std::next(found).base());
    left_ += taken.extent.size;
    add(room_.of_device, taken.extent.size);
    if (is_own(taken)) add(room_.of_pool, taken.extent.size);
    return taken;
  }

 private:
  // No limit stays none.
  static void add(Bytes& room, Bytes more) { room = std::max(room, room + more); }
  bool is_own(const Departure& one) const { return one.in->segment->pool == request_.pool; }
  void list() {
    memory_.assume_locked();
    if (!std::exchange(is_listed_, true))
      memory_.list_departures(growth_, request_, reach_, movable_);
  }

  const ExpandableMemory& memory_;
  const Growth& growth_;
  const Request& request_;
  const Reach& reach_;
  Bytes left_;
  Room room_;
  std::vector<Departure> movable_;  // the first to move first
  bool is_listed_ = false;
};

// Which extents come to the place. False if that passes the budget, or what the limits leave.
bool ExpandableMemory::fill(Growth& growth, const Request& request, const Reach& reach,
                            Budget budget) const {
  growth.arrivals.clear();
  growth.departures.clear();
  Sources sources(*this, growth, request, reach);
  const Address begin = round_down(growth.begin, kExtentPage);
  const Address end = round_up(growth.end, kExtentPage);
  for (const Block* block = growth.first; block != nullptr && block->address < end;
       block = block->next) {
    if (block->state() != BlockState::kUnmapped) continue;
    Address at = std::max(block->address, begin);
    const Address last = std::min(block->end(), end);
    if (at >= last) continue;
    growth.begin = std::min(growth.begin, at);
    for (; at < last; at += growth.arrivals.back().extent.size) {
      if (!add_arrival(growth, request, sources, budget, {at, last - at, block->end() - at}))
        return false;
    }
    growth.end = std::max(growth.end, at);
  }
  return true;
}

// The next extent of a hole.
bool ExpandableMemory::add_arrival(Growth& growth, const Request& request, Sources& sources,
                                   Budget budget, const HoleFront& front) const {
  const bool is_small = request.family == StatFamily::kSmall;
  const auto reserved = static_cast<Bytes>(device_.stats_.reserved_bytes.all.current);
  const Bytes regular = is_small ? kExtentPage : calculate_extent_size(reserved, {});
  Arrival arrival;
  arrival.address = front.begin;
  Bytes fresh = calculate_new_extent(regular, front.need, front.size, sources.get_left());
  if (!sources.may_make(fresh)) {
    if (const auto moved = sources.take_movable(is_small ? kExtentPage : front.size)) {
      arrival.departure = growth.departures.size();
      arrival.extent = moved->extent;
      growth.departures.push_back(*moved);
      growth.arrivals.push_back(arrival);
      return true;
    }
    fresh = std::min(fresh, std::bit_floor(front.need));
    while (!sources.may_make(fresh)) {
      const auto released = sources.take_released();
      if (!released.has_value()) break;
      growth.departures.push_back(*released);
    }
    while (budget == Budget::kExactly && !sources.is_in_limits(fresh) && fresh > kExtentPage)
      fresh /= 2;
    if (budget == Budget::kKept ? !sources.may_make(fresh) : !sources.is_in_limits(fresh)) {
      return false;
    }
  }
  sources.make(fresh);
  arrival.extent.size = fresh;
  growth.arrivals.push_back(arrival);
  return true;
}

// Extents that may move to the place, the first to move first.
void ExpandableMemory::list_departures(const Growth& growth, const Request& request,
                                       const Reach& reach,
                                       std::vector<Departure>& departures) const {
  if (device_.config_.recycle == Recycle::kOff) return;
  struct Candidate {
    Departure departure;
    Victim victim;
    bool is_elsewhere = false;
    bool needs_wait = false;
  };
  std::vector<Candidate> found;
  // Those that begin in the block; they may end in free blocks behind it.
  const auto add_extents_of = [&](Block& block) {
    assume_locked();
    if (!may_move(block, request, reach)) return;
    const Segment& segment = *block.segment;
    const auto& extents = segment.range->extents;
    for (auto at = extents.lower_bound(block.address);
         at != extents.end() && at->first < block.end(); ++at) {
      if (at->second.pins > 0) continue;
      Candidate candidate;
      candidate.departure.in = &block;
      candidate.departure.address = at->first;
      candidate.departure.extent = at->second;
      candidate.departure.has_passed = true;
      const Address end = candidate.departure.end();
      const bool is_in_place =
          &segment == growth.segment && at->first < growth.end && end > growth.begin;
      if (is_in_place) continue;
      const Block* part = &block;
      for (; part != nullptr && may_move(*part, request, reach); part = part->next) {
        if (!has_passed(*part)) {
          candidate.departure.has_passed = false;
          candidate.needs_wait = candidate.needs_wait || part->owner != request.stream;
        }
        if (part->end() >= end) break;
      }
      if (part == nullptr || part->end() < end || !may_move(*part, request, reach)) continue;
      candidate.victim = {at->first, at->second.size, block.size, 0};
      candidate.is_elsewhere = &segment != growth.segment;
      found.push_back(candidate);
    }
  };
  const auto add_pool = [&](MemPool& pool) QUARRY_REQUIRES(device_.mutex_) {
    for (const auto& owner : device_.streams_.get_all()) {
      if (owner == nullptr || owner->is_captured) continue;
      for (const StatFamily family : {StatFamily::kLarge, StatFamily::kSmall})
        pool.get_blocks(family).for_each_in_ranges(*owner, 1, add_extents_of);
    }
  };
  add_pool(device_.default_pool_);
  for (const auto& [id, pool] : device_.private_pools_)
    add_pool(*pool);
  std::ranges::stable_sort(found, [](const Candidate& one, const Candidate& other) {
    if (one.needs_wait != other.needs_wait) return other.needs_wait;
    if (one.is_elsewhere != other.is_elsewhere) return other.is_elsewhere;
    return moves_before(one.victim, other.victim, VictimOrder::kSmallestRun);
  });
  for (const Candidate& candidate : found)
    departures.push_back(candidate.departure);
}

}  // namespace quarry
