// SPDX-License-Identifier: Apache-2.0
// The allocator of all devices behind one driver: the root of the ownership tree
// (Allocator -> DeviceAllocator -> MemPool -> Segment -> Block) and the whole interface of the
// core. It finds the device of an address and forwards; the algorithm is in device_allocator.hpp.
//
// Thread safety: every member may be called from any thread at any time, except create and the
// destructor. Errors: a Status; when one is returned nothing was changed unless said otherwise.
// Streams: see "Fences and streams" in docs/design.md. Every stream ever passed in must be retired
// before it is destroyed; work that is launched on a block's stream before the free is ordered
// before whoever gets the memory next.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "base/mutex.hpp"
#include "base/status.hpp"
#include "core/callbacks.hpp"
#include "core/capture_router.hpp"
#include "core/config.hpp"
#include "core/free_gate.hpp"
#include "core/oom_report.hpp"
#include "core/pointer_map.hpp"
#include "core/pool_checkpoint.hpp"
#include "core/pool_options.hpp"
#include "core/routing.hpp"
#include "core/thread_magazines.hpp"
#include "driver/driver.hpp"
#include "stats/device_stats.hpp"

namespace quarry {

class DeviceAllocator;

// What is known about an address inside a block that the user holds.
struct BlockInfo {
  Address address = 0;  // start of the block
  Bytes bytes = 0;      // whole block
  Bytes requested_bytes = 0;
  Address segment_address = 0;
  Bytes segment_bytes = 0;
  bool is_expandable = false;  // then memory is only where there are blocks
  StreamRef stream;            // the stream that the block belongs to
};

class Allocator {
 public:
  // Asks the driver for its devices; allocates no device memory. `driver` must outlive the result.
  static Result<std::unique_ptr<Allocator>> create(Driver& driver, const Config& config);
  // Gives all memory back to the driver, that of blocks still held included (their number is
  // logged). No other thread may be inside a call. In a forked child it makes no driver call.
  ~Allocator();
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

  int device_count() const noexcept { return static_cast<int>(devices_.size()); }

  // At least `bytes` bytes for use on `stream`, aligned to `alignment` (a power of two; 512 is
  // the least there is). 0 bytes: address 0, and nothing happens. kOutOfMemory has the report as
  // its message. May wait for the device when memory is short.
  Result<Address> allocate(StreamRef stream, Bytes bytes, Bytes alignment = kMinBlock);

  // The three ways that allocate tries in turn. A block that the calling thread has parked; null,
  // also where that would take a second look. Waits for nothing and calls nothing.
  [[gnu::always_inline]] const Block* take_parked(StreamRef stream, Bytes bytes) noexcept;
  // After that: with a second look, or from the stream's own free memory; or 0. Waits for its lane
  // only, calls no driver.
  Address take_from_lane(StreamRef stream, Bytes bytes) noexcept;
  // The rest, and for whatever the others cannot serve.
  Result<Address> allocate_from_device(StreamRef stream, Bytes bytes, Bytes alignment);
  // From this pool, whatever is begun.
  Result<Address> allocate_in_pool(StreamRef stream, Bytes bytes, Bytes alignment, PoolId pool);

  // Never waits and makes no driver call, except one event record for each foreign stream of the
  // block. Address 0 is fine. Any thread may free, a driver callback too (see
  // DriverCallbackScope).
  Status free(Address address) noexcept;
  // The same for a live block of a running allocator; false, with nothing done, if it is none, or
  // not found at once: then free says what is wrong, or does it.
  [[gnu::always_inline]] bool try_free(Address address) noexcept;
  // As free; kSizeMismatch when `bytes` is not what was asked for. The block is freed all the
  // same.
  Status free_sized(Address address, Bytes bytes) noexcept;
  // As free, but from now on the memory belongs to `stream` of the same device: the caller has
  // ordered all uses before this point of `stream`.
  Status free_on_stream(Address address, StreamHandle stream) noexcept;

  // The block is also used on `stream`: its memory is reused only when what is submitted there
  // before the free is done. kInvalidPointer if no live block begins at `address`, a freed one
  // included; not counted, since nothing was freed.
  Status record_stream(Address address, StreamHandle stream) noexcept;

  // From now on work of `device` may use the memory of `peer`, which is another one: what is there
  // and what will be. kDriverError, with nothing changed, if the driver refuses; kBusy in a driver
  // callback. Success if it could already. Ordering the work of two devices is the user's affair.
  Status enable_peer_access(DeviceId device, DeviceId peer) noexcept;

