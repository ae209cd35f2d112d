// SPDX-License-Identifier: Apache-2.0
// The compact binary trace format: its constants, and the coding of one event that reader and
// writer share. docs/trace-format.md describes the format byte by byte.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "trace/trace_event.hpp"

namespace quarry {

// As PNG's: the first byte is not text, the rest shows damage by line-end conversion.
inline constexpr std::array<char, 8> kNativeMagic = {'\x89', 'Q',  'T',    'R',
                                                     '\r',   '\n', '\x1a', '\n'};
inline constexpr std::uint32_t kNativeVersion = 1;
inline constexpr std::size_t kNativeHeaderBytes = 16;       // magic, version, flags (0)
inline constexpr std::size_t kNativeBlockHeaderBytes = 12;  // payload bytes, events, CRC-32
inline constexpr std::size_t kNativeMaxPayloadBytes = 64 * 1024;
inline constexpr std::size_t kNativeTrailerPayloadBytes = 8;  // the number of events, all blocks
// One tag byte and four numbers of ten bytes: no event is longer.
inline constexpr std::size_t kNativeMaxEventBytes = 41;

// What the next event is likely to be. Fields that are as expected take no space. Every block
// starts from a fresh one, so that a block can be read without those before it.
struct NativePrediction {
  std::uint64_t time_us = 0;
  std::uint64_t alloc_id = 0;  // of the latest allocation
  Bytes alloc_bytes = 0;
  std::uint64_t stream = 0;

  std::uint64_t expect_id(TraceOp op) const noexcept {
    if (op == TraceOp::kAlloc) return alloc_id + 1;
    return op == TraceOp::kFree || op == TraceOp::kRecordStream ? alloc_id : 0;
  }
  Bytes expect_bytes(TraceOp op) const noexcept { return op == TraceOp::kAlloc ? alloc_bytes : 0; }
  void learn(const TraceEvent& event) noexcept {
    time_us = event.time_us;
    stream = event.stream;
    if (event.op != TraceOp::kAlloc) return;
    alloc_id = event.id;
    alloc_bytes = event.bytes;
  }
};

// Writes `event` at `out`, which has room for kNativeMaxEventBytes, and returns the place after
// it.
char* encode_native_event(const TraceEvent& event, NativePrediction& prediction,
                          char* out) noexcept;

// Reads an event at `cursor`, where kNativeMaxEventBytes may be read, and moves `cursor` after it.
// Null, or what is wrong with it.
const char* decode_native_event(const char*& cursor, NativePrediction& prediction,
                                TraceEvent& event) noexcept;

void store_u32(char* out, std::uint32_t value) noexcept;  // little endian
void store_u64(char* out, std::uint64_t value) noexcept;
std::uint32_t load_u32(const char* in) noexcept;
std::uint64_t load_u64(const char* in) noexcept;

}  // namespace quarry
