// SPDX-License-Identifier: Apache-2.0
// Giving segments back to the driver: which ones, and how without the mutex. First the user's free
// gate is passed; where it is shut, everything stays in the cache, of use to whoever holds the
// gate. Then a segment is detached (its blocks leave the index and retire), the driver is called
// unlocked, and only then is it accounted: erased, or attached again if the driver refused.
#include <algorithm>
#include <memory>

#include "core/device_allocator.hpp"
#include "core/expandable_memory.hpp"
#include "core/size_policy.hpp"
#include "core/thread_state.hpp"

namespace quarry {

Status DeviceAllocator::empty_cache() noexcept {
  if (is_driver_callback_thread()) {
    return Status(StatusCode::kBusy, "a cache cannot be emptied from a driver callback");
  }
  Section section(*this);
  if (free_gate_.is_held_by_this_thread()) {
    return Status(StatusCode::kBusy,
                  "the calling thread holds the driver-free guard, so nothing was released");
  }
  ++stats_.num_sync_all_streams;
  Released released;
  do {
    if (released.gate == FreeGate::Entry::kHeldByOthers) wait_for_gate();
    empty_magazines();
    wait_for_fences();
    wait_for_turn();
    released = release_vacant_segments(Need::kEmptyCache);
  } while (released.gate == FreeGate::Entry::kHeldByOthers);
  if (released.is_done()) return Status::ok();
  return Status(
      StatusCode::kDriverError,
      "the driver refused to free a segment, which stays cached: " + describe(released.failure));
}

// Those of the default pool and of released ones; where memory is short, also what other pools can
// spare.
Released DeviceAllocator::release_vacant_segments(Need need) {
  std::vector<Segment*> vacant;
  std::vector<Segment*> ranges;
  for_each_pool([&](const MemPool& pool) QUARRY_REQUIRES(mutex_) {
    const bool is_spare = pool.is_default() || pool.use_count == 0;
    const bool may_spare = need == Need::kMemoryShort && !pool.options.no_recycle;
    if (!is_spare && !may_spare) return;
    list_vacant(pool, vacant);
    list_ranges(pool, ranges);
  });
  const Released of_plain = release_segments(vacant);
  const Released of_ranges = release_extents(ranges);
  return of_plain.is_done() ? of_ranges : of_plain;
}

void DeviceAllocator::list_ranges(const MemPool& pool, std::vector<Segment*>& ranges) const {
  for (Segment* segment = pool.first_segment; segment != nullptr; segment = segment->next) {
    if (segment->is_expandable()) ranges.push_back(segment);
  }
}

// What is idle in expandable segments. Never waits for the gate.
Released DeviceAllocator::release_extents(const std::vector<Segment*>& ranges) {
  Released released;
  if (ranges.empty() && !expandable_->may_have_unreleased()) return released;
  released.gate = free_gate_.try_enter();
  if (released.gate != FreeGate::Entry::kEntered) return released;
  released.failure = expandable_->release_idle(ranges);
  free_gate_.leave();
  if (released.failure != DriverCode::kSuccess) ++stats_.driver_free_failures;
  return released;
}

// Segments that the driver took are erased, the others stay cached. Never waits for the gate.
Released DeviceAllocator::release_segments(const std::vector<Segment*>& segments) {
  Released released;
  if (segments.empty()) return released;
  released.gate = free_gate_.try_enter();
  if (released.gate != FreeGate::Entry::kEntered) return released;
  for (Segment* segment : segments)
    detach(*segment);
  const auto codes = run_unlocked([this, &segments] {
    std::vector<DriverCode> results(segments.size());
    CaptureModeBracket bracket(driver_);
    for (std::size_t i = 0; i < segments.size(); ++i) {
      const bool is_drivers = !segments[i]->pool->options.backend.is_set();
      if (is_drivers) results[i] = driver_.free(device_, segments[i]->address);
    }
    return results;
  });
  return_to_backends(segments);
  free_gate_.leave();
  for (std::size_t i = 0; i < segments.size(); ++i) {
    if (codes[i] == DriverCode::kSuccess) {
      erase_segment(*segments[i]);
      continue;
    }
    attach_again(*segments[i]);
    ++stats_.driver_free_failures;
    if (released.failure == DriverCode::kSuccess) released.failure = codes[i];
  }
  return released;
}

// Not counted as an operation under way, as no function of the user's is: it may allocate.
void DeviceAllocator::return_to_backends(const std::vector<Segment*>& segments)
    QUARRY_NO_THREAD_SAFETY_ANALYSIS {
  const auto has_backend = [](const Segment* segment) {
    return segment->pool->options.backend.is_set();
  };
  if (std::ranges::none_of(segments, has_backend)) return;
  mutex_.unlock();
  {
    CaptureModeBracket bracket(driver_);
    for (const Segment* segment : segments) {
      if (!has_backend(segment)) continue;
      segment->pool->options.backend.free(segment->address, segment->size, segment->stream);
    }
  }
  mutex_.lock();
}

// With nothing in hand that the gate's holder could need: neither the mutex, nor the last rung,
// nor detached segments.
void DeviceAllocator::wait_for_gate() QUARRY_NO_THREAD_SAFETY_ANALYSIS {
  mutex_.unlock();
  free_gate_.wait_until_open();
  mutex_.lock();
}

void DeviceAllocator::detach(Segment& segment) {
  QUARRY_ASSERT(segment.is_vacant());
  InactiveSplitChange change;
  for (Block* block = segment.first; block != nullptr; block = block->next) {
    pool_remove(*block, change);
    block->become_retiring();
  }
  apply(change, segment.family);
  // The driver may give the address to another thread before this one accounts for the release.
  segments_by_address_.erase(segment.address);
  segment.is_detached = true;
  retiring_bytes_ += segment.size;
}

void DeviceAllocator::attach_again(Segment& segment) {
  segments_by_address_.emplace(segment.address, &segment);
  segment.is_detached = false;
  retiring_bytes_ -= segment.size;
  InactiveSplitChange change;
  for (Block* block = segment.first; block != nullptr;) {
    block->return_from_retiring();
    if (block->owner->life == StreamLife::kDrained) set_owner(*block, get_idle_owner(*block));
    Block& joined = coalesce(*block, change);
    pool_insert(joined, change);
    block = joined.next;
  }
  apply(change, segment.family);
}

void DeviceAllocator::erase_segment(Segment& segment) {
  stats_.segment.add(segment.family, -1);
  const auto reserved = static_cast<std::int64_t>(segment.reserved_bytes);
  stats_.reserved_bytes.add(segment.family, -reserved);
  if (segment.is_oversize_counted) stats_.oversize_segments.add(-1);
  if (!segment.is_expandable()) ++stats_.num_device_free;
  if (segment.is_detached) {
    retiring_bytes_ -= segment.size;
  } else {
    segments_by_address_.erase(segment.address);
  }
  for (Block* block = segment.first; block != nullptr;) {
    Block* const next = block->next;
    Stream& owner = *block->owner;
    get_stock(owner).give_back(std::construct_at(block));
    release_reference(owner);
    block = next;
  }
  MemPool& pool = *segment.pool;
  pool.remove(segment);
  if (segment.is_private) {
    pool.stats.segments.add(-1);
    pool.stats.reserved_bytes.add(-reserved);
    if (!segment.is_expandable()) ++pool.stats.num_device_free;
  }
  segments_.give_back(&segment);
  drop_pool_if_unused(pool);
}

// Searches of the pool since the youngest block of a vacant segment became free.
std::uint32_t DeviceAllocator::get_age(const Segment& segment) const {
  const BlockPool& pool = segment.pool->get_blocks(segment.family);
  std::uint32_t age = pool.get_age(*segment.first);
  for (const Block* block = segment.first; block != nullptr; block = block->next) {
    age = std::min(age, pool.get_age(*block));
  }
  return age;
}

// Vacant large segments, the longest unused first. Upstream releases, in rounds, all that are at
// least of average age, and so often more than the target; without its quirks we stop there.
std::vector<Segment*> DeviceAllocator::choose_garbage(Bytes target_bytes) const {
  struct Candidate {
    Segment* segment;
    std::uint32_t age;
  };
  std::vector<Candidate> candidates;
  std::uint64_t total_age = 0;
  for (Segment* segment = default_pool_.first_segment; segment != nullptr;
       segment = segment->next) {
    const bool is_candidate = segment->family == StatFamily::kLarge && !segment->is_expandable() &&
                              segment->is_vacant() && !segment->is_detached;
    if (!is_candidate) continue;
    candidates.push_back({segment, get_age(*segment)});
    total_age += candidates.back().age;
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.age > b.age; });

