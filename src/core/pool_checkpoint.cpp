// SPDX-License-Identifier: Apache-2.0
// Saving and restoring a pool's layout. A restore frees what is allocated and is not in the
// layout, waits until nobody uses any of it, cuts each saved segment anew around the blocks that
// stay, and hands out what else was allocated then.
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

// Owners of free memory in the segment who are to lose it, and may have work under way on it.
template <class FindOwner>
void collect_former_owners(const Segment& segment, const PoolCheckpoint::Segment& saved,
                           FindOwner find_owner, std::set<Stream*>& owners) {
  const Block* block = segment.first;
  for (const PoolCheckpoint::Block& part : saved.blocks) {
    const Stream& owner = find_owner(segment, part);
    while (block->end() <= part.address)
      block = block->next;
    for (const Block* b = block; b != nullptr && b->address < part.address + part.size;
         b = b->next) {
      if (b->is_free() && b->owner != &owner)
        owners.insert(b->owner->is_captured ? b->owner->base : b->owner);
    }
  }
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
  const MemPool& pool = *find_pool(id);
  for (const Segment* segment = pool.first_segment; segment != nullptr; segment = segment->next) {
    if (!segment->is_expandable()) continue;
    return Status(
        StatusCode::kNotSupported,
        "pool " + to_text(id) +
            " has expandable segments, whose layout cannot be saved; use segments:plain");
  }
  PoolCheckpoint saved{device_, serial_, id, pool.serial, {}};
  for (const Segment* segment = pool.first_segment; segment != nullptr; segment = segment->next) {
    PoolCheckpoint::Segment& own = saved.segments.emplace_back();
    own.address = segment->address;
    own.size = segment->size;
    own.sequence = segment->sequence;
    for (const Block* block = segment->first; block != nullptr; block = block->next) {
      const Stream& owner = block->owner->base != nullptr ? *block->owner->base : *block->owner;
      own.blocks.push_back({block->address, block->size, block->requested_bytes,
                            block->state() == BlockState::kAllocated, block->capture,
                            owner.serial});
    }
  }
  return saved;
}

// Whether pool and segments are those that were saved, still.
Status DeviceAllocator::check_restorable(const PoolCheckpoint& saved) {
  auto pool = require_pool(saved.pool);
  if (!pool.is_ok()) return std::move(pool).status();
  const std::string name = "pool " + to_text(saved.pool);
  if (pool.value()->serial != saved.pool_serial) {
    return Status(StatusCode::kInvalidArgument,
                  "the pool of the checkpoint is gone; " + name + " is another one, made since");
  }
  const auto is_there = [this](const PoolCheckpoint::Segment& of) QUARRY_REQUIRES(mutex_) {
    const auto found = segments_by_address_.find(of.address);
    return found != segments_by_address_.end() && found->second->sequence == of.sequence;
  };
  if (std::ranges::all_of(saved.segments, is_there)) return Status::ok();
  return Status(StatusCode::kInvalidArgument,
                "a segment of the checkpoint of " + name +
                    " was given back since; hold the pool and do not trim it");
}

// A stream may have work queued on what it freed. Nobody else may get that until it is done.
Status DeviceAllocator::wait_for_former_owners(const PoolCheckpoint& saved) {
  constexpr int kMostRounds = 8;
  std::set<Stream*> owners;
  for (const PoolCheckpoint::Segment& of : saved.segments) {
    const auto find_owner = [this](const Segment& segment, const PoolCheckpoint::Block& part)
                                QUARRY_NO_THREAD_SAFETY_ANALYSIS -> Stream& {
      return find_owner_again(segment, part);
    };
    collect_former_owners(*segments_by_address_.at(of.address), of, find_owner, owners);
  }
  owners.erase(nullptr);  // captured memory that the host saw done
  owners.erase(&streams_.idle());
  std::vector<std::uint64_t> waiting;  // serials: a stream may go while the mutex is let go
  {
    CaptureModeBracket bracket(driver_);
    for (Stream* stream : owners) {
      fences_.cover(*stream);
      waiting.push_back(stream->serial);
    }
  }
  for (int round = 0; round < kMostRounds; ++round) {
    std::erase_if(waiting, [this](std::uint64_t serial) QUARRY_NO_THREAD_SAFETY_ANALYSIS {
      const Stream* const stream = streams_.find_serial(serial);
      return stream == nullptr || !Fences::has_any(*stream);
    });
    if (waiting.empty()) return Status::ok();
    wait_for_fences();
  }
  return refuse_busy(saved.pool, "has free blocks of streams that capture");
}

