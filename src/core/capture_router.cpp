// SPDX-License-Identifier: Apache-2.0
#include "core/capture_router.hpp"

#include <algorithm>
#include <string>

#include "core/thread_state.hpp"

namespace quarry {

DriverResult<CaptureId> find_active_capture(Driver& driver, StreamRef stream) noexcept {
  if (is_driver_callback_thread()) return CaptureId::kNone;
  const auto status = driver.get_capture_status(stream);
  // The legacy stream, while a blocking one captures; itself it never does.
  if (status.code == DriverCode::kCaptureImplicit) return CaptureId::kNone;
  if (!status.is_ok()) return status.code;
  if (status.value != CaptureStatus::kActive) return CaptureId::kNone;
  const auto info = driver.get_capture_info(stream);
  if (!info.is_ok()) return info.code;
  return info.value.status == CaptureStatus::kActive ? info.value.id : CaptureId::kNone;
}

Status describe_unknown_capture(DriverCode code) {
  return Status(StatusCode::kDriverError,
                "the driver failed to say whether the stream captures: " + describe(code));
}

Status CaptureRouter::begin(const Route& route, std::uint64_t tenure) {
  const std::uint64_t self = get_thread_token();
  auto entry = std::make_shared<Entry>();
  entry->route = route;
  entry->route.stream = to_canonical(route.stream);
  entry->tenure = tenure;
  entry->thread = self;
  MutexLock lock(mutex_);
  erase_tenures(route.device, route.pool, tenure - 1);
  const bool is_begun = std::ranges::any_of(entries_, [&](const auto& other) {
    if (other->route.device != route.device || other->route.pool != route.pool) return false;
    const bool are_threads =
        other->route.kind == Route::Kind::kThread && route.kind == Route::Kind::kThread;
    return !are_threads || other->thread == self;
  });
  if (is_begun) {
    return Status(StatusCode::kBusy, "pool " + to_text(route.pool) + " of device " +
                                         std::to_string(route.device) + " is begun already");
  }
  entries_.push_back(std::move(entry));
  update_routing();
  return Status::ok();
}

bool CaptureRouter::is_innermost_of_thread(const Entry& entry) const {
  for (auto other = entries_.rbegin(); other != entries_.rend(); ++other) {
    if (other->get() == &entry) return true;
    const bool is_of_thread = (*other)->route.kind == Route::Kind::kThread;
    if (is_of_thread && (*other)->thread == entry.thread) return false;
  }
  return false;
}

Status CaptureRouter::end(DeviceId device, PoolId pool) {
  const std::uint64_t self = get_thread_token();
  MutexLock lock(mutex_);
  auto found = entries_.end();
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    const Route& route = (*entry)->route;
    if (route.device != device || route.pool != pool) continue;
    if (route.kind == Route::Kind::kThread && (*entry)->thread != self) continue;
    found = entry;
  }
  const std::string name = "pool " + to_text(pool) + " of device " + std::to_string(device);
  if (found == entries_.end()) {
    return Status(StatusCode::kInvalidArgument, name + " is not begun");
  }
  const bool is_of_thread = (*found)->route.kind == Route::Kind::kThread;
  if (is_of_thread && !is_innermost_of_thread(**found)) {
    return Status(StatusCode::kInvalidArgument,
                  name + " is not the pool that this thread began last; end that one first");
  }
  erase(found);
  return Status::ok();
}

template <class Predicate>
std::size_t CaptureRouter::erase_all(Predicate is_meant) {
  std::size_t count = 0;
  while (true) {
    const auto found =
        std::ranges::find_if(entries_, [&](const auto& entry) { return is_meant(*entry); });
    if (found == entries_.end()) return count;
    erase(found);
    ++count;
  }
}

void CaptureRouter::erase_tenures(DeviceId device, PoolId pool, std::uint64_t last) {
  erase_all([&](const Entry& entry) {
    return entry.route.device == device && entry.route.pool == pool && entry.tenure <= last;
  });
}

void CaptureRouter::end_all(DeviceId device, PoolId pool, std::uint64_t tenure) {
  MutexLock lock(mutex_);
  erase_tenures(device, pool, tenure);
}

std::size_t CaptureRouter::end_routes_of_thread() {
  if (!has_routes_.load(std::memory_order_relaxed)) return 0;
  const std::uint64_t self = get_thread_token();
  MutexLock lock(mutex_);
  return erase_all([&](const Entry& entry) {
    return entry.route.kind == Route::Kind::kThread && entry.thread == self;
  });
}

