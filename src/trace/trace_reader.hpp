// SPDX-License-Identifier: Apache-2.0
// The one way to read a trace: recognises its format by content and hands out events in batches,
// in the order of the trace. Checks the form of rows; TraceChecker checks their meaning. Owns the
// source. Not thread-safe. Memory does not grow with the trace (a window of 256 KiB).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "trace/csv_reader.hpp"
#include "trace/native_reader.hpp"

namespace quarry {

enum class TraceFormat { kCsv, kNative };

class TraceReader {
 public:
  // `name` is what errors call the trace: the path, as a rule. Fails where the source does, and
  // for an empty one.
  static Result<std::unique_ptr<TraceReader>> open(ByteSource source, std::string name);

  // Fills a prefix of `out` and returns its length; 0 only at the end. A failure's text is
  // "NAME: line 12: cause" (or "event 12" in a binary trace), and the trace is over.
  Result<std::size_t> read(std::span<TraceEvent> out);

  TraceFormat format() const noexcept {
    return std::holds_alternative<CsvReader>(reader_) ? TraceFormat::kCsv : TraceFormat::kNative;
  }
  const std::string& name() const noexcept { return name_; }
  // "NAME: line 12": where the event stands that has this number in the trace, from 0.
  std::string describe_place(std::uint64_t event_index) const;

 private:
  TraceReader(std::variant<CsvReader, NativeReader> reader, std::string name)
      : reader_(std::move(reader)), name_(std::move(name)) {}

  std::variant<CsvReader, NativeReader> reader_;
  std::string name_;
};

}  // namespace quarry