Result<RestoredPool> DeviceAllocator::restore_pool(const PoolCheckpoint& saved,
                                                   StaleFrees frees) noexcept {
  Section section(*this);
  Status ready = wait_until_settled(saved.pool);
  if (ready.is_ok()) ready = check_restorable(saved);
  if (ready.is_ok()) ready = wait_for_former_owners(saved);
  if (ready.is_ok()) ready = check_restorable(saved);  // the mutex was let go
  if (!ready.is_ok()) return ready;
  MemPool& pool = *find_pool(saved.pool);
  // While the mutex is let go, the pool and the segments stay.
  ++pool.requests;
  std::set<std::pair<Address, Bytes>> kept;
  for (const auto& segment : saved.segments) {
    ++segments_by_address_.at(segment.address)->holds;
    for (const auto& block : segment.blocks)
      if (block.is_allocated) kept.insert({block.address, block.size});
  }
  const auto stays = [&kept](const Block* block) {
    return kept.contains({block->address, block->size});
  };
  RestoredPool restored;
  for (const Block* block : list_blocks(pool, BlockState::kAllocated))
    (stays(block) ? restored.kept : restored.stale).push_back(block->address);
  for (const Address address : restored.stale)
    revoke(*pointer_map_.find(address).block);
  Status settled = wait_until_settled(saved.pool);
  if (settled.is_ok() && !std::ranges::all_of(list_blocks(pool, BlockState::kAllocated), stays))
    settled = refuse_busy(saved.pool, "was used by another thread");
  for (const PoolCheckpoint::Segment& of : saved.segments) {
    Segment& segment = *segments_by_address_.at(of.address);
    --segment.holds;
    if (settled.is_ok()) lay_out(segment, of, restored);
  }
  --pool.requests;
  drop_pool_if_unused(pool);
  if (!settled.is_ok()) {
    return Status(StatusCode::kDriverError,
                  "the restore was not finished, and what is not in the checkpoint is stale: " +
                      std::string(settled.message()));
  }
  // Not before: whoever sees a restore fail has not told the holders that they must not free.
  for (const Address address : restored.stale)
    if (frees == StaleFrees::kNone) take_stale_claim(address);
  return restored;
}

// Frees a block in its holder's stead. Pending until its own stream is done with it, too.
void DeviceAllocator::revoke(Block& block) {
  ++stale_claims_[block.address];
  ++block.segment->holds;
  CaptureModeBracket bracket(driver_);
  block.is_held.store(false, std::memory_order_relaxed);
  take_back(block);
  Stream& stream = block.owner->base != nullptr ? *block.owner->base : *block.owner;
  fences_.guard(block, stream);
  start_free(block);
}

// In the segment only blocks are allocated that were so when it was saved. Cuts what is between
// them as it was.
void DeviceAllocator::lay_out(Segment& segment, const PoolCheckpoint::Segment& saved,
                              RestoredPool& restored) {
  InactiveSplitChange change;
  Block* gap = nullptr;  // the free block before, of its neighbours too
  for (Block* block = segment.first; block != nullptr; block = block->next) {
    if (!block->is_free()) {
      gap = nullptr;
      continue;
    }
    pool_remove(*block, change);
    if (gap == nullptr) {
      gap = block;
      continue;
    }
    set_owner(*block, *gap->owner);
    block = gap;
    absorb_next(*gap, stock_);
  }
  Block* rest = segment.first;
  for (auto part = saved.blocks.begin(); part != saved.blocks.end();) {
    QUARRY_CHECK_EQ(rest->address, part->address);
    if (!rest->is_free()) {
      QUARRY_CHECK_EQ(rest->size, part->size);
      restored.live.push_back(rest->address);
      rest = rest->next;
      ++part;
      continue;
    }
    rest = lay_out_gap(*rest, part, saved.blocks.end(), change, restored);
  }
  apply(change, segment.family);
}
// Cuts from the free block `rest` what was `part`, and returns what comes behind.
Block* DeviceAllocator::lay_out_gap(Block& rest, PoolCheckpoint::Place& part,
                                    PoolCheckpoint::Place end, InactiveSplitChange& change,
                                    RestoredPool& restored) {
  const Segment& segment = *rest.segment;
  Stream& owner = find_owner_again(segment, *part);
  // Free neighbours of one owner are one block.
  Bytes size = part->size;
  auto next = std::next(part);
  for (; !part->is_allocated && next != end && !next->is_allocated; ++next) {
    if (&find_owner_again(segment, *next) != &owner) break;
    size += next->size;
  }
  Block* const behind = size < rest.size ? split(rest, size, stock_) : rest.next;
  set_owner(rest, owner);
  if (part->is_allocated) {
    give_again(rest, *part);
    restored.live.push_back(rest.address);
  } else {
    pool_insert(rest, change);
  }
  part = next;
  return behind;
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
  Segment& segment = *find_segment(address);
  --segment.holds;
  note_if_finished(segment);
  return true;
}

bool DeviceAllocator::forget_stale(Address address) noexcept {
  Section section(*this);
  if (!take_stale_claim(address)) return false;
  if (!is_driver_callback_thread()) return_finished();
  return true;
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
