// SPDX-License-Identifier: Apache-2.0
// Private pools: how they come and go, where their segments come from, what they lend.
//
// A pool lives from the first retain to the last release, and after that until its last block is
// freed and its last segment has gone back. Nobody is served from a released pool, but its blocks
// stay valid: a graph's output may outlive the graph.
#include <algorithm>
#include <utility>

#include "core/device_allocator.hpp"
#include "core/expandable_memory.hpp"
#include "core/thread_state.hpp"

namespace quarry {

MemPool* DeviceAllocator::find_pool(PoolId id) {
  if (id.is_default()) return &default_pool_;
  const auto found = private_pools_.find(id);
  return found == private_pools_.end() ? nullptr : found->second.get();
}

Result<MemPool*> DeviceAllocator::require_pool(PoolId id) {
  MemPool* const pool = find_pool(id);
  if (pool != nullptr && (id.is_default() || pool->use_count > 0)) return pool;
  return Status(StatusCode::kInvalidArgument,
                "pool " + to_text(id) + " of device " + std::to_string(device_) +
                    (pool == nullptr ? " does not exist" : " was released"));
}

Status DeviceAllocator::retain_pool(PoolId id, const PoolOptions& options) {
  Section section(*this);
  MemPool* const pool = find_pool(id);
  if (pool != nullptr && pool->use_count == 0) {
    // Functions are told once that they are unused, and each segment goes back to where it is of.
    if (pool->options.backend.has_any() || options.backend.has_any()) {
      return Status(StatusCode::kBusy,
                    "pool " + to_text(id) +
                        " was released and has memory still; with functions of its own it can be "
                        "held again only when that is gone");
    }
    pool->options = options;
  }
  hold(pool != nullptr ? *pool : make_pool(id, options));
  return Status::ok();
}

void DeviceAllocator::hold(MemPool& pool) {
  if (pool.use_count++ == 0) pool.tenure = ++last_tenure_;
}

MemPool& DeviceAllocator::make_pool(PoolId id, const PoolOptions& options) {
  auto pool = std::make_unique<MemPool>(id, options);
  pool->serial = next_sequence_++;
  pool->small.set_ordered(!config_.thread_cache);
  pool->large.set_ordered(!config_.thread_cache);
  return *private_pools_.emplace(id, std::move(pool)).first->second;
}

Status DeviceAllocator::hold_pool(PoolId id) {
  MutexLock lock(mutex_);
  auto pool = require_pool(id);
  if (!pool.is_ok()) return std::move(pool).status();
  hold(*pool.value());
  return Status::ok();
}

Result<PoolHolders> DeviceAllocator::release_pool(PoolId id) noexcept {
  Section section(*this);
  auto pool = require_pool(id);
  if (!pool.is_ok()) return std::move(pool).status();
  PoolHolders holders{0, pool.value()->tenure};
  holders.count = release(*pool.value());
  if (!is_driver_callback_thread()) return_finished();
  return holders;
}

int DeviceAllocator::release(MemPool& pool) {
  const int holders = --pool.use_count;
  if (holders > 0) return holders;
  has_finished_backends_ |= pool.options.backend.is_set();
  ++pool.requests;
  expandable_->drop_unused_ranges(pool);
  --pool.requests;
  drop_pool_if_unused(pool);
  return 0;
}

Result<bool> DeviceAllocator::make_graph_pool(PoolId id, StreamHandle stream,
                                              bool may_make) noexcept {
  Section section(*this);
  // Fails for one that the user has released: nobody is served from it, nor is another made.
  if (find_pool(id) != nullptr) {
    auto pool = require_pool(id);
    if (!pool.is_ok()) return std::move(pool).status();
    return true;
  }
  if (!may_make) return false;
  auto word = std::make_unique<GoneGraphs::Report>(GoneGraphs::Report{gone_graphs_, id});
  const DriverCode code =
      driver_.call_when_graph_is_gone({device_, stream}, &GoneGraphs::report, word.get());
  if (code != DriverCode::kSuccess) {
    return Status(StatusCode::kDriverError,
                  "the driver failed to tie a pool to the graph of the capture: " +
                      describe(code) + "; begin a pool instead");
  }
  static_cast<void>(word.release());
  hold(make_pool(id, {}));
  return true;
}

bool DeviceAllocator::has_captures_of_graph_pools() {
  Section section(*this);
  settle_frees();
  return std::ranges::any_of(private_pools_, [this](const auto& entry) QUARRY_REQUIRES(mutex_) {
    return entry.first.first == kGraphPools && captures_.is_any_of(entry.first);
  });
}

void DeviceAllocator::release_pools_of_gone_graphs() {
  for (const PoolId id : gone_graphs_->take()) {
    auto pool = require_pool(id);
    if (pool.is_ok()) release(*pool.value());
  }
}

Result<std::uint64_t> DeviceAllocator::prepare_pool(PoolId id, bool may_capture) {
  Section section(*this);
  settle_frees();  // first: the pool may go with its graph
  auto pool = require_pool(id);
  if (!pool.is_ok()) return std::move(pool).status();
  if (may_capture && !is_driver_callback_thread()) adopt_finished(*pool.value());
  return pool.value()->tenure;
}

void DeviceAllocator::settle() {
  Section section(*this);
  settle_frees();
}

Status DeviceAllocator::trim_pool(PoolId id) noexcept {
  if (is_driver_callback_thread()) {
    return Status(StatusCode::kBusy, "a pool cannot be trimmed from a driver callback");
  }
  Section section(*this);
  if (find_pool(id) == nullptr) return require_pool(id).status();  // released ones are fine
  wait_for_fences();
  wait_for_turn();
  std::vector<Segment*> vacant;
  std::vector<Segment*> ranges;
  // The pool may be gone after the wait.
  if (MemPool* const found = find_pool(id)) {
    list_vacant(*found, vacant);
    list_ranges(*found, ranges);
  }
  const Released of_plain = release_segments(vacant);
  const Released released = of_plain.is_done() ? release_extents(ranges) : of_plain;
  if (released.gate != FreeGate::Entry::kEntered) {
    return Status(StatusCode::kBusy, "the driver-free guard is held, so nothing was released");
  }
  if (released.is_done()) return Status::ok();
  return Status(StatusCode::kDriverError,
                "the driver refused to free a segment, which stays in the pool: " +
                    describe(released.failure));
}

// Appends the vacant plain segments that no graph may use.
void DeviceAllocator::list_vacant(const MemPool& pool, std::vector<Segment*>& vacant) const {
  const bool has_graphs = !pool.is_default() && pool.use_count > 0;
  for (Segment* segment = pool.first_segment; segment != nullptr; segment = segment->next) {
    if (!segment->is_vacant() || segment->is_detached || segment->is_expandable()) continue;
    if (!(has_graphs && segment->was_captured)) vacant.push_back(segment);
  }
}

void DeviceAllocator::drop_pool_if_unused(MemPool& pool) {
  if (pool.is_default() || pool.use_count > 0 || pool.requests > 0) return;
  if (pool.first_segment != nullptr) return;
  if (pool.captured_idle != nullptr) pool.captured_streams.push_back(pool.captured_idle);
  for (Stream* stream : pool.captured_streams) {
    stream->life = StreamLife::kDrained;
    release_reference(*stream);
  }
  if (pool.options.backend.on_unused != nullptr) {
    unused_hooks_.push_back(std::move(pool.options.backend.on_unused));
  }
  private_pools_.erase(pool.id);
}

Status DeviceAllocator::change_pool(PoolId id, const PoolChange& change) {
  MutexLock lock(mutex_);
  auto pool = require_pool(id);
  if (!pool.is_ok()) return std::move(pool).status();
  PoolOptions& options = pool.value()->options;
  options.use_on_oom = change.use_on_oom.value_or(options.use_on_oom);
  options.no_split = change.no_split.value_or(options.no_split);
  options.limit_bytes = change.limit_bytes.value_or(options.limit_bytes);
  return Status::ok();
}

PoolReport DeviceAllocator::make_report(const MemPool& pool) {
  return {pool.id, pool.use_count, captures_.is_any_of(pool.id), pool.stats,
          pool.options.limit_bytes};
}

Result<PoolReport> DeviceAllocator::get_pool_report(PoolId id) {
  Section section(*this);
  settle_frees();
  const MemPool* const pool = find_pool(id);
  if (pool == nullptr || pool->is_default()) {
    return Status(StatusCode::kInvalidArgument, "pool " + to_text(id) + " of device " +
                                                    std::to_string(device_) + " does not exist");
  }
  return make_report(*pool);
}

std::vector<PoolReport> DeviceAllocator::get_pool_reports() {
  Section section(*this);
  settle_frees();
  std::vector<PoolReport> reports;
  for (const auto& [id, pool] : private_pools_)
    reports.push_back(make_report(*pool));
  return reports;
}

void DeviceAllocator::count_private(const Block& block, int allocated, int active) {
  PoolStats& stats = block.segment->pool->stats;
  const auto size = static_cast<std::int64_t>(block.size);
  stats.allocations.add(allocated);
  stats.allocated_bytes.add(allocated * size);
  stats.active_bytes.add(active * size);
}

// --- memory for others ---

// For a request to the default pool, from pools that lend: what no capture was given.
Block* DeviceAllocator::borrow(const Request& request) {
  if (!request.pool->is_default()) return nullptr;
  Request other = request;
  for (const auto& [id, pool] : private_pools_) {
    if (!pool->options.use_on_oom || pool->use_count == 0) continue;
    other.pool = pool.get();
    if (Block* block = find_fitting(other)) return block;
    if (!expandable_->serves(*pool)) continue;
    if (Block* block = expandable_->join(other)) return block;
  }
  return nullptr;
}

// --- segments ---

bool DeviceAllocator::is_over_pool_limit(const Request& request) const {
  const MemPool& pool = *request.pool;
  const Bytes taken = static_cast<Bytes>(pool.stats.reserved_bytes.current) + pool.growing_bytes;
  const Bytes limit = pool.options.limit_bytes;
  return request.segment_bytes > limit || taken > limit - request.segment_bytes;
}

DriverResult<Address> DeviceAllocator::obtain_segment(const Request& request) {
  if (request.pool->options.backend.is_set()) return obtain_from_backend(request);
  return run_unlocked([this, bytes = request.segment_bytes] {
    CaptureModeBracket bracket(driver_);
    return driver_.allocate(device_, bytes);
  });
}

// Not counted as an operation under way, as no function of the user's is: it may allocate.
DriverResult<Address> DeviceAllocator::obtain_from_backend(const Request& request)
    QUARRY_NO_THREAD_SAFETY_ANALYSIS {
  const SegmentBackend& backend = request.pool->options.backend;
  const Bytes bytes = request.segment_bytes;
  const StreamRef stream = request.stream->ref;
  const auto call = [&](auto function) QUARRY_NO_THREAD_SAFETY_ANALYSIS {
    mutex_.unlock();
    CaptureModeBracket bracket(driver_);
    function();
    mutex_.lock();
  };
  Address address = 0;
  call([&] { address = backend.allocate(bytes, stream); });
  if (address == 0) return DriverCode::kOutOfMemory;
  const bool is_ours = overlaps_segment(address, bytes);
  const bool has_end = address < address + bytes;  // there is no address behind the last
  if (is_aligned(address, kMinBlock) && has_end && !is_ours) return address;
  note("event=pool_backend_failed pool=\"" + to_text(request.pool->id) +
       "\" cause=\"it returned " + format_address(address) +
       (is_ours   ? ", which is in use"
        : has_end ? ", not a multiple of 512"
                  : ", where so much cannot be") +
       "\"");
  // What is in use already is the backend's own mistake; freeing it would take it from its holder.
  if (!is_ours) call([&] { backend.free(address, bytes, stream); });
  return DriverCode::kOutOfMemory;
}

bool DeviceAllocator::overlaps_segment(Address address, Bytes bytes) const {
  const auto after = segments_by_address_.lower_bound(address);
  if (after != segments_by_address_.end() && after->first - address < bytes) return true;
  return find_segment(address) != nullptr;
}

// Released pools with a backend do not wait for memory to become short: their maker waits for the
// last call. Whoever frees the last block makes it; where the free gate is shut, the next that
// calls when it is open.
void DeviceAllocator::return_finished() {
  while (std::exchange(has_finished_backends_, false)) {
    std::vector<Segment*> vacant;
    for (const auto& [id, pool] : private_pools_) {
      const bool is_finished = pool->use_count == 0 && pool->options.backend.is_set();
      if (is_finished) list_vacant(*pool, vacant);
    }
    if (release_segments(vacant).gate == FreeGate::Entry::kEntered) continue;
    has_finished_backends_ = true;
    return;
  }
}

}  // namespace quarry
