// SPDX-License-Identifier: Apache-2.0
// Which stream a block belongs to, and what the end of a stream does to its memory.
#include <utility>

#include "core/device_allocator.hpp"
#include "core/thread_state.hpp"

namespace quarry {

Status DeviceAllocator::retire_stream(StreamHandle handle) noexcept {
  Section section(*this);
  Stream* const stream = streams_.find(handle);
  if (stream == nullptr) return Status::ok();
  if (is_driver_callback_thread()) {
    return Status(StatusCode::kBusy, "a stream cannot be retired from a driver callback");
  }
  CaptureModeBracket bracket(driver_);
  Status status = fences_.retire(*stream);
  if (!status.is_ok()) return status;
  streams_.forget_handle(*stream);
  forget_streams();
  return status;
}

void DeviceAllocator::retire_thread_streams() noexcept {
  if (is_driver_callback_thread()) return;
  Section section(*this);
  CaptureModeBracket bracket(driver_);
  for (Stream* stream : streams_.get_streams_of_thread(get_thread_token())) {
    const Status status = fences_.retire(*stream);
    if (status.is_ok()) {
      streams_.forget_handle(*stream);
    } else {
      note("event=thread_stream_not_retired cause=\"" + std::string(status.message()) + "\"");
    }
  }
  forget_streams();
}

// After a handle has lost its meaning: no thread finds the stream by it any more, and nothing of
// the stream's is parked.
void DeviceAllocator::forget_streams() {
  {
    const OthersKeptOut others(magazines_, serial_);
    for (ThreadMagazines* magazines : magazines_) {
      magazines->lock().assume_alone();
      magazines->forget_streams();
    }
  }
  empty_magazines();
}

// The stream's memory becomes anyone's. Takes over the reference that keeps the record alive while
// its last blocks change hands.
void DeviceAllocator::adopt_as_idle(Stream& drained) {
  for_each_pool([&](MemPool& pool) QUARRY_REQUIRES(mutex_) {
    change_owner_of_free(pool, drained, streams_.idle());
    end_captured_stream(pool, drained);
  });
  release_reference(drained);
}

void DeviceAllocator::change_owner_of_free(MemPool& pool, const Stream& from, Stream& to) {
  for (const StatFamily family : {StatFamily::kSmall, StatFamily::kLarge}) {
    InactiveSplitChange change;
    for (BlockPool* blocks : {&pool.get_blocks(family), &pool.get_outdated_blocks(family)}) {
      while (Block* block = blocks->find_largest(from)) {
        pool_remove(*block, change);
        set_owner(*block, to);
        block->fence_number = to.fence_number;
        pool_insert(coalesce(*block, change), change);
      }
    }
    apply(change, family);
  }
}

void DeviceAllocator::set_owner(Block& block, Stream& owner) {
  if (block.owner == &owner) return;
  Segment& segment = *block.segment;
  if (!segment.may_have_lane() || block.state() == BlockState::kUnmapped) {
    // Never served in lanes.
  } else if (!block.is_split()) {
    segment.lane = owner.lane;
  } else if (segment.lane != owner.lane) {
    segment.lane = kNoLane;
  }
  Stream* const before = std::exchange(block.owner, &owner);
  ++owner.references;
  if (before != nullptr) release_reference(*before);
}

// Who owns the memory of an owner that is drained.
Stream& DeviceAllocator::get_idle_owner(const Block& block) {
  return block.owner->is_captured ? *block.segment->pool->captured_idle : streams_.idle();
}

void DeviceAllocator::release_reference(Stream& stream) {
  --stream.references;
  streams_.drop_if_unused(stream);
}

}  // namespace quarry
