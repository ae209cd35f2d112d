// SPDX-License-Identifier: Apache-2.0
// Sizes: how requests are rounded, which family serves them, how large new segments are, when a
// block is split and which blocks may serve a request. Pure functions of values; equal to
// PyTorch's native allocator (and with Config::upstream_quirks to its defects).
#pragma once

#include "base/bytes.hpp"
#include "core/config.hpp"
#include "stats/device_stats.hpp"

namespace quarry {

inline constexpr Bytes kMinBlock = 512;
inline constexpr Bytes kSmallMax = 1_MiB;  // rounded sizes up to this are small
inline constexpr Bytes kSmallSegment = 2_MiB;
inline constexpr Bytes kMediumMax = 10_MiB;  // sizes below this share large segments
inline constexpr Bytes kSegmentGranularity =
    2_MiB;                                        // of segments for sizes of kMediumMax and more
inline constexpr Bytes kRequestMax = 1ull << 60;  // 1 EiB: from here on requests are refused

// Whether there is a block for a request of `bytes` at all.
constexpr bool is_servable(Bytes bytes) {
  return bytes > 0 && bytes < kRequestMax;
}

// The size of the block for a request of `bytes`, which is servable: a multiple of 512, at least
// `bytes`.
Bytes calculate_block_size(Bytes bytes, const Config& config);

constexpr StatFamily get_family(Bytes block_size) {
  return block_size <= kSmallMax ? StatFamily::kSmall : StatFamily::kLarge;
}

// The size of the segment that is obtained from the driver for a block of `block_size`.
Bytes calculate_segment_size(Bytes block_size, const Config& config);

// Whether a block of `have` bytes that serves `need` bytes gives the rest back.
bool should_split(Bytes have, Bytes need, StatFamily family, const Config& config);

// Whether the best fitting free block, of `have` bytes, may serve `need` bytes: oversize blocks
// are for oversize requests, and those do not take blocks that are very much larger.
bool may_serve(Bytes have, Bytes need, const Config& config);

// Oversize blocks and segments are counted apart, and kept apart.
constexpr bool is_oversize(Bytes size, const Config& config) {
  return size >= config.max_split_bytes;
}

}  // namespace quarry
