// SPDX-License-Identifier: Apache-2.0
// What the two interfaces over private pools share, that of quarry_pool.h and PyTorch's: functions
// of the user become functions of the core, and the kill switch has no pools.
#pragma once

#include <functional>
#include <utility>

#include "api/boundary.hpp"
#include "base/status.hpp"
#include "core/capture_router.hpp"
#include "core/pool_options.hpp"
#include "quarry/quarry_pool.h"

namespace quarry {

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

}  // namespace quarry
