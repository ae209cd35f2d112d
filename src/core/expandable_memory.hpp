// SPDX-License-Identifier: Apache-2.0
// Expandable segments of one device: addresses are reserved once, extents of memory are mapped
// where requests need them, and move from where they are idle to where they are needed. What is a
// decision about values is extent_policy.hpp; here is which memory may be touched, and when.
//
// What always holds:
//   - An extent leaves its addresses only if it lies in free blocks, and everybody who used those
//     comes before whoever gets it: the same stream, one that was made to wait, or the host has
//     seen the uses done. What a capture was given never leaves while its pool is held.
//   - Addresses that an extent has left are a hole again only when unmapped, and are unmapped only
//     when the last use there has passed: work may still run on them.
//   - reserved_bytes counts each extent once, wherever and however often it is mapped.
//   - A growth happens whole or not at all.
//   - All extents of a range are of one kind, and all that serve requests or move of the kind that
//     the settings ask for, or the next weaker one that the driver makes (extent_kinds.cpp).
//   - What is pinned neither moves nor goes back: its addresses keep their memory.
//
// Everything is called with the device's mutex held. Driver calls that change mappings are made
// with it released, by one thread at a time; what they concern is retiring meanwhile.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "core/device_allocator.hpp"
#include "core/extent_policy.hpp"
#include "core/extent_range.hpp"
#include "core/growth.hpp"

namespace quarry {

class ExpandableMemory {
 public:
  explicit ExpandableMemory(DeviceAllocator& device) noexcept;
  ~ExpandableMemory();
  ExpandableMemory(const ExpandableMemory&) = delete;
  ExpandableMemory& operator=(const ExpandableMemory&) = delete;

  // Whether requests to the pool are served from expandable segments.
  bool serves(const MemPool& pool) const;

  // Memory for a request that missed: free neighbours joined, extents made or moved; a plain
  // segment if the driver has no more addresses. Null if the limit or the driver has no room.
  Result<Block*> grow(const Request& request);

  // From now on the peer may use what is mapped, and will be; and plain memory. All of it or, with
  // the driver's code, none.
  DriverCode let_in(DeviceId peer);

  // To be called when settings have changed: extents of another kind serve nobody any more.
  void update_kind();

  // Only free neighbours, joined; null if there are none that suffice. Lets go of nothing.
  Block* join(const Request& request);

  // Every stream that has freed memory gets a fence for that.
  void cover_free_memory();

  // Gives back the extents of the segments that lie in free blocks, and waits, unlocked, for all
  // work of the device if that is necessary. The first refusal's code. Inside the free gate.
  DriverCode release_idle(const std::vector<Segment*>& segments);
  // Whether the driver may be keeping extents that are nobody's, which release_idle then tries to
  // give back again.
  bool may_have_unreleased() const {
    assume_locked();
    return is_moving_ || !unreleased_.empty();
  }
  // Of a pool that nobody holds any more: the addresses, where nothing is mapped.
  void drop_unused_ranges(MemPool& pool);
  // At the very end: everything of the segment goes back, whoever uses it.
  void drain_before_tear_down();
  void tear_down(Segment& segment);
  void finish_tear_down();

  // For validate(): proves what is said above, for one segment.
  void validate(const Segment& segment) const;

 private:
  // Calls from outside begin with it, and what is called back: that the caller holds
  // device_.mutex_ is what the analysis cannot see there.
  void assume_locked() const noexcept QUARRY_ASSERT_HELD(device_.mutex_) {}

  // Whose memory a request may have.
  struct Reach {
    bool has_others = false;                  // also of streams that it could wait for
    std::vector<const Stream*> refused = {};  // but for these
  };

  // --- expandable_memory.cpp: addresses, blocks, figures ---
  bool make_range(const Request& request, Bytes least_bytes) QUARRY_REQUIRES(device_.mutex_);
  void note_no_addresses() QUARRY_REQUIRES(device_.mutex_);
  void drop_range_if_unused(Segment& segment) QUARRY_REQUIRES(device_.mutex_);
  Block& claim(Block& block, Address begin, Address end) QUARRY_REQUIRES(device_.mutex_);
  void return_part(Block& block, bool is_hole) QUARRY_REQUIRES(device_.mutex_);
  void return_claimed(Block& block) QUARRY_REQUIRES(device_.mutex_);
  void make_hole(Block& retiring) QUARRY_REQUIRES(device_.mutex_);
  void count_reserved(Segment& segment, std::int64_t bytes) QUARRY_REQUIRES(device_.mutex_);
  Bytes calculate_peak(const Request& request) const QUARRY_REQUIRES(device_.mutex_);
  void note_cost() QUARRY_REQUIRES(device_.mutex_);
  Bytes calculate_left(const Request& request) const QUARRY_REQUIRES(device_.mutex_);
  struct Room {
    Bytes of_device = 0;
    Bytes of_pool = 0;
    Bytes get_least() const { return std::min(of_device, of_pool); }
  };
  Room calculate_room(const Request& request) const QUARRY_REQUIRES(device_.mutex_);
  void wait_until_nobody_moves() QUARRY_REQUIRES(device_.mutex_);
  static bool has_passed(const Block& block);

  // --- extent_access.cpp: who may use it ---
  std::vector<MappedRun> list_mapped() const QUARRY_REQUIRES(device_.mutex_);

  // --- extent_kinds.cpp: of which kind it is ---
  void set_outdated(Segment& segment, bool is_outdated) QUARRY_REQUIRES(device_.mutex_);
  static int find_common_lane(const Segment& segment);
  void refuse_kind(const ExtentKind& kind) QUARRY_REQUIRES(device_.mutex_);
  void note_kind() QUARRY_REQUIRES(device_.mutex_);
  void release_outdated() QUARRY_REQUIRES(device_.mutex_);

