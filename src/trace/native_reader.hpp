// SPDX-License-Identifier: Apache-2.0
// Reads traces of the native binary format. A cut or damaged file is an error, never a shorter
// trace: every block carries its checksum, and a trailer the number of events. Memory does not
// grow with the trace. Owned by a TraceReader.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "trace/byte_stream.hpp"
#include "trace/native_format.hpp"

namespace quarry {

class NativeReader {
 public:
  explicit NativeReader(InputWindow window) : window_(std::move(window)) {}

  // Fills a prefix of `out` and returns its length; 0 only at the end. The text of a failure
  // starts with "event N: ", the number of the first event that could not be read (the first is
  // 1), unless the file's header is what is wrong.
  Result<std::size_t> read(std::span<TraceEvent> out);

 private:
  Status read_header();
  // Checks the block at the front of the window and makes it the current one, or ends the trace.
  Status open_block();
  Status finish(std::uint64_t promised_events);
  Status decode(std::span<TraceEvent> out, std::size_t& count);
  Status fail(std::string_view cause) const;

  InputWindow window_;
  NativePrediction prediction_;
  std::size_t payload_bytes_ = 0;   // of the current block, not yet decoded
  std::uint32_t block_events_ = 0;  // likewise
  std::uint64_t events_ = 0;        // decoded so far
  bool has_header_ = false;
  bool is_finished_ = false;
};

}  // namespace quarry
