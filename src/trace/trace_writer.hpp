// SPDX-License-Identifier: Apache-2.0
// Writes a trace in one of its formats to a sink. A trace is whole only after finish(); without it
// a native trace is recognised as cut. Not thread-safe. Memory does not grow with the trace.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trace/byte_stream.hpp"
#include "trace/native_format.hpp"
#include "trace/trace_reader.hpp"

namespace quarry {

class TraceWriter {
 public:
  TraceWriter(TraceFormat format, ByteSink sink);

  // Fails where the sink does; the trace is then of no use.
  Status write(std::span<const TraceEvent> events);
  // Writes what is outstanding and the trailer. Once, at the end.
  Status finish();

 private:
  Status write_block();
  Status write_native(const TraceEvent& event);
  void write_csv(const TraceEvent& event);

  TraceFormat format_;
  ByteSink sink_;
  std::vector<char> buffer_;        // of fixed size; what the sink has not got yet
  std::size_t used_;                // prefix of buffer_
  NativePrediction prediction_;     // native only, as the two below
  std::uint32_t block_events_ = 0;  // in buffer_
  std::uint64_t events_ = 0;        // in all
};

}  // namespace quarry
