// SPDX-License-Identifier: Apache-2.0
#include "tests/model/private_pools.hpp"

#include <algorithm>

#include "tests/model/state.hpp"

namespace quarry::model {
namespace {

std::string describe(const UserPool& pool, const char* figure, std::int64_t is,
                     std::int64_t should_be) {
  return "pool " + to_text(pool.id) + ": " + figure + " is " + std::to_string(is) +
         ", should be " + std::to_string(should_be);
}

PoolOptions make_options(const RetainPool& wishes) {
  PoolOptions options;
  options.use_on_oom = wishes.use_on_oom;
  options.no_split = wishes.no_split;
  options.no_recycle = wishes.no_recycle;
  if (wishes.limit_mib > 0) options.limit_bytes = static_cast<Bytes>(wishes.limit_mib) << 20;
  return options;
}

}  // namespace

PrivatePools::PrivatePools(State& state, int device_count)
    : state_(state), device_count_(device_count) {
  for (int i = 0; i < kPoolsPerDevice * device_count; ++i) {
    UserPool pool;
    pool.device = i % device_count;
    pool.id = {7, static_cast<std::uint64_t>(i / device_count)};
    pools_.push_back(pool);
  }
}

int PrivatePools::index_of(DeviceId device, int number) const {
  return (number % kPoolsPerDevice) * device_count_ + device;
}

UserPool& PrivatePools::at(int number) {
  return pools_[static_cast<std::size_t>(number % count())];
}

// --- Life --------------------------------------------------------------------------------------

StatusCode PrivatePools::retain(UserPool& pool, const RetainPool& wishes, bool exists) {
  has_any_ = true;
  const bool is_again = exists && pool.use_count == 0;
  const bool has_functions = pool.functions != nullptr || wishes.source != PoolSource::kDriver;
  if (is_again && has_functions) return StatusCode::kBusy;
  pool.has_unknown_segments |= is_again;
  ++pool.use_count;
  if (is_again) pool.options = make_options(wishes);
  if (exists) return StatusCode::kOk;
  UserPool made;
  made.device = pool.device;
  made.id = pool.id;
  made.use_count = 1;
  made.incarnation = pool.incarnation;
  made.replay = pool.replay;  // what was launched there may run still
  made.outside_users = pool.outside_users;
  pool = std::move(made);
  pool.options = make_options(wishes);
  if (wishes.source == PoolSource::kDriver) return StatusCode::kOk;
  const bool is_moody = wishes.source == PoolSource::kMoodyFunctions;
  pool.functions = std::make_shared<SegmentFunctions>(state_, pool.device, is_moody);
  pool.options.backend = pool.functions->make_backend();
  return StatusCode::kOk;
}

void PrivatePools::release(int number) {
  UserPool& pool = at(number);
  if (--pool.use_count > 0) return;
  ++pool.incarnation;
  pool.captured_segments.clear();
  std::erase_if(routes_, [number](const UserRoute& route) { return route.pool == number; });
}

void PrivatePools::add(int number, const UserBlock& block, const BlockInfo& info) {
  UserPool& pool = at(number);
  const auto size = static_cast<std::int64_t>(block.bytes);
  ++pool.count;
  pool.bytes += size;
  pool.risen_bytes += size;
  pool.peak_bytes = std::max(pool.peak_bytes, pool.bytes);
  if (block.capture != 0) add_kept_memory(info, pool.captured_segments);
}

void PrivatePools::remove(const UserBlock& block) {
  if (block.pool == kDefaultPool) return;
  UserPool& pool = at(block.pool);
  const auto size = static_cast<std::int64_t>(block.bytes);
  --pool.count;
  pool.bytes -= size;
  pool.fallen_bytes += size;
}

void PrivatePools::take_over_ooms(DeviceId device) {
  for (UserPool& pool : pools_) {
    const auto report = state_.allocator().get_pool_report(pool.device, pool.id);
    if (pool.device == device && report.is_ok()) pool.ooms = report.value().stats.num_ooms;
  }
}

// --- Routes ------------------------------------------------------------------------------------

StatusCode PrivatePools::begin_route(const UserRoute& route) {
  if (at(route.pool).use_count == 0) return StatusCode::kInvalidArgument;
  for (const UserRoute& other : routes_) {
    if (other.pool != route.pool) continue;
    const bool are_threads =
        other.kind == Route::Kind::kThread && route.kind == Route::Kind::kThread;
    if (!are_threads || other.thread == route.thread) return StatusCode::kBusy;
  }
  routes_.push_back(route);
  return StatusCode::kOk;
}

StatusCode PrivatePools::end_route(int pool, std::uint64_t thread) {
  const auto is_own = [thread](const UserRoute& route) {
    return route.kind == Route::Kind::kThread && route.thread == thread;
  };
  auto found = routes_.end();
  for (auto route = routes_.begin(); route != routes_.end(); ++route) {
    const bool is_others = route->kind == Route::Kind::kThread && !is_own(*route);
    if (route->pool == pool && !is_others) found = route;
  }
  if (found == routes_.end()) return StatusCode::kInvalidArgument;
  // Those of one thread end in the opposite order of their beginning.
  if (is_own(*found) && std::any_of(found + 1, routes_.end(), is_own)) {
    return StatusCode::kInvalidArgument;
  }
  routes_.erase(found);
  return StatusCode::kOk;
}

void PrivatePools::forget_stream(const UserStream& stream, std::uint64_t thread) {
  std::erase_if(routes_, [&](const UserRoute& route) {
    const bool names_stream =
        route.kind == Route::Kind::kStream || route.kind == Route::Kind::kCapture;
    const bool is_of_thread = !stream.thread || route.thread == thread;
    return names_stream && is_of_thread && route.device == stream.ref.device &&
           route.handle == stream.handle;
  });
}

std::size_t PrivatePools::end_routes_of_thread(std::uint64_t thread) {
  return std::erase_if(routes_, [thread](const UserRoute& route) {
    return route.kind == Route::Kind::kThread && route.thread == thread;
  });
}

int PrivatePools::find(const UserStream& stream, std::uint64_t thread, bool is_asked) {
  for (auto route = routes_.rbegin(); route != routes_.rend(); ++route) {
    if (route->device != stream.ref.device) continue;
    if (accepts(*route, stream, thread, is_asked)) return route->pool;
  }
  return kDefaultPool;
}

bool PrivatePools::accepts(UserRoute& route, const UserStream& stream, std::uint64_t thread,
                           bool is_asked) {
  const bool is_of_thread = route.handle != StreamHandle::kPerThread || route.thread == thread;
  switch (route.kind) {
    case Route::Kind::kThread:
      return route.thread == thread;
    case Route::Kind::kFilter:
      return stream.handle == route.handle;
    case Route::Kind::kStream:
      return stream.handle == route.handle && is_of_thread;
    case Route::Kind::kCapture:
      break;
  }
  const std::uint64_t capture = state_.graphs().find_unspoilt(stream);
  if (capture == 0) return false;
  std::uint64_t served = route.capture;
  if (served == 0 && is_of_thread) {
    served = state_.graphs().find_unspoilt(
        state_.streams()[static_cast<std::size_t>(route.origin.number)]);
  }
  if (is_asked) route.capture = served;
  return served == capture;
}

void PrivatePools::move_replays(UserStream& from) {
  UserStream* next = nullptr;
  for (UserStream& other : state_.streams()) {
    const bool is_fit = other.is_made && other.ref.device == from.ref.device &&
                        other.name.number != from.name.number && state_.is_usable(other);
    if (is_fit) next = &other;
  }
  const bool can_move = next != nullptr && state_.is_usable(from);
  for (UserPool& pool : pools_) {
    const bool is_replay = pool.replay == from.name;
    const bool is_user = std::erase(pool.outside_users, from.name) > 0;
    if (!is_replay && !is_user) continue;
    if (can_move) {
      state_.order(from, *next);
      if (is_user) pool.outside_users.push_back(next->name);
    } else {
      static_cast<void>(state_.sim().user_synchronizes(from.ref));
    }
    if (!is_replay) continue;
    pool.replay.reset();
    if (can_move) pool.replay = next->name;
    ++state_.tally.moved_replays;
  }
}

// --- Reports -----------------------------------------------------------------------------------

std::string PrivatePools::check(DeviceId device) {
  const auto reports = state_.allocator().get_pool_reports(device);
  std::map<PoolId, const PoolReport*> by_id;
  for (const PoolReport& report : reports.value())
    by_id[report.id] = &report;
  for (UserPool& pool : pools_) {
    if (pool.device != device) continue;
    const auto found = by_id.find(pool.id);
    const bool exists = found != by_id.end();
    const bool must_exist = pool.use_count > 0 || pool.count > 0;
    if (!exists && must_exist) return "pool " + to_text(pool.id) + " is gone";
    if (pool.functions != nullptr && pool.functions->is_unused() == exists) {
      return "pool " + to_text(pool.id) + (exists ? " was" : " was not") + " said to be unused";
    }
    if (!exists) continue;
    if (std::string difference = compare(pool, *found->second); !difference.empty()) {
      return difference;
    }
    by_id.erase(found);
  }
  if (!by_id.empty()) return "there is a pool that nobody made: " + to_text(by_id.begin()->first);
  return {};
}

std::string PrivatePools::compare(const UserPool& pool, const PoolReport& report) {
  const PoolStats& stats = report.stats;
  const Bytes functions_bytes = pool.functions == nullptr
                                    ? static_cast<Bytes>(stats.reserved_bytes.current)
                                    : pool.functions->held_bytes();
  const struct {
    const char* name;
    std::int64_t is;
    std::int64_t should_be;
  } exact[] = {
      {"use_count", report.use_count, pool.use_count},
      {"allocations.current", stats.allocations.current, pool.count},
      {"allocated_bytes.current", stats.allocated_bytes.current, pool.bytes},
      {"allocated_bytes.peak", stats.allocated_bytes.peak, pool.peak_bytes},
      {"allocated_bytes.allocated", stats.allocated_bytes.allocated, pool.risen_bytes},
      {"allocated_bytes.freed", stats.allocated_bytes.freed, pool.fallen_bytes},
      {"num_ooms", stats.num_ooms, pool.ooms},
      {"limit_bytes", static_cast<std::int64_t>(report.limit_bytes),
       static_cast<std::int64_t>(pool.options.limit_bytes)},
      {"reserved_bytes.current", stats.reserved_bytes.current,
       static_cast<std::int64_t>(functions_bytes)},
      {"segments.current",
       state_.options().expandable ? stats.num_device_alloc - stats.num_device_free
                                   : stats.segments.current,
       stats.num_device_alloc - stats.num_device_free},
  };
  for (const auto& figure : exact) {
    if (figure.is != figure.should_be) {
      return describe(pool, figure.name, figure.is, figure.should_be);
    }
  }
  if (pool.use_count == 0 && stats.segments.current == 0) {
    return "pool " + to_text(pool.id) + " is left with nothing in it";
  }
  const bool is_nested = stats.allocated_bytes.current <= stats.active_bytes.current &&
                         stats.active_bytes.current <= stats.reserved_bytes.current;
  if (!is_nested) return "pool " + to_text(pool.id) + " has more active than reserved";
  Bytes captured_bytes = 0;
  for (const auto& [address, bytes] : pool.captured_segments)
    captured_bytes += bytes;
  if (static_cast<Bytes>(stats.reserved_bytes.current) < captured_bytes) {
    return "pool " + to_text(pool.id) + " gave back memory of captures";
  }
  return {};
}

Bytes PrivatePools::calculate_kept_bytes(int number) {
  std::map<Address, Bytes> kept = at(number).captured_segments;
  for (int slot = 0; slot < kSlots; ++slot) {
    const std::optional<UserBlock>& block = state_.block(slot);
    if (!block || block->pool != number) continue;
    const auto info = state_.allocator().find_block(block->address);
    if (info.is_ok()) add_kept_memory(info.value(), kept);
  }
  state_.sharing().add_kept_of_pool(number, kept);
  Bytes sum = 0;
  for (const auto& [address, bytes] : kept)
    sum += bytes;
  return sum;
}

Bytes PrivatePools::calculate_held_pools_bytes(DeviceId device) {
  Bytes sum = 0;
  for (const UserPool& pool : pools_) {
    if (pool.device != device || pool.use_count == 0) continue;
    const auto report = state_.allocator().get_pool_report(device, pool.id);
    if (report.is_ok()) sum += static_cast<Bytes>(report.value().stats.reserved_bytes.current);
  }
  return sum;
}

}  // namespace quarry::model
