// SPDX-License-Identifier: Apache-2.0
// Expandable segments that recycle extents, as a model: one range for all streams, a sub-range for
// small blocks, and what happens on a miss. Counts what a driver would be asked; has none itself.
#pragma once

#include <array>
#include <vector>

#include "bench/policy_model/address_range.hpp"
#include "bench/policy_model/policy_trace.hpp"

namespace quarry::policy_model {

enum class Recycle {
  kOff,
  kPassed,  // extents whose fence the host has seen pass
  kStream,  // also those that only the allocating stream still uses; old addresses retire
};

// What driver calls cost the allocating path, in microseconds.
struct DriverCosts {
  double create_us = 48;   // create, map, set access
  double move_us = 55;     // map, set access, unmap
  double release_us = 40;  // unmap, release
  double wait_us = 0.6;    // record an event, wait for it on the device
};

struct RecyclingOptions {
  Recycle recycle = Recycle::kStream;
  bool allows_waits = true;  // device-side, and beyond the budget only
  // Beyond the budget, wait for pieces of other streams rather than move extents of the own one.
  bool waits_before_moving = true;
  std::uint64_t lag_us = 0;  // the host sees a fence pass this long after the free
  double slack = 0.02;
  // Where moves take more than this part of the time that has passed, the slack grows with them,
  // up to most_slack at twice that part. 0: it never does.
  double time_budget = 0.02;
  double most_slack = 0.09;
  ExtentRule extents;
  // Extents are at least this part of the request that missed, up to extents.most. 0: no such
  // rule.
  std::uint64_t request_divisor = 0;
  // Likewise, where moves take more than this part of the time, each doubling of it doubles the
  // extents, up to eight times. 0: never.
  double coarsen_at = 0;
  bool has_small_range = true;
  PieceFit fit = PieceFit::kLowestAddress;
  PlaceTie tie = PlaceTie::kLowestAddress;
  VictimOrder victims = VictimOrder::kSmallestRun;
  double half_life = 0;  // of the decayed peak, in multiples of the trace's peak; 0: none
  DriverCosts costs;
};

struct RecyclingResult {
  Bytes peak_reserved_bytes = 0;
  Bytes most_retiring_bytes = 0;
  std::uint64_t misses = 0;   // requests that needed pages
  std::uint64_t joins = 0;    // served by pieces side by side that do not merge yet
  std::uint64_t created = 0;  // extents, likewise below
  std::uint64_t moved = 0;
  std::uint64_t released = 0;       // to create others of a size that fits
  std::uint64_t beyond_budget = 0;  // of created
  std::uint64_t waits = 0;          // one for each stream waited for
  double driver_us = 0;
  double moving_us = 0;  // of driver_us
};

class RecyclingModel {
 public:
  RecyclingModel(const PolicyTrace& trace, const RecyclingOptions& options);

  void replay(const PolicyEvent& event);
  // Proves the model's invariants.
  void validate() const;
  const RecyclingResult& get_result() const { return result_; }

 private:
  enum RangeIndex : std::uint8_t { kLarge, kSmall };
  struct LiveBlock {
    Address begin = 0;
    Bytes size = 0;  // 0: none
    RangeIndex range = kLarge;
    StreamSet used = 0;  // by its own stream and by others
  };
  // A place that is being filled.
  struct Filling {
    RangeIndex range = kLarge;
    Address begin = 0;
    Address end = 0;
    std::uint32_t stream = 0;
    StreamSet waited = 0;               // streams waited for so far
    std::vector<FreeExtent> victims;    // of the current step, the first to move last
    std::vector<RangeIndex> victim_of;  // likewise: the range that each lies in
  };

  void allocate(const PolicyEvent& event);
  void free(LiveBlock& block);
  // Where in the block's range; maps what is missing.
  Address find_room(const LiveBlock& block, std::uint32_t stream);
  bool suffices(const Place& place, const LiveBlock& block, StreamSet movable) const;
  Address fill(const Place& place, const LiveBlock& block, std::uint32_t stream,
               StreamSet movable);
  void fill_hole(Filling& filling, Gap hole, StreamSet movable);
  Bytes map_victim(Filling& filling, const Gap& hole);
  void create(const Filling& filling, Address begin, Bytes size);
  bool try_exchange(Filling& filling, Bytes size);
  void list_victims(Filling& filling, StreamSet movable) const;
  StreamSet get_movable(StreamSet allowed) const;
  Bytes get_regular_extent(const Filling& filling) const;
  double get_moving_share() const;
  Bytes calculate_left() const;
  void wait_for(StreamSet streams, Filling& filling);

  RecyclingOptions options_;
  RecyclingResult result_;
  std::array<AddressRange, 2> ranges_;
  std::vector<LiveBlock> live_;  // by slot
  DecayedPeak peak_;
  Bytes allocated_ = 0;
  Bytes reserved_ = 0;
  std::uint64_t now_us_ = 0;
};

RecyclingResult replay_recycling(const PolicyTrace& trace, const RecyclingOptions& options);

}  // namespace quarry::policy_model
