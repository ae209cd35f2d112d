// SPDX-License-Identifier: Apache-2.0
// Which pool serves a request: the routes that are begun, and, if that is wished for, what the
// driver says of the stream. One for all devices. Asked only while the routing word says that
// there may be a private pool; a request that no route wants goes to the default pool.
//
// Knows names of pools and nothing of their memory. Thread-safe. Filters of the user run with no
// lock held.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <vector>

#include "base/mutex.hpp"
#include "base/status.hpp"
#include "core/pool_id.hpp"
#include "core/routing.hpp"
#include "driver/driver.hpp"

namespace quarry {

// Whether a request on a stream belongs to the pool. Must not throw, and not call Quarry.
using StreamFilter = std::function<bool(StreamHandle)>;

struct Route {
  enum class Kind {
    kThread,   // all requests of the thread that begins the route
    kStream,   // all requests on `stream`, of any thread
    kCapture,  // requests on streams of the capture that `stream` is in, as soon as it is
    kFilter,   // requests that `filter` accepts
  };
  Kind kind = Kind::kThread;
  DeviceId device = 0;
  PoolId pool;
  StreamHandle stream = StreamHandle::kLegacy;
  StreamFilter filter;
};

// Whether captures that no route accepts have a pool of their own.
enum class AutomaticPools {
  kNone,
  kThatThereAre,  // one that has been served from its pool goes on so
  kForEach,
};

// The number of the capture that the stream is in and that was not lost. In a driver callback,
// which may not ask, none: its requests are for work outside of captures. An error: not known.
// To be asked by threads that work in the capture, if there is one: see Driver::get_capture_info.
DriverResult<CaptureId> find_active_capture(Driver& driver, StreamRef stream) noexcept;
// What a request is told that depends on it.
Status describe_unknown_capture(DriverCode code);

class CaptureRouter {
 public:
  // Sets and clears the routing word's bit for private pools.
  CaptureRouter(Driver& driver, RoutingWord& routing) noexcept
      : driver_(driver), routing_(routing) {}

  // The newest route that accepts a request decides. kBusy if the same thread (kThread), or
  // anybody (the others), has begun a route to this pool already. `tenure` is the pool's
  // (MemPool): routes of earlier ones end.
  Status begin(const Route& route, std::uint64_t tenure);
  // Ends the route to the pool that the calling thread has begun, if it has one of its own, else
  // that of anybody. Routes of one thread end in the opposite order of their beginning:
  // kInvalidArgument otherwise, and if there is none. Waits for calls of its filter that are under
  // way in other threads.
  Status end(DeviceId device, PoolId pool);
  // All routes to the pool that are of this tenure or earlier ones, whatever their order. Waits as
  // `end` does.
  void end_all(DeviceId device, PoolId pool, std::uint64_t tenure);

  // The routes that the calling thread has begun for itself; how many. For the thread's end.
  std::size_t end_routes_of_thread();
  // The stream is gone: so are routes that name it.
  void forget_stream(StreamRef stream);

  void set_automatic(AutomaticPools automatic);

  struct Target {
    PoolId pool;
    std::uint64_t tenure = 0;  // that the route was begun in
    // If the pool is not there it is to be made for the graph (kForEach), or none wants the
    // request.
    AutomaticPools automatic = AutomaticPools::kNone;
  };
  // The default pool: no route wants it. An error: whether one does is not known. Takes no lock
  // while there are no routes.
  DriverResult<Target> find(StreamRef stream);

 private:
  struct Entry {
    Route route;
    std::uint64_t tenure = 0;            // of its pool
    std::uint64_t thread = 0;            // that began it
    CaptureId capture{};                 // of kCapture: the one that it serves, once that is known
    std::vector<std::uint64_t> callers;  // threads inside the filter
    bool is_ended = false;
  };
  DriverResult<Target> find_route(StreamRef stream);
  void update_routing() QUARRY_REQUIRES(mutex_);
  using Entries = std::vector<std::shared_ptr<Entry>>;

  DriverResult<bool> accepts(Entry& entry, StreamRef stream);
  bool accepts_by_filter(Entry& entry, StreamHandle stream);
  DriverResult<bool> accepts_by_capture(Entry& entry, StreamRef stream);
  bool is_innermost_of_thread(const Entry& entry) const QUARRY_REQUIRES(mutex_);
  void erase(Entries::iterator entry) QUARRY_REQUIRES(mutex_);
  void erase_tenures(DeviceId device, PoolId pool, std::uint64_t last) QUARRY_REQUIRES(mutex_);
  template <class Predicate>
  std::size_t erase_all(Predicate is_meant) QUARRY_REQUIRES(mutex_);

  Driver& driver_;
  RoutingWord& routing_;
  Mutex mutex_{LockRank::kAllocator};
  std::atomic<AutomaticPools> automatic_{AutomaticPools::kNone};
  std::atomic<bool> has_routes_{false};
  std::condition_variable_any call_ended_;
  // In order of beginning. Entries are shared with the calls that look at them.
  Entries entries_ QUARRY_GUARDED_BY(mutex_);
};

}  // namespace quarry
