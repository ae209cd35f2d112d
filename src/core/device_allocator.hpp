// SPDX-License-Identifier: Apache-2.0
// One device's caching allocator: the algorithm, readable top to bottom in device_allocator.cpp.
// What happens when the cache has no fitting block is reclaim.cpp; giving segments back is
// release.cpp; figures and reports are device_report.cpp; the proof of the invariants is
// validate.cpp.
//
// Locking: one mutex guards everything (lane.hpp says how requests of one stream do without it).
// Driver calls that may be slow (allocate, free, waits) are
// made with it released, by reclaim.cpp and release.cpp alone; whatever they concern is detached
// before and accounted after, and the cache is searched again. The calls made under it are short:
// event create, record, query, capture status. No code of the user's runs under it, and nothing is
// logged.
//
// If host memory runs out inside a call, the process ends: half a change to the books would be
// worse.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.hpp"
#include "base/status.hpp"
#include "core/allocator.hpp"
#include "core/block.hpp"
#include "core/callbacks.hpp"
#include "core/config.hpp"
#include "core/fence.hpp"
#include "core/free_gate.hpp"
#include "core/gone_graphs.hpp"
#include "core/mem_pool.hpp"
#include "core/object_pool.hpp"
#include "core/pins.hpp"
#include "core/pointer_map.hpp"
#include "core/pool_checkpoint.hpp"
#include "core/pool_options.hpp"
#include "core/released.hpp"
#include "core/request.hpp"
#include "core/routing.hpp"
#include "core/served_captures.hpp"
#include "core/size_policy.hpp"
#include "core/stream_table.hpp"
#include "core/thread_magazines.hpp"
#include "driver/driver.hpp"
#include "stats/device_stats.hpp"

namespace quarry {

class ExpandableMemory;

// What all devices of one Allocator share. Outlives the devices.
struct SharedParts {
  Driver& driver;
  PointerMap& pointer_map;
  Callbacks& callbacks;
  FreeGate& free_gate;
  std::uint64_t first_serial;  // of device 0; see make_device_serials
};

class DeviceAllocator {
 public:
  DeviceAllocator(SharedParts shared, DeviceId device, const DeviceProperties& properties,
                  const Config& config);
  // Makes no driver call: tear_down gives the memory back, and a forked child does not call it.
  ~DeviceAllocator();
  DeviceAllocator(const DeviceAllocator&) = delete;
  DeviceAllocator& operator=(const DeviceAllocator&) = delete;

  // See Allocator for the meaning of each.
  Block* take_from_lane(StreamHandle stream, Bytes bytes) noexcept QUARRY_EXCLUDES(mutex_);
  Result<Address> allocate(StreamHandle stream, Bytes bytes, Bytes alignment, PoolId pool) noexcept
      QUARRY_EXCLUDES(mutex_);
  // How a block comes back, whose is_held the caller has exchanged from true to false; nullopt
  // owner: to the stream that it belongs to, or into a magazine of the calling thread.
  void free(Block& block, std::optional<StreamHandle> new_owner) noexcept QUARRY_EXCLUDES(mutex_);
  // Counts a sized free that named another size, and says so.
  Status fail_size_mismatch(Bytes expected_bytes, Bytes requested_bytes) QUARRY_EXCLUDES(mutex_);
  Status record_stream(Address address, StreamHandle stream) noexcept QUARRY_EXCLUDES(mutex_);
  Status let_in_peer(DeviceId peer) noexcept QUARRY_EXCLUDES(mutex_);
  Status pin(Address address, Bytes bytes) noexcept QUARRY_EXCLUDES(mutex_);
  Status unpin(Address address, Bytes bytes) noexcept QUARRY_EXCLUDES(mutex_);
  Status retire_stream(StreamHandle stream) noexcept QUARRY_EXCLUDES(mutex_);
  void retire_thread_streams() noexcept QUARRY_EXCLUDES(mutex_);
  Status empty_cache() noexcept QUARRY_EXCLUDES(mutex_);

