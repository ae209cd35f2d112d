// SPDX-License-Identifier: Apache-2.0
// The C API: private pools. Their checkpoints are in c_api_checkpoints.cpp.
#include <atomic>
#include <string>

#include "api/pool_boundary.hpp"

using namespace quarry;

namespace {

static_assert(QUARRY_UNLIMITED == kUnlimited);

std::atomic<std::uint64_t> last_number{0};

quarry_status begin(quarry_pool pool, Route route) noexcept {
  return run_with_pool(pool, [&](Allocator& allocator, PoolName name) {
    route.device = name.device;
    route.pool = name.id;
    note_stream_use(route.stream);
    return allocator.begin_pool(route);
  });
}

quarry_pool_stats summarize(DeviceId device, const PoolReport& from) {
  quarry_pool_stats to = {};
  to.struct_size = sizeof(to);
  to.pool = to_c({device, from.id});
  if (to.pool == QUARRY_POOL_DEFAULT) {
    to.id_first = from.id.first;
    to.id_second = from.id.second;
  }
  to.device = device;
  to.use_count = from.use_count;
  to.has_active_capture = from.has_active_capture ? 1 : 0;
  to.allocated_bytes = from.stats.allocated_bytes.current;
  to.allocated_peak_bytes = from.stats.allocated_bytes.peak;
  to.active_bytes = from.stats.active_bytes.current;
  to.active_peak_bytes = from.stats.active_bytes.peak;
  to.reserved_bytes = from.stats.reserved_bytes.current;
  to.reserved_peak_bytes = from.stats.reserved_bytes.peak;
  to.allocated_blocks = from.stats.allocations.current;
  to.segments = from.stats.segments.current;
  to.num_ooms = from.stats.num_ooms;
  to.limit_bytes = from.limit_bytes;
  return to;
}

}  // namespace

// --- Making and holding ---

quarry_status quarry_pool_create(int device, const quarry_pool_options* options,
                                 quarry_pool* pool) {
  return run_with_pools([&](Allocator& allocator) -> Status {
    if (Status status = require(pool, "pool"); !status.is_ok()) return status;
    auto read = read_pool_options(options);
    if (!read.is_ok()) return std::move(read).status();
    const PoolId id{kUserPools, last_number.fetch_add(1, std::memory_order_relaxed) + 1};
    Status made = allocator.retain_pool(device, id, read.value());
    if (made.is_ok()) *pool = to_c({device, id});
    return made;
  });
}

quarry_status quarry_pool_retain(quarry_pool pool) {
  return run_with_pool(pool, [](Allocator& allocator, PoolName name) {
    return allocator.hold_pool(name.device, name.id);
  });
}

quarry_status quarry_pool_release(quarry_pool pool) {
  return run_with_pool(pool, [](Allocator& allocator, PoolName name) {
    return allocator.release_pool(name.device, name.id);
  });
}

// --- Whose requests it serves ---

quarry_status quarry_pool_begin_thread(quarry_pool pool) {
  note_thread_exit_duty();
  return begin(pool, {Route::Kind::kThread, 0, {}, {}, {}});
}

quarry_status quarry_pool_begin_stream(quarry_pool pool, quarry_stream stream) {
  return begin(pool, {Route::Kind::kStream, 0, {}, to_handle(stream), {}});
}

quarry_status quarry_pool_begin_capture(quarry_pool pool, quarry_stream stream) {
  return begin(pool, {Route::Kind::kCapture, 0, {}, to_handle(stream), {}});
}

quarry_status quarry_pool_begin_filter(quarry_pool pool, quarry_pool_filter filter, void* user) {
  if (filter == nullptr) {
    return run([] { return require(nullptr, "filter"); });
  }
  const auto accepts = [filter, user](quarry_stream stream) { return filter(stream, user) != 0; };
  return begin(pool, {Route::Kind::kFilter, 0, {}, {}, make_safe_filter(accepts)});
}

quarry_status quarry_pool_end(quarry_pool pool) {
  return run_with_pool(pool, [](Allocator& allocator, PoolName name) {
    return allocator.end_pool(name.device, name.id);
  });
}

quarry_status quarry_pool_malloc(quarry_pool pool, void** ptr, size_t bytes,
                                 quarry_stream stream) {
  return quarry_pool_malloc_aligned(pool, ptr, bytes, kMinBlock, stream);
}

quarry_status quarry_pool_malloc_aligned(quarry_pool pool, void** ptr, size_t bytes,
                                         size_t alignment, quarry_stream stream) {
  if (ptr == nullptr) {
    return run([] { return require(nullptr, "ptr"); });
  }
  *ptr = nullptr;
  return run_with_pool(pool, [&](Allocator& allocator, PoolName name) -> Status {
    const StreamRef ref{name.device, to_handle(stream)};
    note_stream_use(ref.handle);
    auto address = allocator.allocate_in_pool(ref, bytes, alignment, name.id);
    if (!address.is_ok()) return std::move(address).status();
    *ptr = to_pointer(address.value());
    return {};
  });
}

// --- Amounts ---

quarry_status quarry_pool_trim(quarry_pool pool) {
  return run_with_pool(pool, [](Allocator& allocator, PoolName name) {
    return allocator.trim_pool(name.device, name.id);
  });
}

quarry_status quarry_pool_set_limit(quarry_pool pool, uint64_t bytes) {
  return run_with_pool(pool, [bytes](Allocator& allocator, PoolName name) {
    PoolChange change;
    change.limit_bytes = bytes;
    return allocator.change_pool(name.device, name.id, change);
  });
}

quarry_status quarry_pool_get_stats(quarry_pool pool, quarry_pool_stats* stats) {
  return run_with_pool(pool, [stats](Allocator& allocator, PoolName name) -> Status {
    auto report = allocator.get_pool_report(name.device, name.id);
    if (!report.is_ok()) return std::move(report).status();
    return write_struct(summarize(name.device, report.value()), stats, "stats");
  });
}

quarry_status quarry_for_each_pool(int device, quarry_pool_visitor visitor, void* user) {
  return run_with_pools([&](Allocator& allocator) -> Status {
    if (visitor == nullptr) return require(nullptr, "visitor");
    auto reports = allocator.get_pool_reports(device);
    if (!reports.is_ok()) return std::move(reports).status();
    for (const PoolReport& report : reports.value()) {
      const quarry_pool_stats shown = summarize(device, report);
      visitor(&shown, user);
    }
    return {};
  });
}
