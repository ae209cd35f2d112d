// SPDX-License-Identifier: Apache-2.0
// Traces in memory for tests: sources and sinks over strings, and reading a whole trace at once.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "trace/trace_reader.hpp"
#include "trace/trace_writer.hpp"

namespace quarry::test {

// Hands out at most `step` bytes a call.
inline ByteSource make_source(std::string text, std::size_t step = 1 << 20) {
  return [text = std::move(text), step,
          place = std::size_t{0}](std::span<char> out) mutable -> Result<std::size_t> {
    const std::size_t count = std::min({step, out.size(), text.size() - place});
    std::copy_n(text.data() + place, count, out.data());
    place += count;
    return count;
  };
}

inline ByteSink make_sink(std::string& text) {
  return [&text](std::span<const char> bytes) {
    text.append(bytes.data(), bytes.size());
    return Status::ok();
  };
}

struct WholeTrace {
  std::vector<TraceEvent> events;
  std::string error;  // empty: none
};

inline WholeTrace read_all(ByteSource source, std::size_t batch = 1000) {
  WholeTrace trace;
  Result<std::unique_ptr<TraceReader>> reader = TraceReader::open(std::move(source), "t");
  if (!reader.is_ok()) return {{}, std::string(reader.status().message())};
  std::vector<TraceEvent> events(batch);
  for (;;) {
    Result<std::size_t> count = reader.value()->read(events);
    if (!count.is_ok()) {
      trace.error = count.status().message();
      return trace;
    }
    if (count.value() == 0) return trace;
    trace.events.insert(trace.events.end(), events.begin(),
                        events.begin() + static_cast<std::ptrdiff_t>(count.value()));
  }
}

inline WholeTrace read_text(std::string text) {
  return read_all(make_source(std::move(text)));
}

inline std::string write_all(TraceFormat format, const std::vector<TraceEvent>& events) {
  std::string text;
  TraceWriter writer(format, make_sink(text));
  if (!writer.write(events).is_ok() || !writer.finish().is_ok()) return "failed";
  return text;
}

}  // namespace quarry::test