  // Private pools, pools.cpp.
  Status retain_pool(PoolId id, const PoolOptions& options) QUARRY_EXCLUDES(mutex_);
  // A pool for the graph that the stream's capture makes, held until that is gone; if there is
  // none yet, and it may be made. Whether there is one.
  Result<bool> make_graph_pool(PoolId id, StreamHandle stream, bool may_make) noexcept
      QUARRY_EXCLUDES(mutex_);
  // Whether captures may be under way that are served from such pools.
  bool has_captures_of_graph_pools() QUARRY_EXCLUDES(mutex_);
  Status hold_pool(PoolId id) QUARRY_EXCLUDES(mutex_);
  Result<PoolHolders> release_pool(PoolId id) noexcept QUARRY_EXCLUDES(mutex_);
  // Requests will be routed to the pool, perhaps of captures; its tenure.
  Result<std::uint64_t> prepare_pool(PoolId id, bool may_capture) QUARRY_EXCLUDES(mutex_);
  // Brings in what has become free.
  void settle() QUARRY_EXCLUDES(mutex_);
  Status trim_pool(PoolId id) noexcept QUARRY_EXCLUDES(mutex_);
  Status change_pool(PoolId id, const PoolChange& change) QUARRY_EXCLUDES(mutex_);
  Result<PoolReport> get_pool_report(PoolId id) QUARRY_EXCLUDES(mutex_);
  std::vector<PoolReport> get_pool_reports() QUARRY_EXCLUDES(mutex_);
  Result<PoolCheckpoint> save_pool(PoolId id) noexcept QUARRY_EXCLUDES(mutex_);
  Result<RestoredPool> restore_pool(const PoolCheckpoint& saved, StaleFrees frees) noexcept
      QUARRY_EXCLUDES(mutex_);
  // Whether there was a claim.
  bool forget_stale(Address address) noexcept QUARRY_EXCLUDES(mutex_);
  Result<std::vector<Address>> get_live_blocks(PoolId id) noexcept QUARRY_EXCLUDES(mutex_);

  void configure(const Config& config) QUARRY_EXCLUDES(mutex_);
  void set_memory_fraction(double fraction) QUARRY_EXCLUDES(mutex_);
  double get_memory_fraction() const QUARRY_EXCLUDES(mutex_);
  void set_limit(Bytes bytes) QUARRY_EXCLUDES(mutex_);
  Bytes get_limit() const QUARRY_EXCLUDES(mutex_);

  DeviceStats get_stats() QUARRY_EXCLUDES(mutex_);
  std::vector<StreamCache> get_stream_caches() const QUARRY_EXCLUDES(mutex_);
  void reset_peak_stats() QUARRY_EXCLUDES(mutex_);
  void reset_accumulated_stats() QUARRY_EXCLUDES(mutex_);
  void count_invalid_free() QUARRY_EXCLUDES(mutex_);
  std::optional<BlockInfo> find_block(Address address) const QUARRY_EXCLUDES(mutex_);
  // What a pointer that is no live block is, in words; empty if it lies in no segment here.
  std::string describe_address(Address address, bool* is_freed_block) const
      QUARRY_EXCLUDES(mutex_);

  void validate() QUARRY_EXCLUDES(mutex_);
  void validate_segment(Address address) QUARRY_EXCLUDES(mutex_);

  // Async-signal-safe.
  void mark_forked() noexcept { routing_.set(RoutingReason::kForked); }

  // Returns everything to the driver, live blocks too; their number. The last call.
  std::size_t tear_down() QUARRY_EXCLUDES(mutex_);

 private:
  // Holds the mutex; after releasing it, logs what was noted meanwhile.
  class Section;
  // A part of this class, with state of its own.
  friend class ExpandableMemory;