void CaptureRouter::forget_stream(StreamRef stream) {
  if (!has_routes_.load(std::memory_order_relaxed)) return;
  const std::uint64_t self = get_thread_token();
  MutexLock lock(mutex_);
  erase_all([&](const Entry& entry) {
    const bool names_stream =
        entry.route.kind == Route::Kind::kStream || entry.route.kind == Route::Kind::kCapture;
    const bool is_of_thread = stream.handle != StreamHandle::kPerThread || entry.thread == self;
    return names_stream && is_of_thread && entry.route.device == stream.device &&
           entry.route.stream == stream.handle;
  });
}

// Releases the lock while it waits.
void CaptureRouter::erase(Entries::iterator place) {
  const std::uint64_t self = get_thread_token();
  const std::shared_ptr<Entry> entry = *place;
  entries_.erase(place);
  update_routing();
  entry->is_ended = true;
  const auto is_other = [self](std::uint64_t caller) { return caller != self; };
  while (std::ranges::any_of(entry->callers, is_other))
    call_ended_.wait(mutex_);
}

void CaptureRouter::set_automatic(AutomaticPools automatic) {
  MutexLock lock(mutex_);
  automatic_.store(automatic, std::memory_order_relaxed);
  update_routing();
}

void CaptureRouter::update_routing() {
  has_routes_.store(!entries_.empty(), std::memory_order_relaxed);
  routing_.set_to(
      RoutingReason::kPools,
      !entries_.empty() || automatic_.load(std::memory_order_relaxed) != AutomaticPools::kNone);
}

DriverResult<CaptureRouter::Target> CaptureRouter::find(StreamRef stream) {
  if (has_routes_.load(std::memory_order_relaxed)) {
    const auto route = find_route(stream);
    if (!route.is_ok() || !route.value.pool.is_default()) return route;
  }
  const AutomaticPools automatic = automatic_.load(std::memory_order_relaxed);
  if (automatic == AutomaticPools::kNone) return Target{};
  const auto capture = find_active_capture(driver_, stream);
  if (!capture.is_ok()) return capture.code;
  if (capture.value == CaptureId::kNone) return Target{};
  return Target{PoolId{kGraphPools, static_cast<std::uint64_t>(capture.value)}, 0, automatic};
}

DriverResult<CaptureRouter::Target> CaptureRouter::find_route(StreamRef stream) {
  Entries entries;
  {
    MutexLock lock(mutex_);
    entries = entries_;
  }
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    if ((*entry)->route.device != stream.device) continue;
    const auto is_accepted = accepts(**entry, stream);
    if (!is_accepted.is_ok()) return is_accepted.code;
    if (is_accepted.value) return Target{(*entry)->route.pool, (*entry)->tenure};
  }
  return Target{};
}

DriverResult<bool> CaptureRouter::accepts(Entry& entry, StreamRef stream) {
  switch (entry.route.kind) {
    case Route::Kind::kThread:
      return entry.thread == get_thread_token();
    case Route::Kind::kStream: {
      const bool is_per_thread = stream.handle == StreamHandle::kPerThread;
      return stream.handle == entry.route.stream &&
             (!is_per_thread || entry.thread == get_thread_token());
    }
    case Route::Kind::kCapture:
      return accepts_by_capture(entry, stream);
    case Route::Kind::kFilter:
      return accepts_by_filter(entry, stream.handle);
  }
  return false;
}

// The first capture that the route's stream is found in is the one; a later one, or none, on that
// stream means that it has ended, well or not, and that the route has nothing more to serve.
// Until the stream itself has asked for memory it may be another thread's whose number is asked
// for here, by a stream that captures too: the one case in which find_active_capture's rule is
// broken, since otherwise a stream that has joined the capture would get memory of another pool.
DriverResult<bool> CaptureRouter::accepts_by_capture(Entry& entry, StreamRef stream) {
  const auto capture = find_active_capture(driver_, stream);
  if (!capture.is_ok()) return capture.code;
  if (capture.value == CaptureId::kNone) return false;
  const StreamRef origin{entry.route.device, entry.route.stream};
  MutexLock lock(mutex_);
  if (entry.is_ended) return false;
  const bool may_ask =
      origin.handle != StreamHandle::kPerThread || entry.thread == get_thread_token();
  if (entry.capture == CaptureId::kNone && may_ask) {
    const auto served = find_active_capture(driver_, origin);
    if (!served.is_ok()) return served.code;
    entry.capture = served.value;
  }
  return entry.capture == capture.value;
}

bool CaptureRouter::accepts_by_filter(Entry& entry, StreamHandle stream) {
  const std::uint64_t self = get_thread_token();
  {
    MutexLock lock(mutex_);
    if (entry.is_ended) return false;
    entry.callers.push_back(self);
  }
  const bool is_accepted = entry.route.filter(stream);
  MutexLock lock(mutex_);
  entry.callers.erase(std::ranges::find(entry.callers, self));
  if (entry.is_ended) call_ended_.notify_all();
  return is_accepted;
}

}  // namespace quarry
