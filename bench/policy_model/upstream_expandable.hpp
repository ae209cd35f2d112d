// SPDX-License-Identifier: Apache-2.0
// PyTorch 2.11's expandable segments as a model: which blocks it would hand out and how much it
// would map. No addresses of a driver, no limit of device memory, nothing is ever unmapped. Frees
// are reusable at once by their own stream, blocks with foreign uses included.
#pragma once

#include "base/bytes.hpp"
#include "bench/policy_model/policy_trace.hpp"

namespace quarry::policy_model {

// Physical pages of upstream: all of one size in a segment.
inline constexpr Bytes kUpstreamSmallPage = 2_MiB;
inline constexpr Bytes kUpstreamLargePage = 20_MiB;

struct UpstreamResult {
  Bytes peak_reserved_bytes = 0;
  std::uint64_t pages = 0;   // mapped, small and large
  std::uint64_t misses = 0;  // requests that mapped some
};

UpstreamResult replay_upstream_expandable(const PolicyTrace& trace);

}  // namespace quarry::policy_model
