// SPDX-License-Identifier: Apache-2.0
// The way through a stream's lane: what a thread's magazines cannot serve, but the stream's own
// free memory can. The decisions are those of device_allocator.cpp; large requests use its
// functions, small ones and frees do the same in one go. Only the lock is smaller, and the figures
// go to the thread's counts. Whatever is out of the ordinary
// (foreign uses, a new owner, other streams' memory, frees that wait for fences, a driver
// callback) takes the device's mutex instead.
//
// Why it is safe: a thread that holds a lane keeps everybody out of the device's mutex, which
// includes all lanes. It touches what the lane guards (lane.hpp), and reads what changes under the
// device's mutex only.
#include "core/device_allocator.hpp"
#include "core/size_policy.hpp"
#include "core/thread_state.hpp"

namespace quarry {

// Under the device's mutex: from now on the calling thread finds the stream by itself, and may
// lock its lane.
void DeviceAllocator::open_lane(StreamHandle handle, Stream& stream, ThreadMagazines& own) {
  if (!stream.is_live()) return;
  if (stream.lane == kNoLane) {
    const int number = static_cast<int>(stream.index) % kLanes;
    mutex_.open(number);
    default_pool_.small.prepare(stream);
    default_pool_.large.prepare(stream);
    stream.lane = number;
  }
  own.lock().assume_alone();
  own.remember_stream({handle, stream.lane, &stream});
}

BlockStock& DeviceAllocator::get_stock(const Stream& stream) {
  const int lane = stream.lane.load(std::memory_order_relaxed);
  return lane == kNoLane ? stock_ : mutex_.get(lane).blocks;
}

// What the thread's magazines or the stream's own memory serve without the mutex; null: call
// allocate. The stream may have been retired since the thread was told of it: its record is
// touched only after another look, with the lane held.
Block* DeviceAllocator::take_from_lane(StreamHandle handle,
                                       Bytes bytes) noexcept QUARRY_NO_THREAD_SAFETY_ANALYSIS {
  ThreadMagazines* const own = find_thread_magazines(serial_);
  if (own == nullptr || !is_servable(bytes)) return nullptr;
  bool has_leaving = false;
  if (Block* const parked = own->take_or_note_miss(bytes, handle, has_leaving)) return parked;
  if (has_leaving && return_in_lanes(*own)) return nullptr;
  const int number = own->guess_lane(handle);
  // Looked at again under the lane; here it spares a lock that would lead nowhere.
  if (number == kNoLane || !routing_.is_clear()) return nullptr;
  Lane& lane = mutex_.get(number);
  const SpinLockHold hold(lane.lock);
  const StreamNote note = own->find_stream(handle);
  if (!routing_.is_clear() || note.lane != number) return nullptr;
  return bytes <= kSmallMax ? take_small(*note.stream, lane, bytes, *own)
                            : take_large(*note.stream, lane, bytes, *own);
}

// What find_fitting_of, carve and hand_out do for the family and alignment that nearly all
// requests have, in one go.
Block* DeviceAllocator::take_small(Stream& stream, Lane& lane, Bytes bytes,
                                   ThreadMagazines& own) QUARRY_NO_THREAD_SAFETY_ANALYSIS {
  FreeBins& bins = default_pool_.small.get_bins(stream);
  const Bytes size = round_up(bytes, kMinBlock);
  Block* block = bins.find_at_least(size);
  if (block == nullptr && return_parked_in_lane(stream, lane, bytes, own)) [[unlikely]] {
    block = bins.find_at_least(size);
  }
  if (block == nullptr || block->segment->lane != lane.number) return nullptr;
  if (is_oversize(block->size, config_)) return nullptr;
  bins.remove(*block);
  InactiveSplitChange change;
  if (block->is_split()) change.remove(*block);
  if (block->size > size) {
    Block& rest = *split(*block, size, lane.blocks);
    bins.insert(rest);
    change.add(rest);
  }
  stream.cached_bytes -= size;
  block->become_allocated();
  block->requested_bytes = bytes;
  block->home = 0;
  block->is_oversize_counted = false;
  block->is_held.store(true, std::memory_order_relaxed);
  ++block->segment->active_blocks;
  pointer_map_.insert(block->address, device_, *block, block->segment->get_region_use());
  own.counts().take(*block);
  own.counts().change_inactive_splits(StatFamily::kSmall, change.count, change.bytes);
  return block;
}

// The ladder's first step for a small request, as far as the lane goes: what the calling thread
// has parked of the stream. Most misses of a thread whose sizes change end here. False if the
// mutex's holder would try something else first, or there is nothing.
bool DeviceAllocator::return_parked_in_lane(Stream& stream, Lane& lane, Bytes bytes,
                                            ThreadMagazines& own)
    QUARRY_NO_THREAD_SAFETY_ANALYSIS {
  const std::uint64_t threads = stream.parking_threads.load(std::memory_order_relaxed);
  if ((threads & own.get_thread_bit()) == 0 || streams_.idle().cached_bytes != 0) return false;
  if (may_grow_beside_parked(make_request(stream, bytes, kMinBlock))) return false;
  bool is_any = false;
  own.return_all_of(
      stream, StatFamily::kSmall,
      [this, &lane](const Block& block) { return may_free_in_lane(block, lane); },
      [this, &lane, &own, &is_any](Block& block) {
        take_back_in_lane(block, lane, own);
        is_any = true;
      });
  return is_any;
}

Block* DeviceAllocator::take_large(Stream& stream, Lane& lane, Bytes bytes,
                                   ThreadMagazines& own) QUARRY_NO_THREAD_SAFETY_ANALYSIS {
  const Request request = make_request(stream, bytes, kMinBlock);
  Block* const found = find_fitting_of(stream, request);
  if (found == nullptr || found->segment->lane != lane.number) return nullptr;
  if (is_oversize(found->size, config_)) return nullptr;
  InactiveSplitChange change;
  Block& block = carve(*found, request, change);
  hand_out(block, request);
  own.counts().take(block);
  own.counts().change_inactive_splits(request.family, change.count, change.bytes);
  return &block;
}

// False: take the device's mutex. The block is in nobody's hands but the caller's, so that its
// owner cannot change.
bool DeviceAllocator::free_in_lane(Block& block,
                                   ThreadMagazines& own) QUARRY_NO_THREAD_SAFETY_ANALYSIS {
  const int number = block.owner->lane.load(std::memory_order_relaxed);
  if (number == kNoLane || is_driver_callback_thread()) return false;
  Lane& lane = mutex_.get(number);
  const SpinLockHold hold(lane.lock);
  if (!may_free_in_lane(block, lane)) return false;
  ++lane.free_count;
  own.counts().give_back(block);
  take_back_in_lane(block, lane, own);
  return true;
}

bool DeviceAllocator::may_free_in_lane(const Block& block,
                                       const Lane& lane) const QUARRY_NO_THREAD_SAFETY_ANALYSIS {
  return routing_.allows_parking() && block.segment->lane == lane.number &&
         block.owner->is_live() && block.foreign_uses == nullptr && !block.is_oversize_counted;
}

// Joins a free block with its neighbours, and puts it into its pool or bins.
template <class Pool>
InactiveSplitChange DeviceAllocator::put_back(Block& block, Pool& pool, BlockStock& blocks) {
  InactiveSplitChange change;
  if (Block* const next = block.next; may_join(block, next)) {
    pool.remove(*next);
    change.remove(*next);
    absorb_next(block, blocks);
  }
  Block* joined = &block;
  if (Block* const previous = block.previous; may_join(block, previous)) {
    pool.remove(*previous);
    change.remove(*previous);
    absorb_next(*previous, blocks);
    joined = previous;
  }
  pool.insert(*joined);
  if (joined->is_split()) change.add(*joined);
  return change;
}

// The rest of a free, also of a parked block: return_to_pool, in one go.
void DeviceAllocator::take_back_in_lane(Block& block, Lane& lane,
                                        ThreadMagazines& own) QUARRY_NO_THREAD_SAFETY_ANALYSIS {
  pointer_map_.remove(block.address, block.segment->get_region_use());
  block.become_pending();
  block.become_free();
  block.requested_bytes = 0;
  Segment& segment = *block.segment;
  --segment.active_blocks;
  block.fence_number = block.owner->fence_number;
  block.owner->has_uncovered_frees = true;
  block.owner->cached_bytes += block.size;
  BlockPool& pool = default_pool_.get_blocks(segment.family);  // no other has lanes
  const InactiveSplitChange change =
      segment.family == StatFamily::kSmall && !segment.is_expandable()
          ? put_back(block, pool.get_bins(*block.owner), lane.blocks)
          : put_back(block, pool, lane.blocks);
  own.counts().change_inactive_splits(segment.family, change.count, change.bytes);
}

// Blocks that are leaving the thread's magazines go back to their streams. True: some can do so
// only under the device's mutex.
bool DeviceAllocator::return_in_lanes(ThreadMagazines& own) QUARRY_NO_THREAD_SAFETY_ANALYSIS {
  while (true) {
    int number = kNoLane;
    {
      const OwnerHold own_hold(own.lock());
      const Block* const block = own.get_leaving();
      if (block == nullptr) return false;
      number = block->owner->lane.load(std::memory_order_relaxed);
    }
    if (number == kNoLane) return true;
    Lane& lane = mutex_.get(number);
    const SpinLockHold lane_hold(lane.lock);
    // The same block, or none if somebody has emptied the magazines meanwhile.
    Block* const block = own.get_leaving();
    if (block == nullptr) return false;
    if (!may_free_in_lane(*block, lane)) return true;
    own.take_leaving();
    take_back_in_lane(*block, lane, own);
  }
}

std::uint64_t DeviceAllocator::get_free_count() {
  std::uint64_t count = free_count_;
  for (int i = 0; i < mutex_.open_count(); ++i)
    count += mutex_.get(i).free_count;
  return count;
}

// Requests in lanes do not look at fences and queued frees: while there are any, they may not be
// served there.
void DeviceAllocator::note_unsettled() {
  routing_.set_to(RoutingReason::kUnsettled, !queued_frees_.empty() || fences_.has_waiters());
}

}  // namespace quarry
