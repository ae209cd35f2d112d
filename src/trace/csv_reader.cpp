// SPDX-License-Identifier: Apache-2.0
// The reader of CSV traces: whole lines out of a window, parsed without looking for their ends.
#include "trace/csv_reader.hpp"

#include <string>

namespace quarry {
namespace {

std::string_view strip_carriage_return(std::string_view line) {
  return line.ends_with('\r') ? line.substr(0, line.size() - 1) : line;
}

}  // namespace

Result<std::size_t> CsvReader::read(std::span<TraceEvent> out) {
  if (!has_header_) {
    if (Status status = read_header(); !status.is_ok()) return status;
  }
  std::size_t count = 0;
  while (count < out.size() && !is_finished_) {
    if (lines_bytes_ == 0) {
      if (Status status = find_lines(); !status.is_ok()) return status;
      continue;
    }
    count += parse_rows(out.subspan(count));
    if (!has_odd_line_) continue;
    if (Status status = examine_odd_line(); !status.is_ok()) return status;
  }
  return count;
}

Status CsvReader::read_header() {
  if (Status status = find_lines(); !status.is_ok()) return status;
  if (lines_bytes_ == 0) return Status(StatusCode::kInvalidArgument, "the file is empty");
  const std::string_view lines = window_.view().substr(0, lines_bytes_);
  const std::size_t length = lines.find('\n');
  const std::string_view header = strip_carriage_return(lines.substr(0, length));
  if (header != kHeader) {
    return fail(explain_unknown_format(header));
  }
  window_.consume(length + 1);
  lines_bytes_ -= length + 1;
  line_ = 2;
  has_header_ = true;
  return Status::ok();
}

Status CsvReader::find_lines() {
  // Lines that are there already come first: a fill that finds the source cut hands out no more.
  if (window_.view().find('\n') == std::string_view::npos) {
    if (Status status = window_.fill(); !status.is_ok()) return fail(status.message());
  }
  std::string_view text = window_.view();
  if (window_.is_at_end() && !text.empty() && text.back() != '\n') {
    window_.append_newline();
    text = window_.view();
  }
  const std::size_t last = text.rfind('\n');
  if (last != std::string_view::npos) {
    lines_bytes_ = last + 1;
  } else if (window_.is_at_end()) {
    is_finished_ = true;
  } else if (line_ == 1) {
    return fail(explain_unknown_format(text));
  } else {
    return fail("longer than the " + std::to_string(kMaxLineBytes) + " bytes that a row may have");
  }
  return Status::ok();
}

std::size_t CsvReader::parse_rows(std::span<TraceEvent> out) {
  if (blank_line_ != 0) {
    has_odd_line_ = true;
    return 0;
  }
  const char* const begin = window_.view().data();
  const char* const end = begin + lines_bytes_;
  const char* cursor = begin;
  std::size_t count = 0;
  while (count < out.size() && cursor != end) {
    if (!parse_csv_row(cursor, out[count])) {
      has_odd_line_ = true;
      break;
    }
    ++count;
  }
  const auto consumed = static_cast<std::size_t>(cursor - begin);
  window_.consume(consumed);
  lines_bytes_ -= consumed;
  line_ += count;
  return count;
}

Status CsvReader::examine_odd_line() {
  const std::string_view lines = window_.view().substr(0, lines_bytes_);
  const std::size_t length = lines.find('\n');
  const std::string_view line = strip_carriage_return(lines.substr(0, length));
  if (line.size() > kMaxLineBytes) {
    return fail(std::to_string(line.size()) + " bytes long; a row has at most " +
                std::to_string(kMaxLineBytes));
  }
  if (!line.empty()) {
    if (blank_line_ == 0) return fail(explain_csv_row(line));
    return fail("a row after the blank line " + std::to_string(blank_line_));
  }
  if (blank_line_ == 0) blank_line_ = line_;
  window_.consume(length + 1);
  lines_bytes_ -= length + 1;
  ++line_;
  has_odd_line_ = false;
  return Status::ok();
}

Status CsvReader::fail(std::string_view cause) const {
  return Status(StatusCode::kInvalidArgument,
                "line " + std::to_string(line_) + ": " + std::string(cause));
}

}  // namespace quarry
