// SPDX-License-Identifier: Apache-2.0
// The writers of CSV and native traces. In buffer_, a CSV trace lies as text; a native one as a
// block, whose header is filled in when it is written.
#include "trace/trace_writer.hpp"

#include <algorithm>
#include <charconv>

#include "trace/crc32.hpp"

namespace quarry {
namespace {

constexpr std::size_t kBufferBytes = kNativeBlockHeaderBytes + kNativeMaxPayloadBytes;

char get_op_name(TraceOp op) {
  switch (op) {
    case TraceOp::kAlloc:
      return 'a';
    case TraceOp::kFree:
      return 'f';
    case TraceOp::kRecordStream:
      return 'r';
    case TraceOp::kSegmentAlloc:
      return 'S';
    case TraceOp::kSegmentFree:
      return 'T';
  }
  return '?';
}

}  // namespace

TraceWriter::TraceWriter(TraceFormat format, ByteSink sink)
    : format_(format), sink_(std::move(sink)), buffer_(kBufferBytes), used_(0) {
  char* out = buffer_.data();
  if (format_ == TraceFormat::kCsv) {
    out = std::copy(CsvReader::kHeader.begin(), CsvReader::kHeader.end(), out);
    *out++ = '\n';
  } else {
    out = std::copy(kNativeMagic.begin(), kNativeMagic.end(), out);
    store_u32(out, kNativeVersion);
    store_u32(out + 4, 0);
    out += 8;
  }
  used_ = static_cast<std::size_t>(out - buffer_.data());
}

Status TraceWriter::write(std::span<const TraceEvent> events) {
  for (const TraceEvent& event : events) {
    ++events_;
    if (format_ == TraceFormat::kNative) {
      if (Status status = write_native(event); !status.is_ok()) return status;
      continue;
    }
    if (kBufferBytes - used_ < CsvReader::kMaxLineBytes) {
      if (Status status = sink_({buffer_.data(), used_}); !status.is_ok()) return status;
      used_ = 0;
    }
    write_csv(event);
  }
  return Status::ok();
}

Status TraceWriter::write_native(const TraceEvent& event) {
  const bool is_full = kBufferBytes - used_ < kNativeMaxEventBytes;
  if (block_events_ == 0 || is_full) {
    if (Status status = write_block(); !status.is_ok()) return status;
  }
  char* const end = encode_native_event(event, prediction_, buffer_.data() + used_);
  used_ = static_cast<std::size_t>(end - buffer_.data());
  ++block_events_;
  return Status::ok();
}

// Writes the file's header or the block that the buffer holds, and starts a new block.
Status TraceWriter::write_block() {
  if (block_events_ != 0) {
    const std::size_t payload_bytes = used_ - kNativeBlockHeaderBytes;
    store_u32(buffer_.data(), static_cast<std::uint32_t>(payload_bytes));
    store_u32(buffer_.data() + 4, block_events_);
    const std::uint32_t sum =
        calculate_crc32({buffer_.data() + kNativeBlockHeaderBytes, payload_bytes},
                        calculate_crc32({buffer_.data(), 8}));
    store_u32(buffer_.data() + 8, sum);
  }
  if (Status status = sink_({buffer_.data(), used_}); !status.is_ok()) return status;
  used_ = kNativeBlockHeaderBytes;
  block_events_ = 0;
  prediction_ = NativePrediction();
  return Status::ok();
}

void TraceWriter::write_csv(const TraceEvent& event) {
  char* out = buffer_.data() + used_;
  char* const end = buffer_.data() + kBufferBytes;
  const auto put = [&out, end](std::uint64_t number, bool is_absent) {
    if (!is_absent) out = std::to_chars(out, end, number).ptr;
  };
  const bool is_segment = event.op == TraceOp::kSegmentAlloc || event.op == TraceOp::kSegmentFree;
  const bool has_bytes = event.op == TraceOp::kAlloc || is_segment || event.bytes != 0;
  put(event.time_us, false);
  *out++ = ',';
  *out++ = get_op_name(event.op);
  *out++ = ',';
  put(event.id, is_segment && event.id == 0);
  *out++ = ',';
  put(event.bytes, !has_bytes);
  *out++ = ',';
  put(event.stream, event.stream == kNoTraceStream);
  *out++ = '\n';
  used_ = static_cast<std::size_t>(out - buffer_.data());
}

Status TraceWriter::finish() {
  if (format_ == TraceFormat::kCsv) return sink_({buffer_.data(), used_});
  if (Status status = write_block(); !status.is_ok()) return status;
  char trailer[kNativeBlockHeaderBytes + kNativeTrailerPayloadBytes];
  store_u32(trailer, kNativeTrailerPayloadBytes);
  store_u32(trailer + 4, 0);
  store_u64(trailer + kNativeBlockHeaderBytes, events_);
  const std::uint32_t sum =
      calculate_crc32({trailer + kNativeBlockHeaderBytes, kNativeTrailerPayloadBytes},
                      calculate_crc32({trailer, 8}));
  store_u32(trailer + 8, sum);
  return sink_(trailer);
}

}  // namespace quarry
