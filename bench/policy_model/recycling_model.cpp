// SPDX-License-Identifier: Apache-2.0
#include "bench/policy_model/recycling_model.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.hpp"
#include "core/size_policy.hpp"

namespace quarry::policy_model {
RecyclingModel::RecyclingModel(const PolicyTrace& trace, const RecyclingOptions& options)
    : options_(options),
      live_(trace.slot_count),
      peak_(static_cast<Bytes>(options.half_life * static_cast<double>(trace.totals.peak_bytes))) {
}

void RecyclingModel::replay(const PolicyEvent& event) {
  now_us_ = event.time_us;
  for (AddressRange& range : ranges_)
    range.advance(now_us_);
  LiveBlock& block = live_[event.slot];
  switch (event.op) {
    case TraceOp::kAlloc:
      if (event.bytes != 0) allocate(event);
      break;
    case TraceOp::kFree:
      if (block.size != 0) free(block);
      break;
    case TraceOp::kRecordStream:
      block.used |= get_stream_bit(event.stream);
      break;
    default:
      break;
  }
}

void RecyclingModel::allocate(const PolicyEvent& event) {
  LiveBlock& block = live_[event.slot];
  block.size = event.bytes;
  block.range = options_.has_small_range && event.bytes <= kSmallMax ? kSmall : kLarge;
  block.used = get_stream_bit(event.stream);
  allocated_ += block.size;
  peak_.add(block.size, allocated_);
  block.begin = find_room(block, event.stream);
  // The stream comes after every earlier use of what it gets.
  QUARRY_CHECK(
      ranges_[block.range].get_pending(block.begin, block.begin + block.size, event.stream) == 0);
  ranges_[block.range].take(block.begin, block.size);
  result_.peak_reserved_bytes = std::max(result_.peak_reserved_bytes, reserved_);
  result_.most_retiring_bytes =
      std::max(result_.most_retiring_bytes,
               ranges_[kLarge].get_retiring_bytes() + ranges_[kSmall].get_retiring_bytes());
}

void RecyclingModel::free(LiveBlock& block) {
  PieceFence fence{0, 0, now_us_, now_us_};
  if (options_.lag_us != 0) fence = {block.used, 0, now_us_ + options_.lag_us, now_us_};
  ranges_[block.range].give(block.begin, block.size, fence);
  allocated_ -= block.size;
  block = {};
}

Address RecyclingModel::find_room(const LiveBlock& block, std::uint32_t stream) {
  const AddressRange& range = ranges_[block.range];
  const StreamSet own = get_stream_bit(stream);
  if (const auto piece = range.find_piece(block.size, own, options_.fit)) return *piece;
  const Place place = range.find_place(block.size, own, options_.tie);
  if (place.missing == 0) {
    ++result_.joins;
    return place.begin;
  }
  const bool stays_within = calculate_left() >= place.missing;
  const bool moves_first = !options_.waits_before_moving || stays_within;
  if (!options_.allows_waits || (moves_first && suffices(place, block, get_movable(own)))) {
    return fill(place, block, stream, get_movable(own));
  }
  // Beyond the budget the stream waits on the device for what others still use.
  if (const auto piece = range.find_piece(block.size, kAllStreams, options_.fit)) {
    Filling filling;
    filling.stream = stream;
    wait_for(range.get_pending(*piece, *piece + block.size, stream), filling);
    return *piece;
  }
  const Place any = range.find_place(block.size, kAllStreams, options_.tie);
  return fill(any, block, stream, get_movable(kAllStreams));
}

StreamSet RecyclingModel::get_movable(StreamSet allowed) const {
  return options_.recycle == Recycle::kStream ? allowed : 0;
}

double RecyclingModel::get_moving_share() const {
  return result_.moving_us / std::max<double>(1, static_cast<double>(now_us_));
}

Bytes RecyclingModel::get_regular_extent(const Filling& filling) const {
  if (filling.range == kSmall) return kExtentPage;
  Bytes size = calculate_extent_size(reserved_, options_.extents);
  if (options_.request_divisor != 0) {
    size =
        std::max(size, std::bit_floor((filling.end - filling.begin) / options_.request_divisor));
  }
  if (options_.coarsen_at > 0) {
    const double excess = std::min(8.0, get_moving_share() / options_.coarsen_at);
    size *= std::bit_floor(std::max<Bytes>(1, static_cast<Bytes>(excess)));
  }
  return std::min(size, options_.extents.most);
}

Bytes RecyclingModel::calculate_left() const {
  double slack = options_.slack;
  if (options_.time_budget > 0) {
    const double excess = get_moving_share() / options_.time_budget - 1;
    slack += (options_.most_slack - slack) * std::clamp(excess, 0.0, 1.0);
  }
  const Bytes budget = calculate_budget(peak_.get(), slack);
  return budget > reserved_ ? budget - reserved_ : 0;
}

// Whether the place can be filled without passing the budget.
bool RecyclingModel::suffices(const Place& place, const LiveBlock& block,
                              StreamSet movable) const {
  Bytes found = calculate_left();
  if (found >= place.missing) return true;
  if (options_.recycle == Recycle::kOff) return false;
  Filling filling;
  filling.range = block.range;
  filling.begin = place.begin;
  filling.end = place.begin + block.size;
  list_victims(filling, movable);
  for (const FreeExtent& extent : filling.victims)
    found += extent.victim.size;
  return found >= place.missing;
}

Address RecyclingModel::fill(const Place& place, const LiveBlock& block, std::uint32_t stream,
                             StreamSet movable) {
  ++(place.missing == 0 ? result_.joins : result_.misses);
  Filling filling;
  filling.range = block.range;
  filling.begin = place.begin;
  filling.end = place.begin + block.size;
  filling.stream = stream;
  wait_for(ranges_[block.range].get_pending(filling.begin, filling.end, stream), filling);
  bool is_listed = false;
  for (const Gap& hole : ranges_[block.range].list_holes(filling.begin, filling.end)) {
    if (!is_listed && options_.recycle != Recycle::kOff && calculate_left() < place.missing) {
      list_victims(filling, movable);
      is_listed = true;
    }
    fill_hole(filling, hole, movable);
  }
  return place.begin;
}

// Pages for the front of `hole`, up to the end of the place that is being filled.
void RecyclingModel::fill_hole(Filling& filling, Gap hole, StreamSet movable) {
  const Address end = round_up(std::min(hole.end(), filling.end), kExtentPage);
  while (hole.begin < end) {
    const Bytes left = calculate_left();
    const Bytes fresh =
        calculate_new_extent(get_regular_extent(filling), end - hole.begin, hole.size, left);
    Bytes mapped = 0;
    if (fresh > left && options_.recycle != Recycle::kOff) {
      if (filling.victims.empty()) list_victims(filling, movable);
      mapped = map_victim(filling, hole);
    }
    if (mapped == 0) {
      if (fresh > left && !try_exchange(filling, fresh)) ++result_.beyond_budget;
      create(filling, hole.begin, fresh);
      mapped = fresh;
    }
    hole.begin += mapped;
    hole.size -= mapped;
  }
}

void RecyclingModel::list_victims(Filling& filling, StreamSet movable) const {
  std::vector<std::pair<FreeExtent, RangeIndex>> found;
  std::vector<FreeExtent> extents;
  for (const RangeIndex index : {kLarge, kSmall}) {
    extents.clear();
    const bool is_own = index == filling.range;
    ranges_[index].add_free_extents(is_own ? filling.begin : 0, is_own ? filling.end : 0, movable,
                                    extents);
    for (const FreeExtent& extent : extents)
      found.emplace_back(extent, index);
  }
  const StreamSet ordered = get_stream_bit(filling.stream) | filling.waited;
  std::stable_sort(found.begin(), found.end(), [&](const auto& one, const auto& other) {
    // What needs no further wait goes first, then what lies in the place's own range.
    const bool one_waits = !is_usable(one.first.fence, ordered);
    const bool other_waits = !is_usable(other.first.fence, ordered);
    if (one_waits != other_waits) return other_waits;
    if (one.second != other.second) return one.second == filling.range;
    return moves_before(one.first.victim, other.first.victim, options_.victims);
  });
  filling.victims.clear();
  filling.victim_of.clear();
  for (auto entry = found.rbegin(); entry != found.rend(); ++entry) {
    filling.victims.push_back(entry->first);
    filling.victim_of.push_back(entry->second);
  }
}

// Moves the first extent that fits to the front of `hole`. Returns its size, or 0.
Bytes RecyclingModel::map_victim(Filling& filling, const Gap& hole) {
  const Bytes most = filling.range == kSmall ? kExtentPage : hole.size;
  for (std::size_t i = filling.victims.size(); i-- > 0;) {
    const FreeExtent extent = filling.victims[i];
    if (extent.victim.size > most) continue;
    AddressRange& from = ranges_[filling.victim_of[i]];
    filling.victims.erase(filling.victims.begin() + static_cast<std::ptrdiff_t>(i));
    filling.victim_of.erase(filling.victim_of.begin() + static_cast<std::ptrdiff_t>(i));
    PieceFence fence = extent.fence;
    const StreamSet own = get_stream_bit(filling.stream);
    if ((fence.pending & ~own) != 0) {
      if (!is_usable(fence, own)) wait_for(fence.pending & ~own, filling);
      // From now on the waiting stream's order covers the old uses.
      fence = {own, 0, now_us_ + options_.lag_us, now_us_};
    }
    from.unmap(extent.victim.begin, now_us_, extent.fence.pending == 0 ? 0 : fence.passes_us);
    ranges_[filling.range].map(hole.begin, extent.victim.size, fence);
    ++result_.moved;
    result_.driver_us += options_.costs.move_us;
    result_.moving_us += options_.costs.move_us;
    return extent.victim.size;
  }
  return 0;
}

// Releases idle extents that fit nowhere, so that `size` bytes can be created instead.
bool RecyclingModel::try_exchange(Filling& filling, Bytes size) {
  if (options_.recycle == Recycle::kOff) return false;
  while (calculate_left() < size) {
    auto found = filling.victims.size();
    for (std::size_t i = filling.victims.size(); i-- > 0;) {
      // An extent that is still in use can be moved, not released.
      if (filling.victims[i].fence.pending == 0) {
        found = i;
        break;
      }
    }
    if (found == filling.victims.size()) return false;
    const FreeExtent extent = filling.victims[found];
    ranges_[filling.victim_of[found]].unmap(extent.victim.begin, now_us_, 0);
    filling.victims.erase(filling.victims.begin() + static_cast<std::ptrdiff_t>(found));
    filling.victim_of.erase(filling.victim_of.begin() + static_cast<std::ptrdiff_t>(found));
    reserved_ -= extent.victim.size;
    ++result_.released;
    result_.driver_us += options_.costs.release_us;
  }
  return true;
}

void RecyclingModel::create(const Filling& filling, Address begin, Bytes size) {
  ranges_[filling.range].map(begin, size, {});
  reserved_ += size;
  ++result_.created;
  result_.driver_us += options_.costs.create_us;
}

void RecyclingModel::wait_for(StreamSet streams, Filling& filling) {
  const StreamSet more = streams & ~filling.waited;
  filling.waited |= more;
  const int count = std::popcount(more);
  result_.waits += static_cast<std::uint64_t>(count);
  result_.driver_us += options_.costs.wait_us * count;
  if (more == 0) return;
  for (AddressRange& range : ranges_)
    range.add_waiter(filling.stream, filling.waited);
}

void RecyclingModel::validate() const {
  for (const AddressRange& range : ranges_)
    range.validate();
}

RecyclingResult replay_recycling(const PolicyTrace& trace, const RecyclingOptions& options) {
  RecyclingModel model(trace, options);
  for (const PolicyEvent& event : trace.events)
    model.replay(event);
  model.validate();
  return model.get_result();
}

}  // namespace quarry::policy_model
