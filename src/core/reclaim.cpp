// SPDX-License-Identifier: Apache-2.0
// What a miss does: the ladder from the cheapest to the dearest way to a block, each step followed
// by a search, until out-of-memory is certain. The only place besides release.cpp that lets go of
// the mutex around driver calls.
//
// Two promises. No false out-of-memory: the last rung is climbed by one thread at a time, after
// all driver allocations and frees of the others have ended; it searches after everything it does,
// and begins again if others freed meanwhile. No user code under the mutex: callbacks and
// observers run unlocked, and not counted as operations under way, so that they may allocate.
#include <algorithm>
#include <string>

#include "core/device_allocator.hpp"
#include "core/expandable_memory.hpp"
#include "core/size_policy.hpp"
#include "core/thread_state.hpp"

namespace quarry {

Result<Block*> DeviceAllocator::reclaim(const Request& request) {
  if (is_driver_callback_thread()) {
    empty_magazines();
    if (Block* block = find_fitting(request)) return block;
    return Status(StatusCode::kBusy,
                  "nothing cached fits, and a driver callback may not ask the driver for more");
  }
  if (request.is_captured()) {
    adopt_finished(*request.pool);
    adopt_ended_captures(request);
    if (Block* block = find_fitting(request)) return block;
  }
  Result<Block*> result = climb(request);
  if (!result.is_ok() || result.value() != nullptr) return result;
  return fail_out_of_memory(request);
}

// Null: out of memory.
Result<Block*> DeviceAllocator::climb(const Request& request) {
  const bool is_beside_parked = may_grow_beside_parked(request);
  if (!is_beside_parked) {
    if (Block* block = search_magazines(request)) return block;
  }
  if (ask_callbacks(request)) {
    if (Block* block = search_again(request)) return block;
  }
  if (may_reclaim()) collect_garbage();
  if (config_.throw_on_cudamalloc_oom && is_over_limit(request.segment_bytes)) {
    // What is in the driver's hands counts as reserved, and may be room or a block in a moment.
    while (operations_under_way_ > 0)
      changed_.wait(mutex_);
    // Passed over so far: what the driver would have spared, and small parts of large segments.
    empty_magazines();
    if (Block* block = find_fitting(request)) return block;
    if (Block* block = borrow(request)) return block;
    if (expandable_->serves(*request.pool)) {
      // Needs less than a segment, and perhaps only moves what is there.
      Result<Block*> grown = grow(request);
      if (!grown.is_ok() || grown.value() != nullptr) return grown;
    }
    if (is_over_limit(request.segment_bytes)) {
      ++stats_.num_oom_rejections;
      return nullptr;
    }
  }
  Result<Block*> grown = grow(request);
  if (is_beside_parked) {
    if (grown.is_ok() && grown.value() != nullptr) {
      request.stream->grown_beside_parked += request.segment_bytes;
    } else if (Block* block = search_magazines(request)) {
      return block;
    }
  }
  if (!grown.is_ok() || grown.value() != nullptr) return grown;
  if (Block* block = borrow(request)) return block;
  if (!may_reclaim()) return nullptr;
  if (release_oversize(request)) {
    grown = grow(request);
    if (!grown.is_ok() || grown.value() != nullptr) return grown;
  }
  return climb_last_rung(request);
}

// A round waits for pending frees, with nothing in hand, and then climbs alone. What others free,
// or what can be fenced only now, while a round has let go of the mutex may escape it: another
// round follows. Bounded, because among threads that free and take for ever out-of-memory must
// still be an answer.
Result<Block*> DeviceAllocator::climb_last_rung(const Request& request) {
  constexpr int kMostRounds = 8;
  if (Block* block = search_everywhere(request)) return block;
  ++stats_.num_alloc_retries;
  ++stats_.num_sync_all_streams;
  for (int round = 0; round < kMostRounds;) {
    const std::uint64_t progress_before = get_free_count() + fences_.seal_count();
    wait_for_fences();
    take_last_rung();
    auto gate = FreeGate::Entry::kEntered;
    Result<Block*> result = release_and_grow(request, &gate);
    leave_last_rung();
    if (!result.is_ok() || result.value() != nullptr) return result;
    if (gate == FreeGate::Entry::kHeldByOthers) {
      wait_for_gate();
      continue;
    }
    if (get_free_count() + fences_.seal_count() == progress_before) break;
    ++round;
  }
  return nullptr;
}

// Null with *gate kHeldByOthers: not decided yet.
Result<Block*> DeviceAllocator::release_and_grow(const Request& request, FreeGate::Entry* gate) {
  if (Block* block = search_everywhere(request)) return block;
  const Released released = release_vacant_segments(Need::kMemoryShort);
  *gate = released.gate;
  if (released.gate == FreeGate::Entry::kHeldByOthers) return nullptr;
  if (released.failure != DriverCode::kSuccess) {
    note("event=release_failed device=" + std::to_string(device_) + " code=\"" +
         describe(released.failure) + "\" effect=\"the segment stays cached\"");
  }
  if (Block* block = search_everywhere(request)) return block;
  Result<Block*> grown = grow(request);
  if (!grown.is_ok() || grown.value() != nullptr) return grown;
  return search_everywhere(request);
}

// What is parked is searched before the driver is asked, but for a little: a thread whose sizes
// all fit into its magazines would otherwise empty them again and again, and never reserve enough
// for its whole working set. Only for small requests, which share segments of 2 MiB.
bool DeviceAllocator::may_grow_beside_parked(const Request& request) const {
  constexpr Bytes kLeast = 2 * kSmallSegment;
  if (magazines_.empty() || !request.pool->is_default()) return false;
  if (request.family != StatFamily::kSmall) return false;
  if (is_over_limit(request.segment_bytes)) return false;
  const auto reserved = static_cast<Bytes>(stats_.reserved_bytes.all.current);
  return request.stream->grown_beside_parked + request.segment_bytes <=
         std::max(kLeast, reserved / 1024);
}

// Only parked blocks of the request's own stream can help as long as nothing goes back to the
// driver. Those of other streams stay where they are: taking them out would cost their threads
// misses, and this one the cache lines that the others work on, with everybody locked out. First
// what the calling thread has parked.
Block* DeviceAllocator::search_magazines(const Request& request) {
  if (!request.pool->is_default()) return nullptr;
  if (free_own_parked_of(request)) {
    if (Block* block = find_fitting(request)) return block;
  }
  return free_others_parked_of(request) ? find_fitting(request) : nullptr;
}

Block* DeviceAllocator::search_again(const Request& request) {
  settle_frees();
  return find_fitting(request);
}

// What is lent, too, may have become free only now.
Block* DeviceAllocator::search_everywhere(const Request& request) {
  if (Block* block = search_again(request)) return block;
  return borrow(request);
}

bool DeviceAllocator::ask_callbacks(const Request& request) QUARRY_NO_THREAD_SAFETY_ANALYSIS {
  mutex_.unlock();
  const bool did_something = callbacks_.free_memory(device_, request.segment_bytes);
  mutex_.lock();
  return did_something;
}

// Memory that holds the request; null if the limit or the driver has no room.
Result<Block*> DeviceAllocator::grow(const Request& request) {
  return expandable_->serves(*request.pool) ? expandable_->grow(request) : grow_plain(request);
}

Result<Block*> DeviceAllocator::grow_plain(const Request& request) {
  wait_for_turn();
  if (is_over_limit(request.segment_bytes) || is_over_pool_limit(request)) return nullptr;
  growing_bytes_ += request.segment_bytes;
  request.pool->growing_bytes += request.segment_bytes;
  const auto address = obtain_segment(request);
  growing_bytes_ -= request.segment_bytes;
  request.pool->growing_bytes -= request.segment_bytes;
  if (address.is_ok()) return &add_segment(address.value, request);
  if (address.code == DriverCode::kOutOfMemory) return nullptr;
  return Status(StatusCode::kDriverError,
                "the driver failed to allocate " + std::to_string(request.segment_bytes) +
                    " bytes on device " + std::to_string(device_) + ": " + describe(address.code));
}

Block& DeviceAllocator::add_segment(Address address, const Request& request) {
  Segment& segment = *segments_.take();
  Block& block = *std::construct_at(get_stock(*request.stream).take());
  segment.address = address;
  segment.size = request.segment_bytes;
  segment.reserved_bytes = request.segment_bytes;
  segment.family = request.family;
  segment.sequence = next_sequence_++;
  segment.stream = request.stream->ref;
  segment.first = &block;
  segment.is_oversize_counted = is_oversize(segment.size, config_);
  segments_by_address_.emplace(address, &segment);
  request.pool->add(segment);

  block.address = address;
  block.size = segment.size;
  block.segment = &segment;
  set_owner(block, *request.stream);
  InactiveSplitChange none;
  pool_insert(block, none);

  stats_.segment.add(segment.family, 1);
  stats_.reserved_bytes.add(segment.family, static_cast<std::int64_t>(segment.size));
  if (segment.is_oversize_counted) stats_.oversize_segments.add(1);
  ++stats_.num_device_alloc;
  if (!segment.is_private) return block;
  PoolStats& own = request.pool->stats;
  own.segments.add(1);
  own.reserved_bytes.add(static_cast<std::int64_t>(segment.size));
  ++own.num_device_alloc;
  return block;
}

void DeviceAllocator::collect_garbage() {
  if (config_.garbage_collection_threshold <= 0.0) return;
  if (config_.upstream_quirks && !has_limit()) return;
  const Bytes base = std::min(calculate_allowed_bytes(), properties_.total_bytes);
  const auto threshold =
      static_cast<Bytes>(config_.garbage_collection_threshold * static_cast<double>(base));
  const auto reserved = static_cast<Bytes>(stats_.reserved_bytes.all.current);
  if (reserved <= threshold) return;
  wait_for_turn();
  empty_magazines();
  static_cast<void>(release_segments(choose_garbage(reserved - threshold)));
}

// Under a split limit: gives back the oversize blocks of this stream that make room. True if that
// was enough to try again. A limit that another thread lifts during the wait leaves nothing to
// choose.
bool DeviceAllocator::release_oversize(const Request& request) {
  if (expandable_->serves(*request.pool)) return false;
  if (config_.max_split_bytes == kUnlimited || request.pool->options.no_recycle) return false;
  wait_for_turn();
  bool is_enough = false;
  const std::vector<Segment*> chosen = choose_oversize(request, &is_enough);
  return release_segments(chosen).is_done() && is_enough;
}

// Waits with nothing in hand: what the device is waiting for may need a block first. A holder of
// the gate does not wait at all: it is between two launches, and the first may wait for the
// second.
void DeviceAllocator::wait_for_fences() QUARRY_NO_THREAD_SAFETY_ANALYSIS {
  settle_everything();
  expandable_->cover_free_memory();
  const std::vector<EventHandle> events = fences_.get_newest_events();
  if (events.empty() || free_gate_.is_held_by_this_thread()) return;
  mutex_.unlock();
  {
    CaptureModeBracket bracket(driver_);
    for (EventHandle event : events)
      static_cast<void>(driver_.synchronize_event(event));
  }
  mutex_.lock();
  settle_everything();
}

bool DeviceAllocator::is_over_limit(Bytes more_bytes) const {
  const Bytes allowed = calculate_allowed_bytes();
  const Bytes taken = static_cast<Bytes>(stats_.reserved_bytes.all.current) + growing_bytes_;
  return more_bytes > allowed || taken > allowed - more_bytes;
}

// While a thread is on the last rung, no other begins a driver operation.
void DeviceAllocator::wait_for_turn() {
  const std::uint64_t self = get_thread_token();
  while (last_rung_owner_ != 0 && last_rung_owner_ != self)
    changed_.wait(mutex_);
}

void DeviceAllocator::take_last_rung() {
  wait_for_turn();
  last_rung_owner_ = get_thread_token();
  while (operations_under_way_ > 0)
    changed_.wait(mutex_);
  // From now on no thread parks; what others parked meanwhile comes back.
  routing_.set(RoutingReason::kLastRung);
  empty_magazines();
}

void DeviceAllocator::leave_last_rung() {
  routing_.clear(RoutingReason::kLastRung);
  last_rung_owner_ = 0;
  changed_.notify_all();
}

Status DeviceAllocator::fail_out_of_memory(const Request& request)
    QUARRY_NO_THREAD_SAFETY_ANALYSIS {
  ++stats_.num_ooms;
  ++request.pool->stats.num_ooms;
  OomReport report = make_oom_report(request);
  mutex_.unlock();
  add_driver_ledger(report, driver_, free_gate_.is_held_by_this_thread());
  std::string text = format(report);
  callbacks_.notify_oom(report);
  mutex_.lock();
  return Status(StatusCode::kOutOfMemory, std::move(text));
}

}  // namespace quarry
