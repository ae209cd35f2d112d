// SPDX-License-Identifier: Apache-2.0
// Reads traces written as comma-separated text, strictly: the first row that is not exactly of the
// format ends the reading with its line number and the cause. Checks the form of rows only, not
// their meaning. Memory does not grow with the trace. Owned by a TraceReader.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "trace/byte_stream.hpp"
#include "trace/csv_row.hpp"
#include "trace/trace_event.hpp"

namespace quarry {

class CsvReader {
 public:
  static constexpr std::string_view kHeader = kCsvHeader;
  // Longer lines are no rows: four numbers of 20 digits, an op, separators and a line end.
  static constexpr std::size_t kMaxLineBytes = 256;

  explicit CsvReader(InputWindow window) : window_(std::move(window)) {}

  // Fills a prefix of `out` and returns its length; 0 only at the end. The text of a failure
  // starts with "line N: ".
  Result<std::size_t> read(std::span<TraceEvent> out);

 private:
  Status read_header();
  // Makes at least one whole line available, or finds the end of the trace.
  Status find_lines();
  // Parses whole lines until `out` is full, none is left, or one is not a row.
  std::size_t parse_rows(std::span<TraceEvent> out);
  // The line after the last row is no row: blank lines at the end pass, anything else is an error.
  Status examine_odd_line();
  Status fail(std::string_view cause) const;

  InputWindow window_;
  std::size_t lines_bytes_ = 0;   // prefix of the window that consists of whole lines
  std::uint64_t line_ = 1;        // number of the window's first line
  std::uint64_t blank_line_ = 0;  // number of the first blank line; 0: none yet
  bool has_header_ = false;
  bool has_odd_line_ = false;  // the window's first line is not a row
  bool is_finished_ = false;
};

}  // namespace quarry