  std::vector<Segment*> chosen;
  Bytes chosen_bytes = 0;
  for (auto next = candidates.begin(); next != candidates.end() && chosen_bytes < target_bytes;) {
    const std::uint64_t average = total_age / static_cast<std::uint64_t>(candidates.end() - next);
    for (; next != candidates.end() && next->age >= average; ++next) {
      if (!config_.upstream_quirks && chosen_bytes >= target_bytes) break;
      total_age -= next->age;
      chosen.push_back(next->segment);
      chosen_bytes += next->segment->size;
    }
  }
  return chosen;
}

// Of this stream's oversize blocks, the smallest that is large enough; else as many as together
// are, from the largest down.
std::vector<Segment*> DeviceAllocator::choose_oversize(const Request& request,
                                                       bool* is_enough) const {
  const BlockPool& pool = request.pool->get_blocks(StatFamily::kLarge);
  const Bytes wanted = std::max(request.needed_bytes, config_.max_split_bytes);
  const auto is_whole = [](const Block& block) {
    return !block.is_split() && block.segment->is_vacant() && !block.segment->was_captured;
  };
  if (Block* fitting = pool.find_at_least(*request.stream, wanted)) {
    *is_enough = is_whole(*fitting);
    if (*is_enough) return {fitting->segment};
    return {};
  }
  std::vector<Segment*> chosen;
  Bytes chosen_bytes = 0;
  Block* block = pool.find_largest(*request.stream);
  while (block != nullptr && chosen_bytes < wanted && is_oversize(block->size, config_)) {
    if (is_whole(*block)) {
      chosen.push_back(block->segment);
      chosen_bytes += block->size;
    }
    block = BlockPool::get_next_smaller(*block);
  }
  *is_enough = chosen_bytes >= wanted;
  return chosen;
}