  // --- device_allocator.cpp: the algorithm ---
  void settle_frees() QUARRY_REQUIRES(mutex_);
  void settle_everything() QUARRY_REQUIRES(mutex_);
  void collect_fences() QUARRY_REQUIRES(mutex_);
  Request make_request(Stream& stream, Bytes bytes, Bytes alignment) QUARRY_REQUIRES(mutex_);
  Block* find_free_block(const Request& request) QUARRY_REQUIRES(mutex_);
  Block* find_fitting(const Request& request) const QUARRY_REQUIRES(mutex_);
  Block* find_fitting_of(const Stream& owner, const Request& request) const
      QUARRY_REQUIRES(mutex_);
  Address serve(Block& found, const Request& request) QUARRY_REQUIRES(mutex_);
  Block& carve(Block& found, const Request& request, InactiveSplitChange& change)
      QUARRY_REQUIRES(mutex_);
  void give(Block& block, const Request& request) QUARRY_REQUIRES(mutex_);
  void hand_out(Block& block, const Request& request) QUARRY_REQUIRES(mutex_);
  void take_back(Block& block) QUARRY_REQUIRES(mutex_);
  void start_free(Block& block) QUARRY_REQUIRES(mutex_);
  void guard_foreign_uses(Block& block) QUARRY_REQUIRES(mutex_);
  void complete_free(Block& block) QUARRY_REQUIRES(mutex_);
  void note_if_finished(const Segment& segment) QUARRY_REQUIRES(mutex_);
  void complete_done() QUARRY_REQUIRES(mutex_);
  InactiveSplitChange return_to_pool(Block& block) QUARRY_REQUIRES(mutex_);
  Block& coalesce(Block& block, InactiveSplitChange& change) QUARRY_REQUIRES(mutex_);
  void pool_insert(Block& block, InactiveSplitChange& change) QUARRY_REQUIRES(mutex_);
  void pool_remove(Block& block, InactiveSplitChange& change) QUARRY_REQUIRES(mutex_);
  void apply(const InactiveSplitChange& change, StatFamily family) QUARRY_REQUIRES(mutex_);
  static bool is_own_stream(const Block& block, const Stream& stream);
  void note(std::string line) QUARRY_REQUIRES(mutex_) { notices_.push_back(std::move(line)); }

  // --- lanes.cpp: a stream's own memory, without the device's mutex ---
  void open_lane(StreamHandle handle, Stream& stream, ThreadMagazines& own)
      QUARRY_REQUIRES(mutex_);
  BlockStock& get_stock(const Stream& stream) QUARRY_REQUIRES(mutex_);
  Block* take_small(Stream& stream, Lane& lane, Bytes bytes, ThreadMagazines& own);
  Block* take_large(Stream& stream, Lane& lane, Bytes bytes, ThreadMagazines& own);
  bool return_parked_in_lane(Stream& stream, Lane& lane, Bytes bytes, ThreadMagazines& own);
  bool free_in_lane(Block& block, ThreadMagazines& own) QUARRY_EXCLUDES(mutex_);
  bool return_in_lanes(ThreadMagazines& own) QUARRY_EXCLUDES(mutex_);
  bool may_free_in_lane(const Block& block, const Lane& lane) const;
  void take_back_in_lane(Block& block, Lane& lane, ThreadMagazines& own);
  template <class Pool>
  static InactiveSplitChange put_back(Block& block, Pool& pool, BlockStock& blocks);
  std::uint64_t get_free_count() QUARRY_REQUIRES(mutex_);
  void note_unsettled() QUARRY_REQUIRES(mutex_);

  // --- stream_life.cpp: whose memory it is ---
  void adopt_as_idle(Stream& drained) QUARRY_REQUIRES(mutex_);
  void set_owner(Block& block, Stream& owner) QUARRY_REQUIRES(mutex_);
  void release_reference(Stream& stream) QUARRY_REQUIRES(mutex_);
  void forget_streams() QUARRY_REQUIRES(mutex_);

  Stream& get_idle_owner(const Block& block) QUARRY_REQUIRES(mutex_);
  void change_owner_of_free(MemPool& pool, const Stream& from, Stream& to) QUARRY_REQUIRES(mutex_);

  // --- pools.cpp: private pools ---
  MemPool* find_pool(PoolId id) QUARRY_REQUIRES(mutex_);
  MemPool& make_pool(PoolId id, const PoolOptions& options) QUARRY_REQUIRES(mutex_);
  Result<MemPool*> require_pool(PoolId id) QUARRY_REQUIRES(mutex_);
  void hold(MemPool& pool) QUARRY_REQUIRES(mutex_);
  int release(MemPool& pool) QUARRY_REQUIRES(mutex_);
  void release_pools_of_gone_graphs() QUARRY_REQUIRES(mutex_);
  void drop_pool_if_unused(MemPool& pool) QUARRY_REQUIRES(mutex_);
  PoolReport make_report(const MemPool& pool) QUARRY_REQUIRES(mutex_);
  Block* borrow(const Request& request) QUARRY_REQUIRES(mutex_);
  DriverResult<Address> obtain_segment(const Request& request) QUARRY_REQUIRES(mutex_);
  DriverResult<Address> obtain_from_backend(const Request& request) QUARRY_REQUIRES(mutex_);
  bool overlaps_segment(Address address, Bytes bytes) const QUARRY_REQUIRES(mutex_);
  bool is_over_pool_limit(const Request& request) const QUARRY_REQUIRES(mutex_);
  void list_vacant(const MemPool& pool, std::vector<Segment*>& vacant) const
      QUARRY_REQUIRES(mutex_);
  void return_finished() QUARRY_REQUIRES(mutex_);
  void count_private(const Block& block, int allocated, int active) QUARRY_REQUIRES(mutex_);
  // Calls visit(MemPool&) for the default pool and then the private ones.
  template <class Visit>
  void for_each_pool(Visit visit) QUARRY_REQUIRES(mutex_);

