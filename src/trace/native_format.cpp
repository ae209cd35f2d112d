// SPDX-License-Identifier: Apache-2.0
// Coding of one event of the native trace format, and of its fixed-size numbers.
#include "trace/native_format.hpp"

namespace quarry {
namespace {

constexpr unsigned kOpMask = 0x0f;
constexpr unsigned kHasStream = 0x10;
constexpr unsigned kHasId = 0x20;
constexpr unsigned kHasBytes = 0x40;
constexpr unsigned kHasTime = 0x80;
constexpr int kMaxVarintBytes = 10;

// Small differences of either sign become small numbers.
constexpr std::uint64_t fold_sign(std::uint64_t difference) {
  return (difference << 1) ^ (0 - (difference >> 63));
}
constexpr std::uint64_t unfold_sign(std::uint64_t folded) {
  return (folded >> 1) ^ (0 - (folded & 1));
}

char* put_varint(char* out, std::uint64_t value) noexcept {
  for (; value >= 0x80; value >>= 7)
    *out++ = static_cast<char>(value | 0x80);
  *out++ = static_cast<char>(value);
  return out;
}

bool get_varint(const char*& cursor, std::uint64_t& value) noexcept {
  value = 0;
  for (int i = 0; i < kMaxVarintBytes; ++i) {
    const auto byte = static_cast<unsigned char>(*cursor++);
    value |= static_cast<std::uint64_t>(byte & 0x7f) << (7 * i);
    if (byte < 0x80) return i < kMaxVarintBytes - 1 || byte <= 1;
  }
  return false;
}

// A number that replaces `value` where the tag says that it is there.
bool get_difference(unsigned flag, const char*& cursor, std::uint64_t& value) noexcept {
  if (flag == 0) return true;
  std::uint64_t folded = 0;
  if (!get_varint(cursor, folded)) return false;
  value += unfold_sign(folded);
  return true;
}

bool get_number(unsigned flag, const char*& cursor, std::uint64_t& value) noexcept {
  return flag == 0 || get_varint(cursor, value);
}

}  // namespace

char* encode_native_event(const TraceEvent& event, NativePrediction& prediction,
                          char* out) noexcept {
  char* const tag_place = out++;
  unsigned tag = static_cast<unsigned>(event.op);
  if (event.time_us != prediction.time_us) {
    tag |= kHasTime;
    out = put_varint(out, fold_sign(event.time_us - prediction.time_us));
  }
  const std::uint64_t expected_id = prediction.expect_id(event.op);
  if (event.id != expected_id) {
    tag |= kHasId;
    out = put_varint(out, fold_sign(event.id - expected_id));
  }
  if (event.bytes != prediction.expect_bytes(event.op)) {
    tag |= kHasBytes;
    out = put_varint(out, event.bytes);
  }
  if (event.stream != prediction.stream) {
    tag |= kHasStream;
    // + 1 makes "no stream" a 0, one byte instead of ten.
    out = put_varint(out, event.stream + 1);
  }
  *tag_place = static_cast<char>(tag);
  prediction.learn(event);
  return out;
}

const char* decode_native_event(const char*& cursor, NativePrediction& prediction,
                                TraceEvent& event) noexcept {
  const unsigned tag = static_cast<unsigned char>(*cursor++);
  const unsigned op = tag & kOpMask;
  if (op < static_cast<unsigned>(TraceOp::kAlloc) ||
      op > static_cast<unsigned>(TraceOp::kSegmentFree)) {
    return "an op code that format version 1 does not have";
  }
  event.op = static_cast<TraceOp>(op);
  event.time_us = prediction.time_us;
  event.id = prediction.expect_id(event.op);
  event.bytes = prediction.expect_bytes(event.op);
  std::uint64_t stream = prediction.stream + 1;
  if (!get_difference(tag & kHasTime, cursor, event.time_us) ||
      !get_difference(tag & kHasId, cursor, event.id) ||
      !get_number(tag & kHasBytes, cursor, event.bytes) ||
      !get_number(tag & kHasStream, cursor, stream)) {
    return "a number longer than 64 bits";
  }
  event.stream = stream - 1;
  if (event.stream == kNoTraceStream && event.op != TraceOp::kFree) {
    return "an event without its stream";
  }
  prediction.learn(event);
  return nullptr;
}

void store_u32(char* out, std::uint32_t value) noexcept {
  for (int i = 0; i < 4; ++i)
    out[i] = static_cast<char>(value >> (8 * i));
}

void store_u64(char* out, std::uint64_t value) noexcept {
  for (int i = 0; i < 8; ++i)
    out[i] = static_cast<char>(value >> (8 * i));
}

std::uint32_t load_u32(const char* in) noexcept {
  std::uint32_t value = 0;
  for (int i = 0; i < 4; ++i) {
    value |= static_cast<std::uint32_t>(static_cast<unsigned char>(in[i])) << (8 * i);
  }
  return value;
}

std::uint64_t load_u64(const char* in) noexcept {
  return load_u32(in) | (static_cast<std::uint64_t>(load_u32(in + 4)) << 32);
}

}  // namespace quarry
