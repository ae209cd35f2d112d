// SPDX-License-Identifier: Apache-2.0
// One range of addresses with extents mapped into it, as a model: pieces that tile the range, and
// where the extents lie. Keeps times and streams but decides nothing. Its end is far away.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "core/extent_policy.hpp"

namespace quarry::policy_model {

// Streams that the host has not yet seen pass the free of a piece, a bit each.
using StreamSet = std::uint64_t;

constexpr StreamSet get_stream_bit(std::uint32_t stream) {
  return StreamSet{1} << stream;
}

constexpr StreamSet kAllStreams = ~StreamSet{0};

// The fence of a piece: on which streams, and when the host sees the last of them pass.
struct PieceFence {
  StreamSet pending = 0;  // 0: idle
  StreamSet waiters = 0;  // streams that have waited, on the device, for all of `pending`
  std::uint64_t passes_us = 0;
  std::uint64_t freed_us = 0;
};

// Whether `allowed` streams may take what has this fence: it is idle, only they still use it, or
// they come after its last use. No stream: what is idle. All streams: everything.
constexpr bool is_usable(const PieceFence& fence, StreamSet allowed) {
  return (fence.pending & ~allowed) == 0 || (fence.waiters & allowed) != 0;
}

// An extent that lies wholly in free pieces.
struct FreeExtent {
  Victim victim;
  PieceFence fence;
};

enum class PieceFit { kBest, kLowestAddress };

class AddressRange {
 public:
  AddressRange();

  // The beginning of a free, mapped piece of at least `size` bytes that `allowed` streams may use.
  std::optional<Address> find_piece(Bytes size, StreamSet allowed, PieceFit fit) const;
  // The best place among usable pieces and holes. There always is one.
  Place find_place(Bytes size, StreamSet allowed, PlaceTie tie) const;

  // The holes in [begin, end), each as long as the hole goes on, also beyond `end`.
  std::vector<Gap> list_holes(Address begin, Address end) const;
  // The streams that `stream` must wait for before it uses [begin, end).
  StreamSet get_pending(Address begin, Address end, std::uint32_t stream) const;
  // Extents that `allowed` streams may take, none of which touches [begin, end).
  void add_free_extents(Address begin, Address end, StreamSet allowed,
                        std::vector<FreeExtent>& extents) const;

  void map(Address begin, Bytes size, const PieceFence& fence);  // an extent, into a hole
  // An extent that lies in free pieces. Its addresses retire until `retires_us`, if that is later
  // than `now_us`; the retiring addresses are then part of get_retiring_bytes().
  void unmap(Address begin, std::uint64_t now_us, std::uint64_t retires_us);
  void take(Address begin, Bytes size);  // free pieces become held
  void give(Address begin, Bytes size, const PieceFence& fence);

  // `stream` has waited for all that `others` were given so far.
  void add_waiter(std::uint32_t stream, StreamSet others);
  // Fences that pass until now make pieces idle, and retiring addresses holes.
  void advance(std::uint64_t now_us);

  Bytes get_retiring_bytes() const { return retiring_bytes_; }
  // Proves that the pieces tile the range and that exactly what is mapped lies on extents.
  void validate() const;

 private:
  enum class State { kHole, kFree, kHeld, kRetiring };
  struct Piece {
    Bytes size = 0;
    State state = State::kHole;
    PieceFence fence;
  };
  using Pieces = std::map<Address, Piece>;

  static std::pair<StreamSet, StreamSet> get_key(const Piece& piece);
  static bool may_merge(const Piece& one, const Piece& other);
  Pieces::iterator find_at(Address address);
  Pieces::const_iterator find_at(Address address) const;
  void split(Address address);
  void index(Pieces::const_iterator piece);
  void unindex(Pieces::const_iterator piece);
  // [begin, begin + size) becomes one piece, which merges with its neighbours.
  void set(Address begin, Bytes size, State state, const PieceFence& fence);

  Pieces pieces_;
  std::map<Address, Bytes> extents_;
  // Free pieces by what they wait for and who has waited, then size and address.
  std::map<std::pair<StreamSet, StreamSet>, std::set<std::pair<Bytes, Address>>> free_;
  std::multimap<std::uint64_t, Address> fences_;  // some of pieces that are gone
  Bytes retiring_bytes_ = 0;
};

}  // namespace quarry::policy_model
