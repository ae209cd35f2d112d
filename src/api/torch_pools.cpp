// SPDX-License-Identifier: Apache-2.0
// PyTorch's plug-in: graph captures and torch.cuda.MemPool. Pools have PyTorch's own names.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "api/pool_boundary.hpp"
#include "api/torch_failure.hpp"
#include "base/log.hpp"
#include "quarry/quarry_torch.h"

using namespace quarry;

namespace {

PoolId to_id(quarry_torch_pool_id pool) {
  return {pool.first, pool.second};
}

void log_unless_ok(const char* event, quarry_torch_pool_id pool, quarry_status status) noexcept {
  if (status == QUARRY_OK) return;
  try {
    log_error(fmt::format("event={} pool={},{} text=\"{}\"", event, pool.first, pool.second,
                          quarry_get_last_error()));
  } catch (...) {
    // Without host memory there is nothing to say it with.
  }
}

quarry_status change(int device, quarry_torch_pool_id pool, const PoolChange& change) noexcept {
  return run_with_pools(
      [&](Allocator& allocator) { return allocator.change_pool(device, to_id(pool), change); });
}

// A pool that is not on the device has nothing to trim.
Status trim_on(Allocator& allocator, DeviceId device, PoolId pool) {
  if (!allocator.get_pool_report(device, pool).is_ok()) return {};
  return allocator.trim_pool(device, pool);
}

}  // namespace

void quarry_torch_begin_allocate_to_pool(int device, quarry_torch_pool_id pool, void* filter) {
  using Filter = std::function<bool(quarry_stream)>;
  throw_unless_ok(run_with_pools([&](Allocator& allocator) -> Status {
    const auto* passed = static_cast<const Filter*>(filter);
    if (passed == nullptr || !*passed) return require(nullptr, "filter");
    // As PyTorch's pools: what they have they keep while they are held. Others may have registered
    // it by its address.
    PoolOptions options;
    options.no_recycle = true;
    Status held = allocator.retain_pool(device, to_id(pool), options);
    if (!held.is_ok()) return held;
    Status begun = allocator.begin_pool(
        {Route::Kind::kFilter, device, to_id(pool), {}, make_safe_filter(*passed)});
    if (!begun.is_ok()) static_cast<void>(allocator.release_pool(device, to_id(pool)));
    return begun;
  }));
}

void quarry_torch_end_allocate_to_pool(int device, quarry_torch_pool_id pool) {
  throw_unless_ok(run_with_pools(
      [&](Allocator& allocator) { return allocator.end_pool(device, to_id(pool)); }));
}

void quarry_torch_release_pool(int device, quarry_torch_pool_id pool) {
  log_unless_ok("pool_release_failed", pool, run_with_pools([&](Allocator& allocator) {
                  return allocator.release_pool(device, to_id(pool));
                }));
}

void quarry_torch_retain_pool(int device, quarry_torch_pool_id pool,
                              const quarry_pool_options* options) {
  throw_unless_ok(run_with_pools([&](Allocator& allocator) -> Status {
    auto read = read_pool_options(options);
    if (!read.is_ok()) return std::move(read).status();
    PoolOptions wanted = read.value();
    wanted.no_recycle = true;
    return allocator.retain_pool(device, to_id(pool), wanted);
  }));
}

int quarry_torch_get_pool_use_count(int device, quarry_torch_pool_id pool) {
  int count = 0;
  throw_unless_ok(run_with_pools([&](Allocator& allocator) -> Status {
    auto reports = allocator.get_pool_reports(device);
    if (!reports.is_ok()) return std::move(reports).status();
    for (const PoolReport& report : reports.value()) {
      if (report.id == to_id(pool)) count = report.use_count;
    }
    return {};
  }));
  return count;
}

void quarry_torch_set_pool_use_on_oom(int device, quarry_torch_pool_id pool, int use_on_oom) {
  PoolChange wanted;
  wanted.use_on_oom = use_on_oom != 0;
  const quarry_status status = change(device, pool, wanted);
  if (use_on_oom == 0) return log_unless_ok("pool_change_failed", pool, status);
  throw_unless_ok(status);
}

void quarry_torch_set_pool_no_split(int device, quarry_torch_pool_id pool) {
  PoolChange wanted;
  wanted.no_split = true;
  throw_unless_ok(change(device, pool, wanted));
}

void quarry_torch_trim_pool(quarry_torch_pool_id pool) {
  log_unless_ok("pool_trim_failed", pool, run_with_pools([&](Allocator& allocator) {
                  Status last;
                  for (DeviceId device = 0; device < allocator.device_count(); ++device) {
                    Status trimmed = trim_on(allocator, device, to_id(pool));
                    if (!trimmed.is_ok()) last = std::move(trimmed);
                  }
                  return last;
                }));
}

quarry_pool_checkpoint* quarry_torch_save_pool(int device, quarry_torch_pool_id pool) {
  quarry_pool_checkpoint* checkpoint = nullptr;
  throw_unless_ok(run_with_pools([&](Allocator& allocator) {
    return save_pool(allocator, {device, to_id(pool)}, &checkpoint);
  }));
  return checkpoint;
}

void quarry_torch_restore_pool(int device, const quarry_pool_checkpoint* checkpoint,
                               quarry_pool_restore_visitor visitor, void* user) {
  throw_unless_ok(run_with_pools([&](Allocator& allocator) -> Status {
    if (Status status = require(checkpoint, "checkpoint"); !status.is_ok()) return status;
    if (checkpoint->saved.device != device) {
      return Status(StatusCode::kInvalidArgument, "device is " + std::to_string(device) +
                                                      "; the checkpoint is of device " +
                                                      std::to_string(checkpoint->saved.device));
    }
    return restore_pool(allocator, *checkpoint, StaleFrees::kNone, visitor, user);
  }));
}

int quarry_torch_pool_has_exactly(int device, quarry_torch_pool_id pool, const void* const* blocks,
                                  size_t count) {
  bool is_same = false;
  throw_unless_ok(run_with_pools([&](Allocator& allocator) -> Status {
    if (count > 0 && blocks == nullptr) return require(nullptr, "blocks");
    auto live = allocator.get_live_blocks(device, to_id(pool));
    if (!live.is_ok()) return std::move(live).status();
    std::vector<Address> expected;
    std::transform(blocks, blocks + count, std::back_inserter(expected), to_address);
    std::sort(expected.begin(), expected.end());
    std::vector<Address> found = std::move(live).value();
    std::sort(found.begin(), found.end());
    is_same = found == expected;
    return {};
  }));
  return is_same ? 1 : 0;
}
