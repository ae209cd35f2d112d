// SPDX-License-Identifier: Apache-2.0
// Saving and restoring a pool's layout. A restore frees what is allocated, waits until nobody uses
// any of it, lays each saved segment out anew, and hands out what was allocated then.
#include <algorithm>
#include <set>
#include <utility>

#include "core/device_allocator.hpp"
#include "core/thread_state.hpp"

namespace quarry {
namespace {

Status refuse_busy(PoolId pool, const char* why) {
  return Status(StatusCode::kBusy, "pool " + to_text(pool) + " " + why);
}

}  // namespace

// Blocks of the pool in the state, in order of segments and addresses.
std::vector<Block*> DeviceAllocator::list_blocks(const MemPool& pool, BlockState state) const {
  std::vector<Block*> blocks;
  for (Segment* segment = pool.first_segment; segment != nullptr; segment = segment->next) {
    for (Block* block = segment->first; block != nullptr; block = block->next) {
      if (block->state() == state) blocks.push_back(block);
    }
  }
  return blocks;
}

// Nothing of the pool is pending afterwards, or the status says why it is.
Status DeviceAllocator::wait_until_settled(PoolId id) {
  constexpr int kMostRounds = 8;
  if (is_driver_callback_thread()) return refuse_busy(id, "is used from a driver callback");
  settle_frees();
  for (int round = 0; round < kMostRounds; ++round) {
    auto pool = require_pool(id);
    if (!pool.is_ok()) return std::move(pool).status();
    if (make_report(*pool.value()).has_active_capture) {
      return refuse_busy(id, "is in use by a capture; end that first");
    }
    if (list_blocks(*pool.value(), BlockState::kPending).empty()) return Status::ok();
    wait_for_fences();
  }
  return refuse_busy(id,
                     "has freed blocks whose streams capture, or that the driver lost track of");
}

Result<PoolCheckpoint> DeviceAllocator::save_pool(PoolId id) noexcept {
  Section section(*this);
  if (Status settled = wait_until_settled(id); !settled.is_ok()) return settled;
  PoolCheckpoint saved{device_, id, {}};
  for (const Segment* segment = find_pool(id)->first_segment; segment != nullptr;
       segment = segment->next) {
    PoolCheckpoint::Segment& own = saved.segments.emplace_back();
    own.address = segment->address;
    own.size = segment->size;
    for (const Block* block = segment->first; block != nullptr; block = block->next) {
      const Stream& owner = block->owner->base != nullptr ? *block->owner->base : *block->owner;
      own.blocks.push_back({block->address, block->size, block->requested_bytes,
                            block->state() == BlockState::kAllocated, block->capture,
                            owner.serial});
    }
  }
  return saved;
}

// Every saved segment is the pool's still.
bool DeviceAllocator::has_segments_of(const PoolCheckpoint& saved, const MemPool& pool) const {
  return std::ranges::all_of(saved.segments, [&](const PoolCheckpoint::Segment& of) {
    const auto found = segments_by_address_.find(of.address);
    return found != segments_by_address_.end() && found->second->pool == &pool &&
           found->second->size == of.size;
  });
}

Result<RestoredPool> DeviceAllocator::restore_pool(const PoolCheckpoint& saved) noexcept {
  Section section(*this);
  if (Status settled = wait_until_settled(saved.pool); !settled.is_ok()) return settled;
  MemPool& pool = *find_pool(saved.pool);
  if (!has_segments_of(saved, pool)) {
    return Status(StatusCode::kInvalidArgument,
                  "a segment of the checkpoint of pool " + to_text(saved.pool) +
                      " was given back to the driver since; hold the pool and do not trim it");
  }
  ++pool.requests;  // keeps it while the mutex is let go
  const std::vector<Block*> before = list_blocks(pool, BlockState::kAllocated);
  std::set<std::pair<Address, Bytes>> kept;
  for (const auto& segment : saved.segments) {
    for (const auto& block : segment.blocks)
      if (block.is_allocated) kept.insert({block.address, block.size});
  }
  RestoredPool restored;
  for (Block* block : before) {
    if (!kept.contains({block->address, block->size})) restored.stale.push_back(block->address);
    revoke(*block);
  }
  Status settled = wait_until_settled(saved.pool);
  if (settled.is_ok()) {
    for (const PoolCheckpoint::Segment& segment : saved.segments)
      lay_out(*segments_by_address_.at(segment.address), segment, restored);
  }
  for (const Address address : restored.stale)
    ++stale_claims_[address];
  --pool.requests;
  drop_pool_if_unused(pool);
  if (!settled.is_ok()) return settled;
  return restored;
}

// Frees a block in its holder's stead. Pending until its own stream is done with it, too.
void DeviceAllocator::revoke(Block& block) {
  CaptureModeBracket bracket(driver_);
  block.is_held.store(false, std::memory_order_relaxed);
  take_back(block);
  Stream& stream = block.owner->base != nullptr ? *block.owner->base : *block.owner;
  fences_.guard(block, stream);
  start_free(block);
}

// The segment is free as a whole. Cuts it as it was saved.
void DeviceAllocator::lay_out(Segment& segment, const PoolCheckpoint::Segment& saved,
                              RestoredPool& restored) {
  InactiveSplitChange change;
  Block& first = *segment.first;
  for (Block* block = &first; block != nullptr; block = block->next) {
    pool_remove(*block, change);
    set_owner(*block, *first.owner);
  }
  while (first.next != nullptr)
    absorb_next(first, stock_);
  Block* rest = &first;
  for (auto part = saved.blocks.begin(); part != saved.blocks.end();) {
    Stream& owner = find_owner_again(segment, *part);
    // Free neighbours of one owner are one block.
    Bytes size = part->size;
    auto next = std::next(part);
    for (; !part->is_allocated && next != saved.blocks.end() && !next->is_allocated; ++next) {
      if (&find_owner_again(segment, *next) != &owner) break;
      size += next->size;
    }
    Block& block = *rest;
    rest = size < block.size ? split(block, size, stock_) : nullptr;
    set_owner(block, owner);
    if (part->is_allocated) {
      give_again(block, *part);
      restored.live.push_back(block.address);
    } else {
      pool_insert(block, change);
    }
    part = next;
  }
  apply(change, segment.family);
}

// The stream that owned it, while that is there. Nobody uses the memory, so that anyone may have
// it; but what has ever been captured is for captures.
Stream& DeviceAllocator::find_owner_again(const Segment& segment,
                                          const PoolCheckpoint::Block& saved) {
  MemPool& pool = *segment.pool;
  Stream* const stream = streams_.find_serial(saved.stream);
  const bool is_there = stream != nullptr && stream->is_live();
  const bool is_captured =
      segment.was_captured && (!saved.is_allocated || saved.capture != CaptureId::kNone);
  if (!is_captured) return is_there ? *stream : streams_.idle();
  return is_there ? get_captured_stream(pool, *stream) : *pool.captured_idle;
}

void DeviceAllocator::give_again(Block& block, const PoolCheckpoint::Block& saved) {
  Request request;
  request.stream = block.owner;
  request.pool = block.segment->pool;
  request.requested_bytes = saved.requested_bytes;
  request.family = block.segment->family;
  request.capture = saved.capture;
  give(block, request);
}

// Whether a free of `address` is that of a block which a restore has taken from its holder.
bool DeviceAllocator::take_stale_claim(Address address) {
  const auto claim = stale_claims_.find(address);
  if (claim == stale_claims_.end()) return false;
  if (--claim->second == 0) stale_claims_.erase(claim);
  return true;
}

bool DeviceAllocator::forget_stale(Address address) noexcept {
  MutexLock lock(mutex_);
  return take_stale_claim(address);
}

Result<std::vector<Address>> DeviceAllocator::get_live_blocks(PoolId id) noexcept {
  MutexLock lock(mutex_);
  auto pool = require_pool(id);
  if (!pool.is_ok()) return std::move(pool).status();
  std::vector<Address> live;
  for (const Block* block : list_blocks(*pool.value(), BlockState::kAllocated)) {
    if (block->is_held.load(std::memory_order_relaxed)) live.push_back(block->address);
  }
  return live;
}

}  // namespace quarry
