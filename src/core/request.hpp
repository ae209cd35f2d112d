// SPDX-License-Identifier: Apache-2.0
// One request on its way through the algorithm of a device (device_allocator.cpp). A value;
// points, owns nothing.
#pragma once

#include "core/mem_pool.hpp"
#include "core/size_policy.hpp"
#include "core/stream_table.hpp"

namespace quarry {

struct Request {
  Stream* stream = nullptr;  // who may own what it gets
  MemPool* pool = nullptr;
  CaptureId capture{};  // that the stream is in, for a request to a private pool
  Bytes requested_bytes = 0;
  Bytes block_bytes = 0;    // what the user gets
  Bytes needed_bytes = 0;   // block_bytes and room to align
  Bytes segment_bytes = 0;  // what the driver would be asked for
  Bytes alignment = kMinBlock;
  StatFamily family = StatFamily::kSmall;

  bool is_captured() const noexcept { return capture != CaptureId::kNone; }
};

}  // namespace quarry
