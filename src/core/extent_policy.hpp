// SPDX-License-Identifier: Apache-2.0
// Expandable segments: how large extents are, how much may be reserved, where in its range a
// request that missed is placed, and which idle extents move there first. Pure functions of
// values; nothing here maps anything.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/bytes.hpp"

namespace quarry {

// What extents and their addresses are multiples of: the driver's granularity.
inline constexpr Bytes kExtentPage = 2_MiB;

// A regular extent is the power of two nearest below reserved / divisor, within [least, most].
// docs/recycling.md says what other divisors cost.
struct ExtentRule {
  Bytes least = kExtentPage;  // a power of two, as `most`; equal: of one size always
  Bytes most = 64_MiB;
  std::uint64_t divisor = 256;
};
Bytes calculate_extent_size(Bytes reserved, const ExtentRule& rule);

// The size of one new extent for the front of a hole of `hole` bytes, of which the request needs
// `need` (both at least a page): regular where the hole has room and `left`, what may still be
// reserved, too; otherwise only what is needed, rounded up to a power of two.
Bytes calculate_new_extent(Bytes regular, Bytes need, Bytes hole, Bytes left);

// The highest amount allocated, which fades: it is halved towards what is allocated now each time
// that half_life bytes have been allocated. 0: it never fades.
class DecayedPeak {
 public:
  explicit DecayedPeak(Bytes half_life = 0) : half_life_(half_life) {}
  // After an allocation of `size`; `allocated` counts it.
  void add(Bytes size, Bytes allocated);
  Bytes get() const { return peak_; }

 private:
  Bytes half_life_;
  Bytes peak_ = 0;
  Bytes since_ = 0;  // allocated since the last halving
};

// Which part of the time goes into moving extents, by their number: of the last minute or so.
class MovingTime {
 public:
  // Of the time before nothing counts.
  void begin(std::uint64_t now_ns) { begin_ns_ = now_ns; }
  void add_move() { ++moves_; }
  // At least as late as all calls before.
  double calculate_share(std::uint64_t now_ns);

 private:
  std::uint64_t begin_ns_ = 0;
  std::uint64_t moves_ = 0;
};

// Up to this part of the time moves are cheap enough.
inline constexpr double kMovingShare = 0.02;
// The slack where moves take `moving_share` of the time: more of them, more slack instead, by up
// to kMostMoreSlack.
inline constexpr double kMostMoreSlack = 0.028;
double calculate_slack(double slack, double moving_share);

// What may be reserved before idle extents are taken instead: (1 + slack) x peak.
Bytes calculate_budget(Bytes peak, double slack);

// A part of a range that a request may have: mapped, or a hole of whole pages.
struct Gap {
  Address begin = 0;
  Bytes size = 0;
  bool is_hole = false;

  Address end() const { return begin + size; }
};

struct Place {
  Address begin = 0;
  Bytes missing = 0;  // in whole pages
  Bytes run = 0;      // bytes of the run that holds it
};

enum class PlaceTie : std::uint8_t { kLowestAddress, kSmallestRun };

// Whether `one` is the better place of two: it misses less; `tie` decides between equals.
bool is_better_place(const Place& one, const Place& other, PlaceTie tie);

// The best place for `size` bytes in a run of gaps, each beginning where the one before it ends.
// Costs a binary search for each gap. None if the run is too short.
std::optional<Place> find_place(std::span<const Gap> run, Bytes size, PlaceTie tie);

// Of a place in the run, only what `size` bytes at the first multiple of `alignment` there need.
Place align_place(std::span<const Gap> run, const Place& place, Bytes size, Bytes alignment);

// An extent that could move.
struct Victim {
  Address begin = 0;
  Bytes size = 0;
  Bytes run = 0;               // bytes of the free run that it lies in
  std::uint64_t freed_at = 0;  // when the latest of its blocks was freed; any unit
};

enum class VictimOrder : std::uint8_t { kLargestRun, kSmallestRun, kOldest, kLowestAddress };

// A strict order: the first one moves first. Within a run the ends go before the beginnings, so
// that what stays is in one piece.
bool moves_before(const Victim& one, const Victim& other, VictimOrder order);

}  // namespace quarry