  // [address, address + bytes), inside one block that a user holds, keeps its physical memory at
  // its addresses until it is unpinned as often as it was pinned, by this same range; a free of
  // the block does not change that. kInvalidPointer if it is not so; kInvalidArgument for 0 bytes,
  // and from unpin for a range that is not pinned. Neither waits for the device.
  Status pin(Address address, Bytes bytes) noexcept;
  Status unpin(Address address, Bytes bytes) noexcept;

  // `stream` will be destroyed. Records one event; does not wait. Memory cached for the stream
  // becomes usable by all streams when its work is done; the handle may come back as a new stream.
  // kBusy while the stream captures.
  Status retire_stream(StreamRef stream) noexcept;
  // Retires the calling thread's per-thread default streams. For thread exit; does nothing in a
  // driver callback.
  void retire_thread_streams() noexcept;

  // Waits for pending frees and returns every vacant segment to the driver. A failure of the
  // driver is returned; what could be released was. kBusy, with nothing done, in a driver callback
  // and while the calling thread holds the free gate.
  Status empty_cache(DeviceId device);

  // Private pools (docs/pools.md), each of one device. Retain makes the pool or holds it once
  // more; the options are those of whoever was the first to hold it. The last release ends its
  // routes, and its memory goes back as soon as its blocks are freed. kInvalidArgument for a pool
  // that there is not. kBusy from retain: released, not gone yet, and functions of the user's are
  // in the old options or the new.
  Status retain_pool(DeviceId device, PoolId pool, const PoolOptions& options = {});
  // Holds a pool that there is once more.
  Status hold_pool(DeviceId device, PoolId pool);
  Status release_pool(DeviceId device, PoolId pool) noexcept;
  // From now on requests that the route accepts are served from its pool; see CaptureRouter.
  Status begin_pool(const Route& route);
  Status end_pool(DeviceId device, PoolId pool);
  // Ends what the calling thread has begun for itself; how many. For thread exit. (A stream that
  // is retired ends the routes that name it.)
  std::size_t end_thread_pools();
  // Waits for pending frees, and gives back the vacant segments that no capture was given; those
  // of a released pool all.
  Status trim_pool(DeviceId device, PoolId pool);
  Status change_pool(DeviceId device, PoolId pool, const PoolChange& change);
  Result<PoolReport> get_pool_report(DeviceId device, PoolId pool);
  Result<std::vector<PoolReport>> get_pool_reports(DeviceId device);

  // The layout of a pool, and back to it (pool_checkpoint.hpp). Both wait for freed blocks of the
  // pool; kBusy while a capture into it is under way. During a restore no other thread uses the
  // pool. kInvalidArgument, with nothing changed, if a segment was given back meanwhile, or the
  // pool, or the allocator that it was saved from. kDriverError if the device fails on
  // the way or another thread did use the pool: what is not in the layout is stale then, with
  // frees to come, what stays is as it was, and the layout is not restored.
  Result<PoolCheckpoint> save_pool(DeviceId device, PoolId pool);
  Result<RestoredPool> restore_pool(const PoolCheckpoint& saved,
                                    StaleFrees frees = StaleFrees::kToCome);
  // The holder of a stale block will not free it. kInvalidPointer if there is none.
  Status forget_stale(Address address);
  // In order of segments and addresses.
  Result<std::vector<Address>> get_live_blocks(DeviceId device, PoolId pool);

  // Replaces the settings from the next request on.
  void configure(const Config& config);
  Config get_config() const;

  // Part of the device's memory that may be reserved, in [0, 1]; and the same in bytes (kUnlimited
  // for none). The smaller one holds. Neither gives back what is reserved already.
  Status set_memory_fraction(DeviceId device, double fraction);
  Result<double> get_memory_fraction(DeviceId device) const;
  Status set_limit(DeviceId device, Bytes bytes);
  Result<Bytes> get_limit(DeviceId device) const;

  // A consistent copy. Asks the driver for its free memory (5 us), for external_bytes; from a
  // driver callback it does not, and external_bytes is 0.
  Result<DeviceStats> get_stats(DeviceId device);
  // By stream, largest first: what each strands.
  Result<std::vector<StreamCache>> get_stream_caches(DeviceId device);
  Status reset_peak_stats(DeviceId device);
  Status reset_accumulated_stats(DeviceId device);

  // kInvalidPointer unless `address` is inside a block that a user holds.
  Result<BlockInfo> find_block(Address address) const;