  // --- captures.cpp: what captures were given, and give back ---
  Status enter_capture(Request& request) QUARRY_REQUIRES(mutex_);
  Stream& get_captured_stream(MemPool& pool, Stream& stream) QUARRY_REQUIRES(mutex_);
  void adopt_captured_idle(MemPool& pool) QUARRY_REQUIRES(mutex_);
  void adopt_ended_captures(const Request& request) QUARRY_REQUIRES(mutex_);
  void end_captured_stream(MemPool& pool, const Stream& drained) QUARRY_REQUIRES(mutex_);
  void guard_captured(Block& block) QUARRY_REQUIRES(mutex_);
  bool is_in_capture(const ForeignUse& use) QUARRY_REQUIRES(mutex_);
  void wait_for_captures(Block& block, const std::vector<ForeignUse>& uses)
      QUARRY_REQUIRES(mutex_);
  void adopt_finished(MemPool& pool) QUARRY_REQUIRES(mutex_);
  bool may_reclaim() QUARRY_REQUIRES(mutex_);

  // --- pool_checkpoint.cpp: back to an earlier layout ---
  std::vector<Block*> list_blocks(const MemPool& pool, BlockState state) const
      QUARRY_REQUIRES(mutex_);
  Status wait_until_settled(PoolId id) QUARRY_REQUIRES(mutex_);
  Status check_restorable(const PoolCheckpoint& saved) QUARRY_REQUIRES(mutex_);
  Status wait_for_former_owners(const PoolCheckpoint& saved) QUARRY_REQUIRES(mutex_);
  void revoke(Block& block) QUARRY_REQUIRES(mutex_);
  void lay_out(Segment& segment, const PoolCheckpoint::Segment& saved, RestoredPool& restored)
      QUARRY_REQUIRES(mutex_);
  Block* lay_out_gap(Block& rest, PoolCheckpoint::Place& part, PoolCheckpoint::Place end,
                     InactiveSplitChange& change, RestoredPool& restored) QUARRY_REQUIRES(mutex_);
  Stream& find_owner_again(const Segment& segment, const PoolCheckpoint::Block& saved)
      QUARRY_REQUIRES(mutex_);
  void give_again(Block& block, const PoolCheckpoint::Block& saved) QUARRY_REQUIRES(mutex_);
  bool take_stale_claim(Address address) QUARRY_REQUIRES(mutex_);

  // --- parking.cpp: the magazines of threads, seen from the device ---
  ThreadMagazines* join_thread() QUARRY_REQUIRES(mutex_);
  bool empty_magazines() QUARRY_REQUIRES(mutex_);
  bool free_own_parked_of(const Request& request) QUARRY_REQUIRES(mutex_);
  bool free_others_parked_of(const Request& request) QUARRY_REQUIRES(mutex_);
  bool drop_ended_threads() QUARRY_REQUIRES(mutex_);
  bool free_parked(Block* list) QUARRY_REQUIRES(mutex_);
  void take_counts(ThreadMagazines& magazines) QUARRY_REQUIRES(mutex_);
  void add_counts(const ThreadCounts& counts) QUARRY_REQUIRES(mutex_);
  Bytes take_all_counts() QUARRY_REQUIRES(mutex_);
  void update_routing() QUARRY_REQUIRES(mutex_);

