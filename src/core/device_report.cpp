// SPDX-License-Identifier: Apache-2.0
// What one device's allocator says of itself: statistics, caches by stream, reports, pointers.
// Reads only; also its limits, which are figures too.
#include <algorithm>
#include <iterator>

#include "core/device_allocator.hpp"
#include "core/expandable_memory.hpp"
#include "core/size_policy.hpp"
#include "core/thread_state.hpp"

namespace quarry {

DeviceStats DeviceAllocator::get_stats() {
  DriverResult<MemoryInfo> info = DriverCode::kNotPermitted;
  if (!is_driver_callback_thread()) {
    CaptureModeBracket bracket(driver_);
    info = driver_.get_memory_info(device_);
  }
  Section section(*this);
  const Bytes parked = take_all_counts();
  DeviceStats stats = stats_;
  stats.parked_bytes = static_cast<std::int64_t>(parked);
  const std::int64_t reserved = stats.reserved_bytes.all.current;
  const std::int64_t active = stats.active_bytes.all.current;
  const std::int64_t allocated = stats.allocated_bytes.all.current;
  stats.max_split_size = config_.max_split_bytes == kUnlimited
                             ? -1
                             : static_cast<std::int64_t>(config_.max_split_bytes);
  stats.allocator_slack = allocated - held_requested_bytes_;
  stats.pending_bytes = active - allocated;
  stats.cached_bytes =
      reserved - active - stats.parked_bytes - static_cast<std::int64_t>(retiring_bytes_);
  stats.idle_bytes = static_cast<std::int64_t>(streams_.idle().cached_bytes);
  stats.fences_outstanding = fences_.outstanding_count();
  stats.fences_failed = fences_.failed_count();
  for (const auto& stream : streams_.get_all()) {
    if (stream == nullptr) continue;
    stats.largest_free_block =
        std::max(stats.largest_free_block,
                 static_cast<std::int64_t>(find_largest_free(default_pool_, *stream)));
  }
  if (info.is_ok()) {
    const auto used = static_cast<std::int64_t>(info.value.total_bytes - info.value.free_bytes);
    stats.external_bytes = std::max<std::int64_t>(used - reserved, 0);
  }
  return stats;
}

Bytes DeviceAllocator::find_largest_free(const MemPool& pool, const Stream& stream) {
  Bytes largest = 0;
  for (const StatFamily family : {StatFamily::kSmall, StatFamily::kLarge}) {
    const Block* block = pool.get_blocks(family).find_largest(stream);
    if (block != nullptr) largest = std::max(largest, block->size);
  }
  return largest;
}

std::vector<StreamCache> DeviceAllocator::list_caches() const {
  std::vector<StreamCache> caches;
  for (const auto& stream : streams_.get_all()) {
    if (stream == nullptr || stream->cached_bytes == 0) continue;
    caches.push_back({static_cast<std::uint64_t>(stream->ref.handle), stream->cached_bytes,
                      find_largest_free(default_pool_, *stream)});
  }
  std::stable_sort(caches.begin(), caches.end(), [](const StreamCache& a, const StreamCache& b) {
    return a.cached_bytes > b.cached_bytes;
  });
  return caches;
}

std::vector<StreamCache> DeviceAllocator::get_stream_caches() const {
  MutexLock lock(mutex_);
  return list_caches();
}

OomReport DeviceAllocator::make_oom_report(const Request& request) const {
  OomReport report;
  report.device = device_;
  report.stream = static_cast<std::uint64_t>(request.stream->ref.handle);
  report.requested_bytes = request.requested_bytes;
  report.rounded_bytes = request.needed_bytes;
  report.segment_bytes = request.segment_bytes;
  report.reserved_bytes = static_cast<Bytes>(stats_.reserved_bytes.all.current);
  report.allocated_bytes = static_cast<Bytes>(stats_.allocated_bytes.all.current);
  const auto active = static_cast<Bytes>(stats_.active_bytes.all.current);
  report.pending_bytes = active - report.allocated_bytes;
  report.cached_bytes = report.reserved_bytes - active - retiring_bytes_;
  report.largest_free_block = std::max(find_largest_free(*request.pool, *request.stream),
                                       find_largest_free(*request.pool, streams_.idle()));
  for (const auto& [id, pool] : private_pools_) {
    const auto cached =
        static_cast<Bytes>(pool->stats.reserved_bytes.current - pool->stats.active_bytes.current);
    report.private_cached_bytes += cached;
    if (pool.get() != request.pool) report.others_cached_bytes += cached;
  }
  report.pool = request.pool->id;
  report.has_own_functions = request.pool->options.backend.is_set();
  report.pool_reserved_bytes = static_cast<Bytes>(request.pool->stats.reserved_bytes.current);
  report.pool_limit_bytes = request.pool->options.limit_bytes;
  if (has_limit()) report.limit_bytes = calculate_allowed_bytes();
  report.caches = list_caches();
  report.device_total_bytes = properties_.total_bytes;
  report.is_expandable = config_.expandable_segments;
  return report;
}

void DeviceAllocator::reset_peak_stats() {
  MutexLock lock(mutex_);
  take_all_counts();
  stats_.reset_peak();
}

void DeviceAllocator::reset_accumulated_stats() {
  MutexLock lock(mutex_);
  take_all_counts();
  stats_.reset_accumulated();
  fences_.reset_failed_count();
}

void DeviceAllocator::count_invalid_free() {
  MutexLock lock(mutex_);
  ++stats_.invalid_frees;
}

// --- limits and settings ---

void DeviceAllocator::configure(const Config& config) {
  MutexLock lock(mutex_);
  if (config.per_process_memory_fraction != config_.per_process_memory_fraction) {
    fraction_ = config.per_process_memory_fraction;
  }
  if (config.max_split_bytes != config_.max_split_bytes) empty_magazines();  // see try_park
  config_ = config;
  expandable_->update_kind();
  update_routing();
}

void DeviceAllocator::set_memory_fraction(double fraction) {
  MutexLock lock(mutex_);
  fraction_ = fraction;
}

double DeviceAllocator::get_memory_fraction() const {
  MutexLock lock(mutex_);
  return fraction_;
}

void DeviceAllocator::set_limit(Bytes bytes) {
  MutexLock lock(mutex_);
  limit_ = bytes;
}

Bytes DeviceAllocator::get_limit() const {
  MutexLock lock(mutex_);
  return limit_;
}

bool DeviceAllocator::has_limit() const {
  return fraction_ < 1.0 || limit_ != kUnlimited;
}

Bytes DeviceAllocator::calculate_allowed_bytes() const {
  if (fraction_ >= 1.0) return limit_;
  const auto part = static_cast<Bytes>(fraction_ * static_cast<double>(properties_.total_bytes));
  return std::min(limit_, part);
}

// --- pointers ---

Segment* DeviceAllocator::find_segment(Address address) const {
  const auto after = segments_by_address_.upper_bound(address);
  if (after == segments_by_address_.begin()) return nullptr;
  Segment* const segment = std::prev(after)->second;
  return address - segment->address < segment->size ? segment : nullptr;
}

// The block of a user that the address lies in; null if there is none.
const Block* DeviceAllocator::find_held(Address inside) const {
  const PointerMap::Found found = pointer_map_.find(inside);  // most addresses are a block's first
  const Block* block = found.device == device_ ? found.block : nullptr;
  if (block == nullptr) {
    const Segment* const segment = find_segment(inside);
    if (segment == nullptr) return nullptr;
    block = segment->first;
    while (inside >= block->end())
      block = block->next;
  }
  if (block->state() != BlockState::kAllocated) return nullptr;
  return block->is_held.load(std::memory_order_relaxed) ? block : nullptr;
}

std::optional<BlockInfo> DeviceAllocator::find_block(Address address) const {
  MutexLock lock(mutex_);
  const Block* const block = find_held(address);
  if (block == nullptr) return std::nullopt;
  const Segment& segment = *block->segment;
  return BlockInfo{block->address,   block->size,  block->requested_bytes,
                   segment.address,  segment.size, segment.is_expandable(),
                   block->owner->ref};
}

std::string DeviceAllocator::describe_address(Address address, bool* is_freed_block) const {
  MutexLock lock(mutex_);
  *is_freed_block = false;
  const Segment* const segment = find_segment(address);
  if (segment == nullptr) return {};
  const Block* block = segment->first;
  while (address >= block->end())
    block = block->next;
  if (block->is_held.load(std::memory_order_relaxed)) {
    return "it lies " + std::to_string(address - block->address) +
           " bytes inside a live block of " + std::to_string(block->size) + " bytes";
  }
  *is_freed_block = true;
  return "it was freed already (the memory is " + std::string(quarry::get_name(block->state())) +
         " now)";
}

}  // namespace quarry
