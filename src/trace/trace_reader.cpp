// SPDX-License-Identifier: Apache-2.0
// Recognition of trace formats, and the names in errors.
#include "trace/trace_reader.hpp"

#include <algorithm>

#include "trace/native_format.hpp"

namespace quarry {
namespace {

Status prefix(std::string_view name, const Status& status) {
  return Status(status.code(), std::string(name) + ": " + std::string(status.message()));
}

}  // namespace

Result<std::unique_ptr<TraceReader>> TraceReader::open(ByteSource source, std::string name) {
  InputWindow window(std::move(source));
  if (Status status = window.fill(); !status.is_ok()) return prefix(name, status);
  const std::string_view start = window.view();
  if (start.empty()) {
    return prefix(name, Status(StatusCode::kInvalidArgument, "line 1: the file is empty"));
  }
  // No text begins with the magic's first byte, so a damaged or cut magic is told apart too.
  const bool is_native = start.front() == kNativeMagic.front();
  std::variant<CsvReader, NativeReader> reader =
      is_native ? std::variant<CsvReader, NativeReader>(NativeReader(std::move(window)))
                : std::variant<CsvReader, NativeReader>(CsvReader(std::move(window)));
  return std::unique_ptr<TraceReader>(new TraceReader(std::move(reader), std::move(name)));
}

Result<std::size_t> TraceReader::read(std::span<TraceEvent> out) {
  Result<std::size_t> count =
      std::visit([out](auto& reader) { return reader.read(out); }, reader_);
  if (count.is_ok()) return count;
  return prefix(name_, count.status());
}

std::string TraceReader::describe_place(std::uint64_t event_index) const {
  // In CSV every row is one line, after the header's.
  const bool is_csv = format() == TraceFormat::kCsv;
  return name_ + (is_csv ? ": line " : ": event ") +
         std::to_string(event_index + (is_csv ? 2 : 1));
}

}  // namespace quarry
