// SPDX-License-Identifier: Apache-2.0
// What the two interfaces over private pools share, that of quarry_pool.h and PyTorch's: functions
// of the user become functions of the core, and the kill switch has no pools. A handle is the
// device and a number that is counted up in this process, so that a call finds the device without
// a table, and a stale handle finds nothing.
#pragma once

#include <functional>
#include <utility>

#include "api/boundary.hpp"
#include "base/status.hpp"
#include "core/capture_router.hpp"
#include "core/pool_checkpoint.hpp"
#include "core/pool_options.hpp"
#include "quarry/quarry_pool.h"

// Behind the opaque type. Names what it is of by numbers that are never used again in this
// process, so that it may outlive all of it.
struct quarry_pool_checkpoint {
  quarry::PoolCheckpoint saved;
};

namespace quarry {

struct PoolName {
  DeviceId device = 0;
  PoolId id;
};

// QUARRY_POOL_DEFAULT for pools that have no handle.
quarry_pool to_c(PoolName name);
Result<PoolName> read_pool(const Allocator& allocator, quarry_pool pool);

// Without options (nullptr) those of the core.
Result<PoolOptions> read_pool_options(const quarry_pool_options* options);

// What the filter throws is logged once, and counts as accepted: a pool's memory is right for
// every stream, that of others is wrong for one that captures.
StreamFilter make_safe_filter(std::function<bool(quarry_stream)> filter);

Status refuse_pools_under_kill_switch();

// Runs `body(Allocator&)`, which returns a Status, with the process's allocator.
template <class Body>
quarry_status run_with_pools(Body&& body) noexcept {
  return run([&]() -> Status {
    auto process = find_process();
    if (!process.is_ok()) return std::move(process).status();
    Allocator* const allocator = process.value()->allocator();
    return allocator != nullptr ? body(*allocator) : refuse_pools_under_kill_switch();
  });
}

// Runs `body(Allocator&, PoolName)`, which returns a Status.
template <class Body>
quarry_status run_with_pool(quarry_pool pool, Body&& body) noexcept {
  return run_with_pools([&](Allocator& allocator) -> Status {
    auto name = read_pool(allocator, pool);
    if (!name.is_ok()) return std::move(name).status();
    return body(allocator, name.value());
  });
}

// The two ends of a checkpoint; see quarry_pool.h.
Status save_pool(Allocator& allocator, PoolName name, quarry_pool_checkpoint** checkpoint);
Status restore_pool(Allocator& allocator, const quarry_pool_checkpoint& checkpoint,
                    StaleFrees frees, quarry_pool_restore_visitor visitor, void* user);

}  // namespace quarry