// Whatever the state, everything goes back; the number of blocks that users still held.
std::size_t DeviceAllocator::tear_down() {
  Section section(*this);
  std::size_t live_blocks = 0;
  empty_magazines();
  CaptureModeBracket bracket(driver_);
  expandable_->drain_before_tear_down();
  while (!segments_by_address_.empty()) {
    Segment& segment = *segments_by_address_.begin()->second;
    for (Block* block = segment.first; block != nullptr; block = block->next) {
      if (block->state() != BlockState::kAllocated) continue;
      ++live_blocks;
      pointer_map_.remove(block->address, block->segment->get_region_use());
    }
    const SegmentBackend& backend = segment.pool->options.backend;
    if (segment.is_expandable()) {
      expandable_->tear_down(segment);
    } else if (backend.is_set()) {
      // After unlocking, and before the backend hears that it is unused.
      unused_hooks_.push_back([free = backend.free, address = segment.address, size = segment.size,
                               stream = segment.stream] { free(address, size, stream); });
    } else {
      static_cast<void>(driver_.free(device_, segment.address));
    }
    erase_segment(segment);
  }
  expandable_->finish_tear_down();
  while (!private_pools_.empty()) {
    MemPool& pool = *private_pools_.begin()->second;
    pool.use_count = 0;
    drop_pool_if_unused(pool);
  }
  fences_.destroy_events();
  return live_blocks;
}

}  // namespace quarry