  // Observers of out-of-memory results and helpers that can free memory; both are called with no
  // lock held and may call anything here.
  Callbacks& callbacks() noexcept { return callbacks_; }
  // While a thread holds it, no driver free begins (in any thread).
  FreeGate& free_gate() noexcept { return free_gate_; }

  // For the child of a fork: from now on every call fails with kForked and no driver call is made.
  // Async-signal-safe.
  void mark_forked() noexcept;

  // Walks everything and proves every invariant of docs/design.md; ends the process with the
  // operands if one does not hold. For tests; stops all other calls on a device while it walks.
  void validate();
  // Frees under way in other threads may still count as live.
  // The same for the segment around `address`, if there is one. O(blocks of the segment).
  void validate_segment(Address address);

 private:
  Allocator(Driver& driver, const Config& config);
  static Status check_request(Bytes bytes, Bytes alignment);
  Result<Address> allocate_routed(StreamRef stream, Bytes bytes, Bytes alignment);
  Status free_other(Address address);
  // What was taken from its user comes back: into its home, or elsewhere.
  void free_held(Block& block, DeviceId device) noexcept;
  void free_elsewhere(Block& block, DeviceId device) noexcept;
  // The block at `address`, taken from its user; on failure what is wrong with the address. A null
  // block for address 0.
  Result<PointerMap::Found> take_from_user(Address address, const char* call);
  Result<DeviceAllocator*> find_device(DeviceId device) const;
  Status check_alive() const;
  enum class PointerUse { kFree, kRecord };
  // What is wrong with a pointer that is no live block. Counts a free, of which a second one is
  // kDoubleFree; any other use of a freed block is kInvalidPointer.
  Status explain_pointer(Address address, PointerUse use, const char* call) const;

  RoutingWord routing_;
  CaptureRouter router_;
  PointerMap pointer_map_;
  Callbacks callbacks_;
  FreeGate free_gate_;
  mutable Mutex config_mutex_{LockRank::kAllocator};
  Config config_ QUARRY_GUARDED_BY(config_mutex_);
  std::vector<std::unique_ptr<DeviceAllocator>> devices_;  // by DeviceId; never changes
  unsigned count_ = 0;                                     // of devices
  std::uint64_t first_serial_ = 0;                         // of devices_[0]; the others follow
};

// --- The short way, inline: most calls end here, without any lock but the thread's own ---

// No call on the way of a hit, so that it needs no registers but those that a C function may use
// anyway; what is out of the ordinary begins again, elsewhere.
inline const Block* Allocator::take_parked(StreamRef stream, Bytes bytes) noexcept {
  if (!routing_.is_clear() || static_cast<unsigned>(stream.device) >= count_) [[unlikely]]
    return nullptr;
  const std::uint64_t serial = first_serial_ + static_cast<unsigned>(stream.device);
  const auto& slot = get_thread_slot(serial);
  if (slot.device_serial != serial) [[unlikely]]
    return nullptr;
  return slot.magazines->try_take(bytes, to_canonical(stream.handle));
}

inline Result<Address> Allocator::allocate(StreamRef stream, Bytes bytes, Bytes alignment) {
  if (alignment <= kMinBlock && is_power_of_two(alignment)) [[likely]] {
    if (const Block* const block = take_parked(stream, bytes)) [[likely]]
      return block->address;
    if (const Address address = take_from_lane(stream, bytes)) return address;
  }
  return allocate_from_device(stream, bytes, alignment);
}

inline void Allocator::free_held(Block& block, DeviceId device) noexcept {
  const std::uint64_t serial = first_serial_ + static_cast<unsigned>(device);
  const auto& slot = get_thread_slot(serial);
  if (slot.device_serial != serial || !slot.magazines->try_park(block)) [[unlikely]]
    free_elsewhere(block, device);
}

inline bool Allocator::try_free(Address address) noexcept {
  if (routing_.has(RoutingReason::kForked)) [[unlikely]]
    return false;
  const PointerMap::Found found = pointer_map_.find(address);
  if (found.block == nullptr) [[unlikely]]
    return false;
  // The exchange lets nothing overtake it: what comes after it, if the block does not park, is
  // fetched meanwhile.
  __builtin_prefetch(&found.block->next, 1);
  // Of several threads that free the same block, one gets past this line.
  if (!found.block->is_held.exchange(false, std::memory_order_acq_rel)) [[unlikely]]
    return false;
  free_held(*found.block, found.device);
  return true;
}

inline Status Allocator::free(Address address) noexcept {
  if (try_free(address)) [[likely]]
    return {};
  return free_other(address);
}

}  // namespace quarry
