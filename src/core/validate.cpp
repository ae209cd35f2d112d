// SPDX-License-Identifier: Apache-2.0
// The proof that a device's state is consistent: one walk over the ownership tree that recomputes
// every sum and checks every link. An invariant that does not hold is our fault and ends the
// process. For tests and tools; holds the device's mutex all the while.
#include <unordered_map>
#include <unordered_set>

#include "core/device_allocator.hpp"
#include "core/expandable_memory.hpp"
#include "core/size_policy.hpp"

namespace quarry {

struct DeviceAllocator::Sums {
  struct Family {
    std::int64_t allocations = 0, allocated_bytes = 0, active = 0, active_bytes = 0;
    std::int64_t segments = 0, reserved_bytes = 0, requested_bytes = 0;
    std::int64_t inactive_split = 0, inactive_split_bytes = 0;
  };
  Family family[2];
  std::int64_t held_requested_bytes = 0;
  std::int64_t oversize_allocations = 0, oversize_segments = 0;
  Bytes retiring_bytes = 0;
  std::size_t block_count = 0, segment_count = 0, foreign_uses = 0;
  std::size_t attached = 0;
  std::size_t parked_found = 0;
  std::unordered_set<const Block*> free_blocks, pending_blocks, parked_blocks;
  std::unordered_map<const Stream*, std::uint32_t> references;
  std::unordered_map<const Stream*, Bytes> cached_bytes;
};

void DeviceAllocator::validate() {
  MutexLock lock(mutex_);
  Sums sums;
  collect_parked(sums);
  for_each_pool([&](const MemPool& pool)
                    QUARRY_REQUIRES(mutex_) { validate_segments(pool, sums); });
  QUARRY_CHECK_EQ(sums.segment_count, segments_.live_count());
  QUARRY_CHECK_EQ(sums.attached, segments_by_address_.size());
  std::size_t unused_blocks = stock_.unused_count();
  for (int i = 0; i < mutex_.open_count(); ++i)
    unused_blocks += mutex_.get(i).blocks.unused_count();
  QUARRY_CHECK_EQ(sums.block_count + unused_blocks, block_source_.outside_count());
  QUARRY_CHECK_EQ(sums.foreign_uses, foreign_uses_.live_count());
  QUARRY_CHECK_EQ(sums.parked_found, sums.parked_blocks.size());
  validate_pools(sums);
  validate_fences(sums);
  validate_stats(sums);
  validate_pins();
  routing_.clear(RoutingReason::kValidating);
}

void DeviceAllocator::validate_segments(const MemPool& pool, Sums& sums) {
  const Segment* previous = nullptr;
  PoolStats own;
  for (const Segment* segment = pool.first_segment; segment != nullptr; segment = segment->next) {
    QUARRY_CHECK(segment->pool == &pool);
    QUARRY_CHECK_EQ(segment->is_private, !pool.is_default());
    QUARRY_CHECK(segment->previous == previous);
    if (previous != nullptr) QUARRY_CHECK_COMPARE(previous->sequence, <, segment->sequence);
    if (!segment->is_detached) QUARRY_CHECK(find_segment(segment->address) == segment);
    sums.attached += segment->is_detached ? 0 : 1;
    validate_blocks(*segment, sums);
    own.segments.add(1);
    own.reserved_bytes.add(static_cast<std::int64_t>(segment->reserved_bytes));
    for (const Block* block = segment->first; block != nullptr; block = block->next) {
      const auto size = static_cast<std::int64_t>(block->size);
      const bool is_allocated = block->state() == BlockState::kAllocated;
      own.allocations.add(is_allocated ? 1 : 0);
      own.allocated_bytes.add(is_allocated ? size : 0);
      own.active_bytes.add(block->is_active() ? size : 0);
    }
    previous = segment;
  }
  QUARRY_CHECK(pool.last_segment == previous);
  if (pool.is_default()) return;
  QUARRY_CHECK(pool.use_count > 0 || pool.requests > 0 || pool.first_segment != nullptr);
  QUARRY_CHECK_EQ(pool.stats.segments.current, own.segments.current);
  QUARRY_CHECK_EQ(pool.stats.reserved_bytes.current, own.reserved_bytes.current);
  QUARRY_CHECK_EQ(pool.stats.allocations.current, own.allocations.current);
  QUARRY_CHECK_EQ(pool.stats.allocated_bytes.current, own.allocated_bytes.current);
  QUARRY_CHECK_EQ(pool.stats.active_bytes.current, own.active_bytes.current);
}

void DeviceAllocator::validate_segment(Address address) {
  MutexLock lock(mutex_);
  Sums sums;
  collect_parked(sums);
  if (const Segment* segment = find_segment(address)) validate_blocks(*segment, sums);
  routing_.clear(RoutingReason::kValidating);
}

// Closes the short way, waits until no thread is in it, and notes what is parked.
void DeviceAllocator::collect_parked(Sums& sums) {
  routing_.set(RoutingReason::kValidating);
  take_all_counts();
  const OthersKeptOut others(magazines_, serial_);
  for (ThreadMagazines* magazines : magazines_) {
    magazines->lock().assume_alone();
    magazines->for_each([&sums, bit = magazines->get_thread_bit()](const Block& block) {
      QUARRY_CHECK(block.state() == BlockState::kAllocated);
      QUARRY_CHECK(!block.is_held.load(std::memory_order_relaxed));
      QUARRY_CHECK(block.foreign_uses == nullptr);
      QUARRY_CHECK(!block.segment->is_outdated);
      QUARRY_CHECK((block.owner->parking_threads.load(std::memory_order_relaxed) & bit) != 0);
      QUARRY_CHECK(sums.parked_blocks.insert(&block).second);
    });
  }
}

// Blocks tile the segment, in order, and no two free neighbours could be joined.
void DeviceAllocator::validate_blocks(const Segment& segment, Sums& sums) const {
  Address expected = segment.address;
  std::uint32_t active_blocks = 0;
  const Block* previous = nullptr;
  for (const Block* block = segment.first; block != nullptr; block = block->next) {
    QUARRY_CHECK(block->segment == &segment);
    QUARRY_CHECK(block->previous == previous);
    QUARRY_CHECK_EQ(block->address, expected);
    if (previous != nullptr && previous->is_free() && block->is_free()) {
      QUARRY_CHECK(previous->owner != block->owner);
    }
    if (!segment.is_expandable()) {
      QUARRY_CHECK_EQ(block->state() == BlockState::kRetiring, segment.is_detached);
      QUARRY_CHECK(block->state() != BlockState::kUnmapped);
    }
    validate_block(*block, sums);
    active_blocks += block->is_active() ? 1 : 0;
    expected = block->end();
    previous = block;
  }
  QUARRY_CHECK_EQ(expected, segment.address + segment.size);
  QUARRY_CHECK_EQ(active_blocks, segment.active_blocks);
  std::uint32_t claims = 0;
  for (auto claim = stale_claims_.lower_bound(segment.address);
       claim != stale_claims_.end() && claim->first < expected; ++claim)
    claims += static_cast<std::uint32_t>(claim->second);
  QUARRY_CHECK_GE(segment.holds, claims);
  Sums::Family& family = sums.family[static_cast<int>(segment.family)];
  family.segments += 1;
  family.reserved_bytes += static_cast<std::int64_t>(segment.reserved_bytes);
  if (segment.is_expandable()) {
    expandable_->validate(segment);
  } else {
    QUARRY_CHECK_EQ(segment.reserved_bytes, segment.size);
  }
  sums.oversize_segments += segment.is_oversize_counted ? 1 : 0;
  sums.retiring_bytes += segment.is_detached ? segment.size : 0;
  ++sums.segment_count;
}

void DeviceAllocator::validate_block(const Block& block, Sums& sums) const {
  QUARRY_CHECK_GE(block.size, kMinBlock);
  QUARRY_CHECK(is_aligned(block.size, kMinBlock));
  QUARRY_CHECK(is_aligned(block.address, kMinBlock));
  QUARRY_CHECK_GE(block.size, block.requested_bytes);
  const auto size = static_cast<std::int64_t>(block.size);
  Sums::Family& family = sums.family[static_cast<int>(block.segment->family)];
  ++sums.block_count;
  ++sums.references[block.owner];
  for (const ForeignUse* use = block.foreign_uses; use != nullptr; use = use->next) {
    ++sums.foreign_uses;
    ++sums.references[use->stream];
  }
  const bool is_allocated = block.state() == BlockState::kAllocated;
  const bool is_parked = sums.parked_blocks.count(&block) > 0;
  QUARRY_CHECK_EQ(pointer_map_.find(block.address).block == &block, is_allocated);
  sums.parked_found += is_parked ? 1 : 0;
  if (is_allocated && !is_parked) {
    family.allocations += 1;
    family.allocated_bytes += size;
    sums.held_requested_bytes += static_cast<std::int64_t>(block.requested_bytes);
    sums.oversize_allocations += block.is_oversize_counted ? 1 : 0;
  }
  if (block.is_active() && !is_parked) {
    family.active += 1;
    family.active_bytes += size;
    family.requested_bytes += static_cast<std::int64_t>(block.requested_bytes);
  }
  if (block.state() == BlockState::kPending) {
    sums.pending_blocks.insert(&block);
  } else {
    QUARRY_CHECK_EQ(block.pending_fences, 0u);
  }
  // Captured memory is apart: nobody outside of captures finds it.
  if (block.owner->is_captured) QUARRY_CHECK(block.segment->was_captured);
  if (block.capture != CaptureId::kNone)
    QUARRY_CHECK(block.owner->is_captured && block.is_active());
  if (!block.is_free()) return;
  QUARRY_CHECK(block.foreign_uses == nullptr);
  QUARRY_CHECK_EQ(block.requested_bytes, Bytes{0});
  sums.free_blocks.insert(&block);
  if (!block.segment->is_private) sums.cached_bytes[block.owner] += block.size;
  if (!block.is_split()) return;
  family.inactive_split += 1;
  family.inactive_split_bytes += size;
}

// Every free block is in the pool of its family under its owner, and nothing else is.
void DeviceAllocator::validate_pools(const Sums& sums) {
  std::size_t found = 0;
  const auto validate_index = [&](MemPool& pool, StatFamily family,
                                  bool is_outdated) QUARRY_REQUIRES(mutex_) {
    const BlockPool& blocks =
        is_outdated ? pool.get_outdated_blocks(family) : pool.get_blocks(family);
    for (const auto& stream : streams_.get_all()) {
      if (stream == nullptr) continue;
      QUARRY_CHECK(blocks.is_consistent(*stream));
      blocks.for_each(*stream, [&](const Block& block) {
        QUARRY_CHECK_EQ(block.segment->is_outdated, is_outdated);
        QUARRY_CHECK_EQ(sums.free_blocks.count(&block), std::size_t{1});
        QUARRY_CHECK(block.owner == stream.get());
        QUARRY_CHECK(block.segment->family == family);
        QUARRY_CHECK(block.segment->pool == &pool);
        ++found;
      });
    }
  };
  for_each_pool([&](MemPool& pool) QUARRY_REQUIRES(mutex_) {
    for (const bool is_outdated : {false, true}) {
      validate_index(pool, StatFamily::kSmall, is_outdated);
      validate_index(pool, StatFamily::kLarge, is_outdated);
    }
  });
  QUARRY_CHECK_EQ(found, sums.free_blocks.size());
  for (const auto& stream : streams_.get_all()) {
    if (stream == nullptr) continue;
    const auto cached = sums.cached_bytes.find(stream.get());
    QUARRY_CHECK_EQ(stream->cached_bytes, cached == sums.cached_bytes.end() ? 0 : cached->second);
    const auto references = sums.references.find(stream.get());
    // Requests that wait for the driver hold a reference too.
    QUARRY_CHECK_GE(stream->references,
                    references == sums.references.end() ? 0 : references->second);
  }
}

// Pending blocks are those that a fence lists or that are queued, each as often as it counts.
void DeviceAllocator::validate_fences(const Sums& sums) const {
  std::unordered_map<const Block*, std::uint32_t> waits;
  std::int64_t sealed = 0;
  fences_.for_each([&](const Fence& fence) {
    sealed += fence.event != EventHandle::kNull ? 1 : 0;
    for (const Block* block : fence.waiters)
      ++waits[block];
  });
  captures_.for_each_wait([&](const Block& block) { ++waits[&block]; });
  QUARRY_CHECK_EQ(sealed, fences_.outstanding_count());
  std::unordered_set<const Block*> queued(queued_frees_.begin(), queued_frees_.end());
  QUARRY_CHECK_EQ(queued.size(), queued_frees_.size());
  for (const auto& [block, count] : waits) {
    QUARRY_CHECK_EQ(sums.pending_blocks.count(block), std::size_t{1});
    QUARRY_CHECK_EQ(block->pending_fences, count);
  }
  for (const Block* block : sums.pending_blocks) {
    QUARRY_CHECK(waits.count(block) + queued.count(block) == 1);
  }
}

void DeviceAllocator::validate_stats(const Sums& sums) const {
  for (const StatFamily family : {StatFamily::kSmall, StatFamily::kLarge}) {
    const Sums::Family& sum = sums.family[static_cast<int>(family)];
    const auto current = [family](const FamilyStat& stat) {
      QUARRY_CHECK_EQ(stat.family[0].current + stat.family[1].current, stat.all.current);
      QUARRY_CHECK_GE(stat.all.peak, stat.all.current);
      return stat.family[static_cast<int>(family)].current;
    };
    QUARRY_CHECK_EQ(current(stats_.allocation), sum.allocations);
    QUARRY_CHECK_EQ(current(stats_.allocated_bytes), sum.allocated_bytes);
    QUARRY_CHECK_EQ(current(stats_.active), sum.active);
    QUARRY_CHECK_EQ(current(stats_.active_bytes), sum.active_bytes);
    QUARRY_CHECK_EQ(current(stats_.requested_bytes), sum.requested_bytes);
    QUARRY_CHECK_EQ(current(stats_.segment), sum.segments);
    QUARRY_CHECK_EQ(current(stats_.reserved_bytes), sum.reserved_bytes);
    QUARRY_CHECK_EQ(current(stats_.inactive_split), sum.inactive_split);
    QUARRY_CHECK_EQ(current(stats_.inactive_split_bytes), sum.inactive_split_bytes);
  }
  QUARRY_CHECK_EQ(held_requested_bytes_, sums.held_requested_bytes);
  QUARRY_CHECK_EQ(stats_.oversize_allocations.current, sums.oversize_allocations);
  QUARRY_CHECK_EQ(stats_.oversize_segments.current, sums.oversize_segments);
  QUARRY_CHECK_EQ(retiring_bytes_, sums.retiring_bytes);
}

}  // namespace quarry
