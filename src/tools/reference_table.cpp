// SPDX-License-Identifier: Apache-2.0
// The reader of reference tables.
#include "tools/reference_table.hpp"

#include <algorithm>
#include <charconv>
#include <sstream>
#include <system_error>
#include <vector>

namespace quarry::tools {
namespace {

constexpr char kTraceColumn[] = "trace";
constexpr char kReservedColumn[] = "pytorch_peak_reserved_bytes";

std::vector<std::string> split_line(std::string line) {
  if (line.ends_with('\r')) line.pop_back();
  std::vector<std::string> cells;
  std::istringstream stream(line);
  for (std::string cell; std::getline(stream, cell, ',');)
    cells.push_back(cell);
  return cells;
}

Status fail(int line, const std::string& cause) {
  return Status(StatusCode::kInvalidArgument, "line " + std::to_string(line) + ": " + cause);
}

}  // namespace

Result<ReferenceTable> ReferenceTable::read(std::istream& input) {
  std::string text;
  std::getline(input, text);
  const std::vector<std::string> header = split_line(text);
  const auto find_column = [&header](const char* name) {
    return static_cast<std::size_t>(std::find(header.begin(), header.end(), name) -
                                    header.begin());
  };
  const std::size_t trace = find_column(kTraceColumn);
  const std::size_t reserved = find_column(kReservedColumn);
  if (std::max(trace, reserved) >= header.size()) {
    return fail(
        1, std::string("the header lacks the column ") + kTraceColumn + " or " + kReservedColumn);
  }
  ReferenceTable table;
  for (int line = 2; std::getline(input, text); ++line) {
    const std::vector<std::string> cells = split_line(text);
    if (cells.empty()) continue;
    if (cells.size() <= std::max(trace, reserved)) return fail(line, "too few fields");
    Bytes bytes = 0;
    const std::string& number = cells[reserved];
    const char* const end = number.data() + number.size();
    const auto parsed = std::from_chars(number.data(), end, bytes);
    if (parsed.ec != std::errc() || parsed.ptr != end) {
      return fail(line, "\"" + number + "\" is not a number");
    }
    table.reserved_bytes_[cells[trace]] = bytes;
  }
  return table;
}

std::optional<Bytes> ReferenceTable::find(const std::string& label) const {
  const auto place = reserved_bytes_.find(label);
  if (place == reserved_bytes_.end()) return std::nullopt;
  return place->second;
}

}  // namespace quarry::tools
