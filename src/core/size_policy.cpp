// SPDX-License-Identifier: Apache-2.0
#include "core/size_policy.hpp"

#include <algorithm>
#include <bit>

#include "base/check.hpp"

namespace quarry {
namespace {

int get_log2(Bytes n) {
  return 63 - std::countl_zero(n);
}

// Divisions for a request of this size: one entry for each power of two from 1 MiB up.
std::uint32_t get_divisions(Bytes bytes, const Config& config) {
  const int interval = std::clamp(get_log2(bytes) - 20, 0, kRoundupIntervals - 1);
  return config.roundup_power2_divisions[static_cast<std::size_t>(interval)];
}

// Up to the next of `divisions` equal steps between a power of two and the next.
Bytes round_to_division(Bytes bytes, std::uint32_t divisions) {
  if (is_power_of_two(bytes)) return bytes;
  const Bytes floor = Bytes{1} << get_log2(bytes);
  return round_up(bytes, floor / divisions);
}

}  // namespace

Bytes calculate_block_size(Bytes bytes, const Config& config) {
  QUARRY_ASSERT(is_servable(bytes));
  if (bytes < kMinBlock) return kMinBlock;
  const std::uint32_t divisions = get_divisions(bytes, config);
  const std::uint32_t least_divisions = config.upstream_quirks ? 2 : 1;
  if (divisions >= least_divisions && bytes > kMinBlock * divisions) {
    return round_to_division(bytes, divisions);
  }
  return round_up(bytes, kMinBlock);
}

Bytes calculate_segment_size(Bytes block_size, const Config& config) {
  if (block_size <= kSmallMax) return kSmallSegment;
  if (block_size < kMediumMax) return config.large_segment_bytes;
  return round_up(block_size, kSegmentGranularity);
}

bool should_split(Bytes have, Bytes need, StatFamily family, const Config& config) {
  QUARRY_ASSERT(have >= need);
  const Bytes rest = have - need;
  if (family == StatFamily::kSmall) return rest >= kMinBlock;
  return need < config.max_split_bytes && rest > kSmallMax;
}

bool may_serve(Bytes have, Bytes need, const Config& config) {
  if (!is_oversize(need, config)) return !is_oversize(have, config);
  return have - need < config.max_non_split_rounding_bytes;
}

}  // namespace quarry
