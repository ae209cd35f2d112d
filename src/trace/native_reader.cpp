// SPDX-License-Identifier: Apache-2.0
// The reader of native traces: one verified block at a time.
#include "trace/native_reader.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "trace/crc32.hpp"
#include "trace/csv_row.hpp"

namespace quarry {

// A decoder may read past a payload's end, into the next block or the window's slack.
static_assert(InputWindow::kSlackBytes >= kNativeMaxEventBytes);
static_assert(InputWindow::kWindowBytes >= kNativeBlockHeaderBytes + kNativeMaxPayloadBytes);

namespace {

// Errors of the header stand before every event and name none.
Status fail_header(std::string cause) {
  return Status(StatusCode::kInvalidArgument, std::move(cause));
}

// Of a file that begins with the magic's first byte, but not with the magic.
Status explain_magic(std::string_view bytes) {
  constexpr std::size_t kNameBytes = 4;  // the byte that is no text, and QTR
  const bool has_name =
      bytes.size() >= kNameBytes &&
      std::equal(kNativeMagic.begin(), kNativeMagic.begin() + kNameBytes, bytes.begin());
  if (!has_name) return fail_header("line 1: " + explain_unknown_format(bytes));
  return fail_header(
      "damaged: its first 8 bytes are not those of a native trace, as after a "
      "conversion of line ends");
}

}  // namespace

Result<std::size_t> NativeReader::read(std::span<TraceEvent> out) {
  if (!has_header_) {
    if (Status status = read_header(); !status.is_ok()) return status;
  }
  std::size_t count = 0;
  while (count < out.size() && !is_finished_) {
    Status status = block_events_ == 0 ? open_block() : decode(out, count);
    if (!status.is_ok()) return status;
  }
  return count;
}

Status NativeReader::read_header() {
  if (Status status = window_.require(kNativeHeaderBytes); !status.is_ok()) {
    return fail(status.message());
  }
  const std::string_view bytes = window_.view();
  const std::size_t known = std::min(bytes.size(), kNativeMagic.size());
  if (!std::equal(bytes.begin(), bytes.begin() + known, kNativeMagic.begin())) {
    return explain_magic(bytes);
  }
  if (bytes.size() < kNativeHeaderBytes) return fail_header("the file ends within its header");
  const std::uint32_t version = load_u32(bytes.data() + kNativeMagic.size());
  if (version != kNativeVersion) {
    return fail_header("format version " + std::to_string(version) +
                       "; this program reads version " + std::to_string(kNativeVersion));
  }
  const std::uint32_t flags = load_u32(bytes.data() + kNativeMagic.size() + 4);
  if (flags != 0)
    return fail_header("header flags " + std::to_string(flags) + " where version 1 has 0");
  window_.consume(kNativeHeaderBytes);
  has_header_ = true;
  return Status::ok();
}

Status NativeReader::open_block() {
  if (payload_bytes_ != 0) return fail("a block is longer than its events");
  if (Status status = window_.require(kNativeBlockHeaderBytes + kNativeMaxPayloadBytes);
      !status.is_ok()) {
    return fail(status.message());
  }
  const std::string_view bytes = window_.view();
  if (bytes.size() < kNativeBlockHeaderBytes) {
    return fail("the file is cut: its trailer is missing");
  }
  const std::size_t payload_bytes = load_u32(bytes.data());
  if (payload_bytes == 0 || payload_bytes > kNativeMaxPayloadBytes) {
    return fail("damaged: a block of " + std::to_string(payload_bytes) + " bytes");
  }
  if (bytes.size() < kNativeBlockHeaderBytes + payload_bytes) {
    return fail("the file is cut within a block");
  }
  const char* const payload = bytes.data() + kNativeBlockHeaderBytes;
  const std::uint32_t sum =
      calculate_crc32({payload, payload_bytes}, calculate_crc32({bytes.data(), 8}));
  if (sum != load_u32(bytes.data() + 8)) return fail("damaged: the checksum of a block differs");
  block_events_ = load_u32(bytes.data() + 4);
  window_.consume(kNativeBlockHeaderBytes);
  if (block_events_ == 0) {
    if (payload_bytes != kNativeTrailerPayloadBytes) return fail("damaged: a malformed trailer");
    return finish(load_u64(payload));
  }
  payload_bytes_ = payload_bytes;
  prediction_ = NativePrediction();
  return Status::ok();
}

Status NativeReader::finish(std::uint64_t promised_events) {
  if (promised_events != events_) {
    return fail("damaged: the trailer counts " + std::to_string(promised_events) +
                " events, not " + std::to_string(events_));
  }
  window_.consume(kNativeTrailerPayloadBytes);
  if (Status status = window_.require(1); !status.is_ok()) return fail(status.message());
  if (!window_.view().empty()) return fail("there is something after the trailer");
  is_finished_ = true;
  return Status::ok();
}

Status NativeReader::decode(std::span<TraceEvent> out, std::size_t& count) {
  const char* const begin = window_.view().data();
  const char* const end = begin + payload_bytes_;
  const char* cursor = begin;
  while (count < out.size() && block_events_ != 0) {
    const char* cause = decode_native_event(cursor, prediction_, out[count]);
    if (cause == nullptr && cursor > end) cause = "an event crosses the end of its block";
    if (cause != nullptr) return fail(cause);
    ++count;
    ++events_;
    --block_events_;
  }
  const auto consumed = static_cast<std::size_t>(cursor - begin);
  window_.consume(consumed);
  payload_bytes_ -= consumed;
  return Status::ok();
}

Status NativeReader::fail(std::string_view cause) const {
  return Status(StatusCode::kInvalidArgument,
                "event " + std::to_string(events_ + 1) + ": " + std::string(cause));
}

}  // namespace quarry
