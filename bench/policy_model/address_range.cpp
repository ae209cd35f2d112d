// SPDX-License-Identifier: Apache-2.0
#include "bench/policy_model/address_range.hpp"

#include <algorithm>
#include <iterator>

#include "base/check.hpp"

namespace quarry::policy_model {
namespace {

constexpr Bytes kRangeBytes = Bytes{1} << 56;

PieceFence merge_fences(const PieceFence& one, const PieceFence& other) {
  StreamSet waiters = one.waiters & other.waiters;
  if (one.pending == 0) waiters = other.waiters;
  if (other.pending == 0) waiters = one.waiters;
  return {one.pending | other.pending, waiters, std::max(one.passes_us, other.passes_us),
          std::max(one.freed_us, other.freed_us)};
}

}  // namespace

AddressRange::AddressRange() {
  pieces_.emplace(0, Piece{kRangeBytes, State::kHole, {}});
}

std::optional<Address> AddressRange::find_piece(Bytes size, StreamSet allowed,
                                                PieceFit fit) const {
  if (fit == PieceFit::kLowestAddress) {
    for (const auto& [begin, piece] : pieces_) {
      if (piece.state == State::kFree && piece.size >= size && is_usable(piece.fence, allowed)) {
        return begin;
      }
    }
    return std::nullopt;
  }
  std::optional<std::pair<Bytes, Address>> best;
  for (const auto& [key, pieces] : free_) {
    if (!is_usable(PieceFence{key.first, key.second, 0, 0}, allowed)) continue;
    const auto found = pieces.lower_bound({size, 0});
    if (found != pieces.end() && (!best || *found < *best)) best = *found;
  }
  if (!best) return std::nullopt;
  return best->second;
}

Place AddressRange::find_place(Bytes size, StreamSet allowed, PlaceTie tie) const {
  std::optional<Place> best;
  std::vector<Gap> run;
  const auto consider_run = [&] {
    const std::optional<Place> place = quarry::find_place(run, size, tie);
    if (place && (!best || is_better_place(*place, *best, tie))) best = place;
    run.clear();
  };
  for (const auto& [begin, piece] : pieces_) {
    const bool is_hole = piece.state == State::kHole;
    if (is_hole || (piece.state == State::kFree && is_usable(piece.fence, allowed))) {
      run.push_back({begin, piece.size, is_hole});
    } else {
      consider_run();
    }
  }
  consider_run();
  QUARRY_CHECK(best.has_value());
  return *best;
}

std::vector<Gap> AddressRange::list_holes(Address begin, Address end) const {
  std::vector<Gap> holes;
  for (auto piece = find_at(begin); piece != pieces_.end() && piece->first < end; ++piece) {
    if (piece->second.state != State::kHole) continue;
    const Address from = std::max(piece->first, round_down(begin, kExtentPage));
    holes.push_back({from, piece->first + piece->second.size - from, true});
  }
  return holes;
}

StreamSet AddressRange::get_pending(Address begin, Address end, std::uint32_t stream) const {
  const StreamSet own = get_stream_bit(stream);
  StreamSet pending = 0;
  for (auto piece = find_at(begin); piece != pieces_.end() && piece->first < end; ++piece) {
    if (!is_usable(piece->second.fence, own)) pending |= piece->second.fence.pending & ~own;
  }
  return pending;
}

void AddressRange::add_free_extents(Address begin, Address end, StreamSet allowed,
                                    std::vector<FreeExtent>& extents) const {
  for (auto piece = pieces_.begin(); piece != pieces_.end();) {
    const auto is_free = [&] {
      return piece != pieces_.end() && piece->second.state == State::kFree &&
             is_usable(piece->second.fence, allowed);
    };
    if (!is_free()) {
      ++piece;
      continue;
    }
    const auto first = piece;
    Address run_end = first->first;
    for (; is_free(); ++piece)
      run_end = piece->first + piece->second.size;
    auto part = first;
    for (auto extent = extents_.lower_bound(first->first);
         extent != extents_.end() && extent->first + extent->second <= run_end; ++extent) {
      const Address extent_end = extent->first + extent->second;
      if (extent->first < end && begin < extent_end) continue;
      while (part->first + part->second.size <= extent->first)
        ++part;
      FreeExtent& added = extents.emplace_back();
      for (auto under = part; under != piece && under->first < extent_end; ++under) {
        added.fence = merge_fences(added.fence, under->second.fence);
      }
      added.victim = {extent->first, extent->second, run_end - first->first, added.fence.freed_us};
    }
  }
}

void AddressRange::map(Address begin, Bytes size, const PieceFence& fence) {
  const auto hole = find_at(begin);
  QUARRY_CHECK(hole->second.state == State::kHole &&
               begin + size <= hole->first + hole->second.size);
  extents_.emplace(begin, size);
  set(begin, size, State::kFree, fence);
}

void AddressRange::unmap(Address begin, std::uint64_t now_us, std::uint64_t retires_us) {
  const auto extent = extents_.find(begin);
  QUARRY_CHECK(extent != extents_.end());
  const Bytes size = extent->second;
  extents_.erase(extent);
  if (retires_us <= now_us) return set(begin, size, State::kHole, {});
  retiring_bytes_ += size;
  set(begin, size, State::kRetiring, {kAllStreams, 0, retires_us, 0});
}

void AddressRange::take(Address begin, Bytes size) {
  for (auto piece = find_at(begin); piece != pieces_.end() && piece->first < begin + size;
       ++piece) {
    QUARRY_CHECK(piece->second.state == State::kFree);
  }
  set(begin, size, State::kHeld, {});
}

void AddressRange::give(Address begin, Bytes size, const PieceFence& fence) {
  const auto piece = find_at(begin);
  QUARRY_CHECK(piece->first == begin && piece->second.size == size &&
               piece->second.state == State::kHeld);
  set(begin, size, State::kFree, fence);
}

void AddressRange::add_waiter(std::uint32_t stream, StreamSet others) {
  const StreamSet own = get_stream_bit(stream);
  std::vector<Address> covered;
  for (const auto& [key, pieces] : free_) {
    if (key.first == 0 || (key.first & ~(others | own)) != 0 || (key.second & own) != 0) continue;
    for (const auto& [size, address] : pieces)
      covered.push_back(address);
  }
  for (const Address address : covered) {
    const auto piece = pieces_.find(address);
    if (piece == pieces_.end()) continue;  // merged with the one before
    PieceFence fence = piece->second.fence;
    fence.waiters |= own;
    set(address, piece->second.size, State::kFree, fence);
  }
}

void AddressRange::advance(std::uint64_t now_us) {
  while (!fences_.empty() && fences_.begin()->first <= now_us) {
    const Address address = fences_.begin()->second;
    fences_.erase(fences_.begin());
    const auto piece = pieces_.find(address);
    if (piece == pieces_.end() || piece->second.fence.pending == 0 ||
        piece->second.fence.passes_us > now_us) {
      continue;
    }
    const Piece passed = piece->second;
    if (passed.state == State::kRetiring) {
      retiring_bytes_ -= passed.size;
      set(address, passed.size, State::kHole, {});
    } else {
      set(address, passed.size, State::kFree, {0, 0, 0, passed.fence.freed_us});
    }
  }
}

void AddressRange::validate() const {
  Address next = 0;
  Bytes unmapped = 0;
  Bytes retiring = 0;
  for (const auto& [begin, piece] : pieces_) {
    QUARRY_CHECK(begin == next && piece.size > 0);
    next = begin + piece.size;
    if (piece.state == State::kHole || piece.state == State::kRetiring) unmapped += piece.size;
    if (piece.state == State::kRetiring) retiring += piece.size;
  }
  QUARRY_CHECK(next == kRangeBytes && retiring == retiring_bytes_);
  Address extent_end = 0;
  Bytes mapped = 0;
  for (const auto& [begin, size] : extents_) {
    QUARRY_CHECK(begin >= extent_end);
    extent_end = begin + size;
    mapped += size;
    for (auto piece = find_at(begin); piece != pieces_.end() && piece->first < extent_end;
         ++piece) {
      QUARRY_CHECK(piece->second.state == State::kFree || piece->second.state == State::kHeld);
    }
  }
  QUARRY_CHECK(mapped + unmapped == kRangeBytes);
}

std::pair<StreamSet, StreamSet> AddressRange::get_key(const Piece& piece) {
  return {piece.fence.pending, piece.fence.waiters};
}

bool AddressRange::may_merge(const Piece& one, const Piece& other) {
  if (one.state != other.state) return false;
  if (one.state == State::kFree) return get_key(one) == get_key(other);
  return one.state == State::kHole;
}

AddressRange::Pieces::iterator AddressRange::find_at(Address address) {
  return std::prev(pieces_.upper_bound(address));
}

AddressRange::Pieces::const_iterator AddressRange::find_at(Address address) const {
  return std::prev(pieces_.upper_bound(address));
}

void AddressRange::split(Address address) {
  if (address == kRangeBytes) return;
  const auto piece = find_at(address);
  if (piece->first == address) return;
  unindex(piece);
  Piece rest = piece->second;
  piece->second.size = address - piece->first;
  rest.size -= piece->second.size;
  index(piece);
  index(pieces_.emplace(address, rest).first);
}

void AddressRange::index(Pieces::const_iterator piece) {
  const auto& [begin, entry] = *piece;
  if (entry.state == State::kFree) free_[get_key(entry)].emplace(entry.size, begin);
  if (entry.fence.pending != 0) fences_.emplace(entry.fence.passes_us, begin);
}

void AddressRange::unindex(Pieces::const_iterator piece) {
  if (piece->second.state != State::kFree) return;
  free_.at(get_key(piece->second)).erase({piece->second.size, piece->first});
}

void AddressRange::set(Address begin, Bytes size, State state, const PieceFence& fence) {
  split(begin);
  split(begin + size);
  for (auto piece = pieces_.find(begin); piece != pieces_.end() && piece->first < begin + size;) {
    unindex(piece);
    piece = pieces_.erase(piece);
  }
  auto piece = pieces_.emplace(begin, Piece{size, state, fence}).first;
  const auto merge = [&](Pieces::iterator low, Pieces::iterator high) {
    low->second.size += high->second.size;
    low->second.fence = merge_fences(low->second.fence, high->second.fence);
    pieces_.erase(high);
    return low;
  };
  if (piece != pieces_.begin() && may_merge(std::prev(piece)->second, piece->second)) {
    unindex(std::prev(piece));
    piece = merge(std::prev(piece), piece);
  }
  const auto after = std::next(piece);
  if (after != pieces_.end() && may_merge(piece->second, after->second)) {
    unindex(after);
    piece = merge(piece, after);
  }
  index(piece);
}

}  // namespace quarry::policy_model
