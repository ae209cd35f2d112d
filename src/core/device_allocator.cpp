// SPDX-License-Identifier: Apache-2.0
// The algorithm of one device: a malloc and a free from top to bottom.
#include "core/device_allocator.hpp"

#include <algorithm>
#include <utility>

#include "core/expandable_memory.hpp"
#include "core/size_policy.hpp"
#include "core/thread_state.hpp"

namespace quarry {

DeviceAllocator::DeviceAllocator(SharedParts shared, DeviceId device,
                                 const DeviceProperties& properties, const Config& config)
    : driver_(shared.driver),
      pointer_map_(shared.pointer_map),
      callbacks_(shared.callbacks),
      free_gate_(shared.free_gate),
      device_(device),
      properties_(properties),
      serial_(shared.first_serial + static_cast<std::uint64_t>(device)),
      mutex_(block_source_),
      config_(config),
      fraction_(config.per_process_memory_fraction),
      streams_(device),
      fences_(shared.driver, device),
      captures_(shared.driver, streams_),
      expandable_(std::make_unique<ExpandableMemory>(*this)) {
  stock_.set_source(block_source_);
  MutexLock lock(mutex_);
  expandable_->update_kind();
  update_routing();
}

// --- malloc ---

// With everything locked.
Result<Address> DeviceAllocator::allocate(StreamHandle handle, Bytes bytes, Bytes alignment,
                                          PoolId pool_id) noexcept {
  Section section(*this);
  ThreadMagazines* const own = join_thread();
  if (own != nullptr) {
    own->lock().assume_alone();
    take_counts(*own);
    free_parked(own->take_all_leaving());
  }
  settle_frees();
  if (has_finished_backends_ && !is_driver_callback_thread()) return_finished();
  auto pool = require_pool(pool_id);
  if (!pool.is_ok()) return std::move(pool).status();
  Stream& stream = streams_.find_or_add(handle);
  if (own != nullptr) open_lane(handle, stream, *own);
  Request request = make_request(stream, bytes, alignment);
  request.pool = pool.value();
  if (expandable_->serves(*request.pool)) {
    request.segment_bytes = round_up(request.needed_bytes, kExtentPage);
  }
  if (Status entered = enter_capture(request); !entered.is_ok()) return entered;
  // Until the request is served or refused.
  ++request.stream->references;
  ++request.pool->requests;
  Result<Block*> block = find_free_block(request);
  if (block.value() == nullptr) block = reclaim(request);
  Result<Address> result = block.is_ok() ? Result<Address>(serve(*block.value(), request))
                                         : Result<Address>(std::move(block).status());
  release_reference(*request.stream);
  --request.pool->requests;
  drop_pool_if_unused(*request.pool);
  if (has_finished_backends_ && !is_driver_callback_thread()) return_finished();
  return result;
}

// Brings in what has become free since the last call.
void DeviceAllocator::settle_frees() {
  const bool is_quiet = queued_frees_.empty() && !fences_.has_waiters() && !captures_.is_any();
  if (is_quiet && !gone_graphs_->has_news()) [[likely]]
    return;
  settle_everything();
}

// Also looks at fences that only free memory waits for.
void DeviceAllocator::settle_everything() {
  if (gone_graphs_->has_news()) release_pools_of_gone_graphs();
  if (is_driver_callback_thread()) return;
  CaptureModeBracket bracket(driver_);
  for (Block* block : queued_frees_)
    start_free(*block);
  queued_frees_.clear();
  captures_.collect_ended(done_);
  collect_fences();
}

void DeviceAllocator::collect_fences() {
  fences_.collect(done_, drained_);
  complete_done();
  for (Stream* stream : drained_)
    adopt_as_idle(*stream);
  drained_.clear();
  const DriverCode error = fences_.take_last_error();
  if (error != DriverCode::kSuccess) {
    note("event=fence_error device=" + std::to_string(device_) + " code=\"" + describe(error) +
         "\" effect=\"blocks that wait for it stay pending\"");
  }
}

Request DeviceAllocator::make_request(Stream& stream, Bytes bytes, Bytes alignment) {
  Request request;
  request.stream = &stream;
  request.pool = &default_pool_;
  request.requested_bytes = bytes;
  request.block_bytes = calculate_block_size(bytes, config_);
  request.alignment = std::max(alignment, kMinBlock);
  request.needed_bytes = request.block_bytes + request.alignment - kMinBlock;
  request.family = get_family(request.needed_bytes);
  request.segment_bytes = calculate_segment_size(request.needed_bytes, config_);
  return request;
}

Block* DeviceAllocator::find_free_block(const Request& request) {
  request.pool->get_blocks(request.family).count_search();
  return find_fitting(request);
}

Block* DeviceAllocator::find_fitting(const Request& request) const {
  Block* const own = find_fitting_of(*request.stream, request);
  if (request.is_captured()) {
    Block* const idle = find_fitting_of(*request.pool->captured_idle, request);
    if (idle != nullptr && (own == nullptr || idle->size < own->size)) return idle;
  }
  return own != nullptr ? own : find_fitting_of(streams_.idle(), request);
}

// Best fit; for an alignment above the usual the first, by size, in which it leaves enough.
Block* DeviceAllocator::find_fitting_of(const Stream& owner, const Request& request) const {
  const BlockPool& pool = request.pool->get_blocks(request.family);
  Block* block = pool.find_at_least(owner, request.block_bytes);
  const auto is_enough = [&request](const Block& candidate) {
    const Bytes head = round_up(candidate.address, request.alignment) - candidate.address;
    return candidate.size >= head + request.block_bytes;
  };
  while (block != nullptr && !is_enough(*block))
    block = pool.find_next(*block, request.block_bytes);
  if (block == nullptr) return nullptr;
  if (block->segment->is_expandable()) return block;
  const Bytes needed = std::min(request.needed_bytes, block->size);
  return may_serve(block->size, needed, config_) ? block : nullptr;
}

// A free block that fits becomes the user's.
Address DeviceAllocator::serve(Block& found, const Request& request) {
  InactiveSplitChange change;
  Block& block = carve(found, request, change);
  apply(change, request.family);
  give(block, request);
  return block.address;
}

void DeviceAllocator::give(Block& block, const Request& request) {
  hand_out(block, request);
  const auto size = static_cast<std::int64_t>(block.size);
  const auto requested = static_cast<std::int64_t>(request.requested_bytes);
  stats_.allocation.add(request.family, 1);
  stats_.allocated_bytes.add(request.family, size);
  stats_.active.add(request.family, 1);
  stats_.active_bytes.add(request.family, size);
  stats_.requested_bytes.add(request.family, requested);
  held_requested_bytes_ += requested;
  if (block.is_oversize_counted) stats_.oversize_allocations.add(1);
  if (block.segment->is_private) count_private(block, 1, 1);
}

// Takes `found` out of its pool and cuts it to size and alignment; what is cut off stays free.
Block& DeviceAllocator::carve(Block& found, const Request& request, InactiveSplitChange& change) {
  BlockStock& blocks = get_stock(*found.owner);
  pool_remove(found, change);
  Block* block = &found;
  const Bytes head = round_up(found.address, request.alignment) - found.address;
  if (head > 0) {
    block = split(found, head, blocks);
    pool_insert(found, change);
  }
  const bool is_larger =
      found.segment->is_expandable()
          ? block->size > request.block_bytes
          : should_split(block->size, request.block_bytes, request.family, config_);
  if (is_larger && !found.segment->pool->options.no_split) {
    pool_insert(*split(*block, request.block_bytes, blocks), change);
  }
  return *block;
}

void DeviceAllocator::hand_out(Block& block, const Request& request) {
  set_owner(block, *request.stream);
  pointer_map_.insert(block.address, device_, block, block.segment->get_region_use());
  block.become_allocated();
  block.requested_bytes = request.requested_bytes;
  block.home = 0;
  block.is_held.store(true, std::memory_order_relaxed);
  block.is_oversize_counted = is_oversize(block.size, config_) && !block.segment->is_expandable();
  if (request.is_captured()) {
    block.capture = request.capture;
    block.segment->was_captured = true;
  }
  ++block.segment->active_blocks;
}

// --- free ---

void DeviceAllocator::free(Block& block, std::optional<StreamHandle> new_owner) noexcept {
  if (!new_owner.has_value()) {
    ThreadMagazines* const own = find_thread_magazines(serial_);
    if (own != nullptr && (own->park_elsewhere(block) || free_in_lane(block, *own))) {
      // Other threads count upwards what this one has freed for them: their highest values would
      // become part of the peaks as if none of it had been freed.
      if (own->is_far_below()) [[unlikely]] {
        Section section(*this);
        take_all_counts();
      }
      return;
    }
  }
  Section section(*this);
  if (ThreadMagazines* own = join_thread()) take_counts(*own);
  if (block.segment->is_private && take_stale_claim(block.address)) {
    block.is_held.store(true, std::memory_order_relaxed);
    if (!is_driver_callback_thread()) return_finished();
    return;
  }
  if (new_owner.has_value()) {
    Stream& owner = streams_.find_or_add(*new_owner);
    set_owner(block,
              block.owner->is_captured ? get_captured_stream(*block.segment->pool, owner) : owner);
  }
  ++free_count_;
  take_back(block);
  if (is_driver_callback_thread()) {
    queued_frees_.push_back(&block);
  } else {
    start_free(block);
    if (has_finished_backends_) [[unlikely]]
      return_finished();
  }
}

// The block is no longer the user's.
void DeviceAllocator::take_back(Block& block) {
  pointer_map_.remove(block.address, block.segment->get_region_use());
  block.become_pending();
  const StatFamily family = block.segment->family;
  stats_.allocation.add(family, -1);
  stats_.allocated_bytes.add(family, -static_cast<std::int64_t>(block.size));
  held_requested_bytes_ -= static_cast<std::int64_t>(block.requested_bytes);
  if (block.is_oversize_counted) stats_.oversize_allocations.add(-1);
  if (block.segment->is_private) count_private(block, -1, 0);
}

Status DeviceAllocator::fail_size_mismatch(Bytes expected_bytes, Bytes requested_bytes) {
  Section section(*this);
  ++stats_.size_mismatches;
  return Status(StatusCode::kSizeMismatch, "sized free of " + std::to_string(expected_bytes) +
                                               " bytes, but " + std::to_string(requested_bytes) +
                                               " were allocated; the block was freed");
}

// The block is pending; what must pass before it is free?
void DeviceAllocator::start_free(Block& block) {
  if (block.foreign_uses != nullptr) guard_foreign_uses(block);
  if (block.capture != CaptureId::kNone) guard_captured(block);
  if (block.pending_fences == 0) complete_free(block);
}

void DeviceAllocator::guard_foreign_uses(Block& block) {
  CaptureModeBracket bracket(driver_);
  std::vector<ForeignUse> captured;
  for (const ForeignUse* use = block.foreign_uses; use != nullptr; use = use->next) {
    if (is_in_capture(*use)) {
      captured.push_back(*use);
    } else if (!is_own_stream(block, *use->stream)) {
      fences_.guard(block, *use->stream);
    }
  }
  if (!captured.empty()) wait_for_captures(block, captured);
  while (ForeignUse* use = block.foreign_uses) {
    block.foreign_uses = use->next;
    release_reference(*use->stream);
    foreign_uses_.give_back(use);
  }
}

void DeviceAllocator::complete_done() {
  for (Block* block : done_)
    complete_free(*block);
  done_.clear();
}

// Nobody uses the block any more, but for work already queued on its owner's stream.
void DeviceAllocator::complete_free(Block& block) {
  const StatFamily family = block.segment->family;
  stats_.active.add(family, -1);
  stats_.active_bytes.add(family, -static_cast<std::int64_t>(block.size));
  stats_.requested_bytes.add(family, -static_cast<std::int64_t>(block.requested_bytes));
  if (block.segment->is_private) count_private(block, 0, -1);
  const Segment& segment = *block.segment;
  apply(return_to_pool(block), family);
  note_if_finished(segment);
}

// Segments of a released pool's backend go back at once.
void DeviceAllocator::note_if_finished(const Segment& segment) {
  if (segment.is_private && segment.is_vacant() && segment.pool->use_count == 0) {
    has_finished_backends_ |= segment.pool->options.backend.is_set();
  }
}

// A pending block, which the statistics no longer count, becomes free.
InactiveSplitChange DeviceAllocator::return_to_pool(Block& block) {
  block.requested_bytes = 0;
  --block.segment->active_blocks;
  block.become_free();
  block.fence_number = block.owner->fence_number;
  block.owner->has_uncovered_frees = true;
  if (block.owner->life == StreamLife::kDrained) set_owner(block, get_idle_owner(block));
  InactiveSplitChange change;
  pool_insert(coalesce(block, change), change);
  return change;
}

// Joins a free block, in no pool, with its free neighbours of the same owner; returns the result.
Block& DeviceAllocator::coalesce(Block& block, InactiveSplitChange& change) {
  BlockStock& blocks = get_stock(*block.owner);
  Block* joined = &block;
  if (may_join(block, block.next)) {
    pool_remove(*block.next, change);
    absorb_next(block, blocks);
  }
  if (may_join(block, block.previous)) {
    joined = block.previous;
    pool_remove(*joined, change);
    absorb_next(*joined, blocks);
  }
  if (!joined->is_split() && joined->segment->may_have_lane()) {
    joined->segment->lane = joined->owner->lane;
  }
  return *joined;
}

// Whose order the block has anyway.
bool DeviceAllocator::is_own_stream(const Block& block, const Stream& stream) {
  return block.owner == &stream || block.owner->base == &stream;
}

Status DeviceAllocator::record_stream(Address address, StreamHandle handle) noexcept {
  Section section(*this);
  const PointerMap::Found found = pointer_map_.find(address);
  Block* const block = found.device == device_ ? found.block : nullptr;
  if (block == nullptr || !block->is_held.load(std::memory_order_relaxed)) {
    return Status(StatusCode::kInvalidPointer, "the block was freed");
  }
  Stream& stream = streams_.find_or_add(handle);
  if (is_own_stream(*block, stream)) return Status::ok();
  for (const ForeignUse* use = block->foreign_uses; use != nullptr; use = use->next) {
    if (use->stream == &stream) return Status::ok();
  }
  const bool is_captured = block->capture != CaptureId::kNone;
  ForeignUse* const use = foreign_uses_.take();
  *use = {&stream, block->foreign_uses, is_captured ? captures_.guess(stream) : CaptureId::kNone};
  block->foreign_uses = use;
  block->home = 0;
  ++stream.references;
  return Status::ok();
}

// --- the index of free blocks, and its statistics ---

void DeviceAllocator::pool_insert(Block& block, InactiveSplitChange& change) {
  block.segment->get_free_blocks().insert(block);
  if (!block.segment->is_private) block.owner->cached_bytes += block.size;
  if (block.is_split()) change.add(block);
}

void DeviceAllocator::pool_remove(Block& block, InactiveSplitChange& change) {
  block.segment->get_free_blocks().remove(block);
  if (!block.segment->is_private) block.owner->cached_bytes -= block.size;
  if (block.is_split()) change.remove(block);
}

void DeviceAllocator::apply(const InactiveSplitChange& change, StatFamily family) {
  stats_.inactive_split.add(family, change.count);
  stats_.inactive_split_bytes.add(family, change.bytes);
}

}  // namespace quarry