  // --- reclaim.cpp: what a miss does ---
  Result<Block*> reclaim(const Request& request) QUARRY_REQUIRES(mutex_);
  Result<Block*> climb(const Request& request) QUARRY_REQUIRES(mutex_);
  Result<Block*> climb_last_rung(const Request& request) QUARRY_REQUIRES(mutex_);
  Result<Block*> release_and_grow(const Request& request, FreeGate::Entry* gate)
      QUARRY_REQUIRES(mutex_);
  bool may_grow_beside_parked(const Request& request) const QUARRY_REQUIRES(mutex_);
  Block* search_magazines(const Request& request) QUARRY_REQUIRES(mutex_);
  Block* search_again(const Request& request) QUARRY_REQUIRES(mutex_);
  Block* search_everywhere(const Request& request) QUARRY_REQUIRES(mutex_);
  bool ask_callbacks(const Request& request) QUARRY_REQUIRES(mutex_);
  Result<Block*> grow(const Request& request) QUARRY_REQUIRES(mutex_);
  Result<Block*> grow_plain(const Request& request) QUARRY_REQUIRES(mutex_);
  Block& add_segment(Address address, const Request& request) QUARRY_REQUIRES(mutex_);
  void collect_garbage() QUARRY_REQUIRES(mutex_);
  bool release_oversize(const Request& request) QUARRY_REQUIRES(mutex_);
  void wait_for_fences() QUARRY_REQUIRES(mutex_);
  bool is_over_limit(Bytes more_bytes) const QUARRY_REQUIRES(mutex_);
  Status fail_out_of_memory(const Request& request) QUARRY_REQUIRES(mutex_);
  void wait_for_turn() QUARRY_REQUIRES(mutex_);
  void take_last_rung() QUARRY_REQUIRES(mutex_);
  void leave_last_rung() QUARRY_REQUIRES(mutex_);
  // Runs `call` with the mutex released, counted as an operation under way.
  template <class Call>
  auto run_unlocked(Call call) QUARRY_REQUIRES(mutex_);

  // --- release.cpp: giving segments back ---
  enum class Need { kEmptyCache, kMemoryShort };
  Released release_vacant_segments(Need need) QUARRY_REQUIRES(mutex_);
  void list_ranges(const MemPool& pool, std::vector<Segment*>& ranges) const
      QUARRY_REQUIRES(mutex_);
  Released release_extents(const std::vector<Segment*>& ranges) QUARRY_REQUIRES(mutex_);
  void return_to_backends(const std::vector<Segment*>& segments) QUARRY_REQUIRES(mutex_);
  Released release_segments(const std::vector<Segment*>& segments) QUARRY_REQUIRES(mutex_);
  void wait_for_gate() QUARRY_REQUIRES(mutex_);
  std::vector<Segment*> choose_garbage(Bytes target_bytes) const QUARRY_REQUIRES(mutex_);
  std::vector<Segment*> choose_oversize(const Request& request, bool* is_enough) const
      QUARRY_REQUIRES(mutex_);
  std::uint32_t get_age(const Segment& segment) const QUARRY_REQUIRES(mutex_);
  void detach(Segment& segment) QUARRY_REQUIRES(mutex_);
  void attach_again(Segment& segment) QUARRY_REQUIRES(mutex_);
  void erase_segment(Segment& segment) QUARRY_REQUIRES(mutex_);

  // --- device_report.cpp ---
  OomReport make_oom_report(const Request& request) const QUARRY_REQUIRES(mutex_);
  std::vector<StreamCache> list_caches() const QUARRY_REQUIRES(mutex_);
  static Bytes find_largest_free(const MemPool& pool, const Stream& stream);
  Bytes calculate_allowed_bytes() const QUARRY_REQUIRES(mutex_);
  bool has_limit() const QUARRY_REQUIRES(mutex_);
  Segment* find_segment(Address address) const QUARRY_REQUIRES(mutex_);
  const Block* find_held(Address inside) const QUARRY_REQUIRES(mutex_);

  // --- pinning.cpp ---
  void change_pins(const PinnedRange& range, int change) QUARRY_REQUIRES(mutex_);
  void validate_pins() QUARRY_REQUIRES(mutex_);

  // --- validate.cpp ---
  struct Sums;
  void collect_parked(Sums& sums) QUARRY_REQUIRES(mutex_);
  void validate_blocks(const Segment& segment, Sums& sums) const QUARRY_REQUIRES(mutex_);
  void validate_block(const Block& block, Sums& sums) const QUARRY_REQUIRES(mutex_);
  void validate_segments(const MemPool& pool, Sums& sums) QUARRY_REQUIRES(mutex_);
  void validate_pools(const Sums& sums) QUARRY_REQUIRES(mutex_);
  void validate_fences(const Sums& sums) const QUARRY_REQUIRES(mutex_);
  void validate_stats(const Sums& sums) const QUARRY_REQUIRES(mutex_);

