// SPDX-License-Identifier: Apache-2.0
// Why a request could not be served, in three ledgers: what was asked, what the allocator holds,
// what the driver has. Values copied under the device lock; the text is made outside it.
#pragma once

#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "core/pool_id.hpp"
#include "driver/driver.hpp"
#include "stats/device_stats.hpp"

namespace quarry {

struct OomReport {
  enum class Reason {
    kDeviceFull,     // the driver, or the pool's own functions, have no more, and too little is
                     // cached where this request may have it
    kFragmentation,  // enough is, but no free block of this stream is large enough
    kStranded,       // a large enough block is cached, but for another stream
    kLimit,          // the limit or fraction set for this process refused it
    kFreeForbidden,  // cached memory could not be given back: the caller holds the driver-free
                     // guard
    kImpossible,     // larger than the device
  };

  DeviceId device = 0;
  std::uint64_t stream = 0;  // handle
  Reason reason = Reason::kDeviceFull;
  // Asked for.
  Bytes requested_bytes = 0;
  Bytes rounded_bytes = 0;
  Bytes segment_bytes = 0;  // what the driver would have been asked for
  // Held by the allocator.
  Bytes reserved_bytes = 0;
  Bytes allocated_bytes = 0;
  Bytes pending_bytes = 0;
  Bytes cached_bytes = 0;
  Bytes largest_free_block = 0;    // of this stream or idle
  Bytes limit_bytes = kUnlimited;  // of the process; kUnlimited without one
  Bytes private_cached_bytes = 0;  // of cached_bytes, in private pools
  Bytes others_cached_bytes = 0;   // of these, in pools that the request was not for
  PoolId pool;                     // that the request was for
  bool has_own_functions = false;  // which its segments come from, instead of the driver
  Bytes pool_reserved_bytes = 0;
  Bytes pool_limit_bytes = kUnlimited;
  std::vector<StreamCache> caches;  // by stream, largest first
  // Held by the driver.
  Bytes device_total_bytes = 0;
  Bytes device_free_bytes = 0;
  Bytes external_bytes = 0;
  bool is_expandable = false;  // expandable segments are on already
};

std::string_view get_name(OomReport::Reason reason);

// Asks the driver for its part and then decides the reason. With no lock held.
void add_driver_ledger(OomReport& report, Driver& driver, bool is_free_forbidden);

// PyTorch's sentence first, so that log scanners match, then what it lacks and what to try next.
std::string format(const OomReport& report);

}  // namespace quarry
