// SPDX-License-Identifier: Apache-2.0
// The way through a stream's lane: what a thread's magazines cannot serve, but the stream's own
// free memory can. The decisions are those of device_allocator.cpp, with the same functions; only
// the lock is smaller, and the figures go to the thread's counts. Whatever is out of the ordinary
// (foreign uses, a new owner, other streams' memory, frees that wait for fences, a driver
// callback) takes the device's mutex instead.
//
// Why it is safe: a thread that holds a lane keeps everybody out of the device's mutex, which
// includes all lanes. It touches what the lane guards (lane.hpp), and reads what changes under the
// device's mutex only.
#include "core/device_allocator.hpp"
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
  own.remember_stream({handle, stream.lane, &stream});
}

BlockStock& DeviceAllocator::get_stock(const Stream& stream) {
  const int lane = stream.lane.load(std::memory_order_relaxed);
  return lane == kNoLane ? stock_ : mutex_.get(lane).blocks;
}

// Null: take the device's mutex. The stream may have been retired since the thread was told of it:
// its record is touched only after another look, with the lane held.
Block* DeviceAllocator::allocate_in_lane(const StreamNote& note, Bytes bytes,
                                         ThreadMagazines& own) QUARRY_NO_THREAD_SAFETY_ANALYSIS {
  const SpinLockHold lane_hold(mutex_.get(note.lane).lock);
  const SpinLockHold own_hold(own.lock());
  if (!routing_.is_clear() || own.find_stream(note.handle) != note) return nullptr;
  const Request request = make_request(*note.stream, bytes, kMinBlock);
  Block* const found = find_fitting_of(*note.stream, request);
  if (found == nullptr || found->segment->lane != note.lane) return nullptr;
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
  const SpinLockHold lane_hold(lane.lock);
  if (!may_free_in_lane(block, number)) return false;
  ++lane.free_count;
  const SpinLockHold own_hold(own.lock());
  own.counts().give_back(block);
  take_back_in_lane(block, own);
  return true;
}

bool DeviceAllocator::may_free_in_lane(const Block& block,
                                       int lane) const QUARRY_NO_THREAD_SAFETY_ANALYSIS {
  return routing_.allows_parking() && block.segment->lane == lane && block.owner->is_live() &&
         block.foreign_uses == nullptr && !block.is_oversize_counted;
}

// The rest of a free, also of a parked block.
void DeviceAllocator::take_back_in_lane(Block& block,
                                        ThreadMagazines& own) QUARRY_NO_THREAD_SAFETY_ANALYSIS {
  const StatFamily family = block.segment->family;
  pointer_map_.remove(block.address);
  block.become_pending();
  const InactiveSplitChange change = return_to_pool(block);
  own.counts().change_inactive_splits(family, change.count, change.bytes);
}

// Blocks that are leaving the thread's magazines go back to their streams. True: some can do so
// only under the device's mutex.
bool DeviceAllocator::return_in_lanes(ThreadMagazines& own) QUARRY_NO_THREAD_SAFETY_ANALYSIS {
  while (true) {
    int number = kNoLane;
    {
      const SpinLockHold own_hold(own.lock());
      const Block* const block = own.get_leaving();
      if (block == nullptr) return false;
      number = block->owner->lane.load(std::memory_order_relaxed);
    }
    if (number == kNoLane) return true;
    const SpinLockHold lane_hold(mutex_.get(number).lock);
    const SpinLockHold own_hold(own.lock());
    // The same block, or none if somebody has emptied the magazines meanwhile.
    Block* const block = own.get_leaving();
    if (block == nullptr) return false;
    if (!may_free_in_lane(*block, number)) return true;
    own.take_leaving();
    take_back_in_lane(*block, own);
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
  routing_.set_to(RoutingReason::kUnsettled, !queued_frees_.empty() || !fences_.is_idle());
}

}  // namespace quarry