  Driver& driver_;
  PointerMap& pointer_map_;
  Callbacks& callbacks_;
  FreeGate& free_gate_;
  const DeviceId device_;
  const DeviceProperties properties_;

  const std::uint64_t serial_;
  // Read by every call without the mutex, changed under it (but for kForked).
  RoutingWord routing_;

  BlockSource block_source_;
  mutable DeviceMutex mutex_;
  Config config_ QUARRY_GUARDED_BY(mutex_);
  double fraction_ QUARRY_GUARDED_BY(mutex_) = 1.0;
  Bytes limit_ QUARRY_GUARDED_BY(mutex_) = kUnlimited;

  MemPool default_pool_ QUARRY_GUARDED_BY(mutex_);
  std::map<PoolId, std::unique_ptr<MemPool>> private_pools_ QUARRY_GUARDED_BY(mutex_);
  std::uint64_t last_tenure_ QUARRY_GUARDED_BY(mutex_) = 0;
  StreamTable streams_ QUARRY_GUARDED_BY(mutex_);
  Fences fences_ QUARRY_GUARDED_BY(mutex_);
  ServedCaptures captures_ QUARRY_GUARDED_BY(mutex_);
  ObjectPool<Segment> segments_ QUARRY_GUARDED_BY(mutex_);
  BlockStock stock_ QUARRY_GUARDED_BY(mutex_);  // for blocks of streams without a lane
  ObjectPool<ForeignUse> foreign_uses_ QUARRY_GUARDED_BY(mutex_);
  // Without detached ones: the driver may give their addresses out again before we hear of it.
  std::map<Address, Segment*> segments_by_address_ QUARRY_GUARDED_BY(mutex_);
  std::uint64_t next_sequence_ QUARRY_GUARDED_BY(mutex_) = 1;

  std::vector<ThreadMagazines*> magazines_ QUARRY_GUARDED_BY(mutex_);  // a share of each
  std::uint32_t next_thread_number_ QUARRY_GUARDED_BY(mutex_) = 0;
  std::vector<ThreadMagazines*> parkers_ QUARRY_GUARDED_BY(mutex_);  // scratch

  // Freed on threads that may not call the driver; pending until an ordinary call takes them on.
  std::vector<Block*> queued_frees_ QUARRY_GUARDED_BY(mutex_);
  // Frees that are still to come of blocks which a restore has taken from their holders.
  std::map<Address, int> stale_claims_ QUARRY_GUARDED_BY(mutex_);
  Pins pins_ QUARRY_GUARDED_BY(mutex_);
  // Scratch of collect_fences and the like, kept for its capacity.
  std::vector<Block*> done_ QUARRY_GUARDED_BY(mutex_);
  std::vector<Stream*> drained_ QUARRY_GUARDED_BY(mutex_);

  const std::unique_ptr<ExpandableMemory> expandable_ QUARRY_PT_GUARDED_BY(mutex_);

  // Driver calls made with the mutex released, and what waits for them.
  int operations_under_way_ QUARRY_GUARDED_BY(mutex_) = 0;
  Bytes growing_bytes_ QUARRY_GUARDED_BY(mutex_) = 0;   // asked of the driver, not yet reserved
  Bytes retiring_bytes_ QUARRY_GUARDED_BY(mutex_) = 0;  // detached, still reserved
  std::uint64_t last_rung_owner_ QUARRY_GUARDED_BY(mutex_) = 0;  // thread token; 0: nobody
  std::uint64_t free_count_ QUARRY_GUARDED_BY(mutex_) = 0;       // by users, ever
  std::condition_variable_any changed_;

  DeviceStats stats_ QUARRY_GUARDED_BY(mutex_);
  std::int64_t held_requested_bytes_ QUARRY_GUARDED_BY(mutex_) = 0;  // of allocated blocks
  std::vector<std::string> notices_ QUARRY_GUARDED_BY(mutex_);  // to be logged after unlocking
  // Of pools that are gone: to be called after unlocking.
  std::vector<std::function<void()>> unused_hooks_ QUARRY_GUARDED_BY(mutex_);
  const std::shared_ptr<GoneGraphs> gone_graphs_ = std::make_shared<GoneGraphs>();
  // Released pools with a backend of their own may have vacant segments.
  bool has_finished_backends_ QUARRY_GUARDED_BY(mutex_) = false;
};

}  // namespace quarry

#include "core/device_section.hpp"
