// SPDX-License-Identifier: Apache-2.0
// The settings of an allocator as values. How they are written as text is
// src/api/config_parser.hpp; docs/tuning.md says when to use each.
#pragma once

#include <array>
#include <cstdint>

#include "base/bytes.hpp"
#include "driver/driver_types.hpp"

namespace quarry {

// One entry for each power of two from 1 MiB up; the last holds for all larger sizes.
inline constexpr int kRoundupIntervals = 16;
using RoundupDivisions = std::array<std::uint32_t, kRoundupIntervals>;

// When memory that one stream freed may serve another: never; when the host has seen its last use
// done; also earlier, after a wait on the device.
enum class CrossStreamReuse : std::uint8_t { kOff, kIdle, kWait };
// Which extents move to where memory is needed: none; those whose last use the host has seen done;
// also those that only the requesting stream can still use.
enum class Recycle : std::uint8_t { kOff, kPassed, kStream };

struct Config {
  // Memory is mapped into reserved address ranges, extent by extent. expandable_segments,
  // segments.
  bool expandable_segments = false;
  // The rest is for those only.
  CrossStreamReuse cross_stream_reuse = CrossStreamReuse::kWait;
  Recycle recycle = Recycle::kStream;
  // How much more than the highest amount allocated is reserved before extents move instead.
  double reserve_slack = 0.02;
  // By which handles memory can be exported to other processes, and whether network cards can use
  // it, each where the device can. Memory that is there when this changes serves nobody any more.
  ExtentKind::HandleType extent_handle_types = ExtentKind::HandleType::kNone;
  bool rdma = true;
  // Segment size of requests between 1 MiB and 10 MiB. Option large_segment_size_mb.
  Bytes large_segment_bytes = 20_MiB;
  // Blocks of this size or more are not split, and serve only requests as large.
  // max_split_size_mb.
  Bytes max_split_bytes = kUnlimited;
  // How much larger than an oversize request the block that serves it may be.
  // max_non_split_rounding_mb.
  Bytes max_non_split_rounding_bytes = 20_MiB;
  // Steps between a power of two and the next to which sizes are rounded; 0 rounds to 512 bytes.
  RoundupDivisions roundup_power2_divisions{};
  // Above this part of the limit old cached segments are released before growing; 0 is never.
  double garbage_collection_threshold = 0.0;
  // Part of the device's memory that this process may reserve.
  double per_process_memory_fraction = 1.0;
  // Refuse above the fraction at once, without giving cached memory back first.
  bool throw_on_cudamalloc_oom = false;
  // Inside a capture, too, cached memory may be given back to the driver to make room. False: as
  // PyTorch, which rather refuses. graph_capture_reclaim.
  bool graph_capture_reclaim = true;
  // Inside a capture, reuse a freed block that other streams of it used as soon as the graph shows
  // that those uses come first. Else when the capture has ended.
  // graph_capture_record_stream_reuse.
  bool graph_capture_record_stream_reuse = false;
  // Every capture is routed to a pool of its own, which lives as long as its graph, with no begin
  // and end: the driver is asked at every request. graph_pools:automatic.
  bool automatic_graph_pools = false;
  // Serve repeated sizes from magazines of the thread, without the device's mutex. thread_cache.
  bool thread_cache = true;
  // True: two upstream defects are kept, so that decisions equal PyTorch's: a division of 1 rounds
  // nothing, and the garbage threshold needs a memory fraction. False: 1 is the next power of two,
  // and without a fraction the threshold is a part of the device's memory.
  bool upstream_quirks = true;

  friend bool operator==(const Config&, const Config&) = default;
};

}  // namespace quarry