  // --- extent_release.cpp: giving extents and addresses back ---
  static void list_idle(const Segment& segment, std::vector<Departure>& idle);
  DriverCode unmap_after_drain(std::vector<Departure>& left, std::vector<Departure>& departures);
  static void update_has_passed(Departure& departure);
  void start_leaving(Departure& departure) QUARRY_REQUIRES(device_.mutex_);
  void return_or_leave(Departure& departure) QUARRY_REQUIRES(device_.mutex_);
  void finish_leaving(Departure& departure) QUARRY_REQUIRES(device_.mutex_);
  std::vector<Departure> take_left_addresses(std::size_t most) QUARRY_REQUIRES(device_.mutex_);
  void return_left_addresses(std::vector<Departure>& left) QUARRY_REQUIRES(device_.mutex_);
  void count_release(const Segment& segment) QUARRY_REQUIRES(device_.mutex_);

  // --- expandable_growth.cpp: where a request gets its memory ---
  bool is_usable(const Block& block, const Request& request, const Reach& reach) const
      QUARRY_REQUIRES(device_.mutex_);
  bool may_move(const Block& block, const Request& request, const Reach& reach) const
      QUARRY_REQUIRES(device_.mutex_);
  static bool may_wait_for(const Stream& owner, const Reach& reach);
  std::optional<Growth> find_place(const Request& request, const Reach& reach) const
      QUARRY_REQUIRES(device_.mutex_);
  void consider_run(Block& in, const Request& request, const Reach& reach, Address& run_end,
                    std::optional<Growth>& best, Place& best_place) const
      QUARRY_REQUIRES(device_.mutex_);
  enum class Budget { kKept, kExceeded, kExactly };
  bool fill(Growth& growth, const Request& request, const Reach& reach, Budget budget) const
      QUARRY_REQUIRES(device_.mutex_);
  class Sources;
  struct HoleFront {
    Address begin = 0;
    Bytes need = 0;  // of the request
    Bytes size = 0;  // of the hole, from here on
  };
  bool add_arrival(Growth& growth, const Request& request, Sources& sources, Budget budget,
                   const HoleFront& front) const QUARRY_REQUIRES(device_.mutex_);
  void list_departures(const Growth& growth, const Request& request, const Reach& reach,
                       std::vector<Departure>& departures) const QUARRY_REQUIRES(device_.mutex_);
  bool order_after_owners(const Growth& growth, const Request& request, Reach& reach)
      QUARRY_REQUIRES(device_.mutex_);
  Block* take_pending_of_others(const Request& request) QUARRY_REQUIRES(device_.mutex_);
  Block* take_ordered_pending(const Request& request) QUARRY_REQUIRES(device_.mutex_);
  enum class Means { kNew, kNewAndMoved };
  Result<Block*> grow_in_ranges(const Request& request) QUARRY_REQUIRES(device_.mutex_);
  Result<Block*> grow_within_budget(const Request& request, Means means)
      QUARRY_REQUIRES(device_.mutex_);
  Result<Block*> grow_after_waiting(const Request& request) QUARRY_REQUIRES(device_.mutex_);
  Result<Block*> grow_beyond_budget(const Request& request, Budget budget)
      QUARRY_REQUIRES(device_.mutex_);
  Result<Block*> carry_out(Growth& growth, const Request& request) QUARRY_REQUIRES(device_.mutex_);
  void claim_all(Growth& growth) QUARRY_REQUIRES(device_.mutex_);
  void claim_departures(std::vector<Departure>& departures) QUARRY_REQUIRES(device_.mutex_);
  Block& settle(Growth& growth, const Request& request) QUARRY_REQUIRES(device_.mutex_);
  void roll_back(Growth& growth) QUARRY_REQUIRES(device_.mutex_);

  DeviceAllocator& device_;
  std::map<const Segment*, std::unique_ptr<ExtentRange>> ranges_ QUARRY_GUARDED_BY(device_.mutex_);
  // Addresses that extents have left and work may still use, in order of time.
  std::deque<Departure> leaving_ QUARRY_GUARDED_BY(device_.mutex_);
  // Of the thread that moves memory, meanwhile without the mutex.
  UnreleasedExtents unreleased_;
  DeviceDrain drain_;
  // Of new extents; what the settings ask for; what the driver has refused of that.
  ExtentKind kind_ QUARRY_GUARDED_BY(device_.mutex_);
  ExtentKind wanted_kind_ QUARRY_GUARDED_BY(device_.mutex_);
  std::vector<ExtentKind> refused_kinds_ QUARRY_GUARDED_BY(device_.mutex_);
  int outdated_ QUARRY_GUARDED_BY(device_.mutex_) = 0;  // ranges
  // The devices that may use the memory: this one, and peers.
  std::vector<DeviceId> access_ QUARRY_GUARDED_BY(device_.mutex_);
  // Allocated, the highest seen at a miss that was served.
  Bytes peak_bytes_ QUARRY_GUARDED_BY(device_.mutex_) = 0;
  bool is_moving_ QUARRY_GUARDED_BY(device_.mutex_) = false;
  bool has_noted_no_addresses_ QUARRY_GUARDED_BY(device_.mutex_) = false;
  bool has_noted_cost_ QUARRY_GUARDED_BY(device_.mutex_) = false;
  bool has_grown_ QUARRY_GUARDED_BY(device_.mutex_) = false;
  // Looking at the time forgets what is long past.
  mutable MovingTime moving_time_ QUARRY_GUARDED_BY(device_.mutex_);
};

}  // namespace quarry
