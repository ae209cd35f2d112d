// SPDX-License-Identifier: Apache-2.0
// Parser and explanation of CSV rows. Which fields an op may leave empty stands in
// docs/trace-format.md.
#include "trace/csv_row.hpp"

#include <array>
#include <charconv>
#include <cstdint>
#include <system_error>
#include <vector>

namespace quarry {
namespace {

constexpr int kFieldCount = 5;
constexpr std::array<std::string_view, kFieldCount> kFieldNames = {"t_us", "op", "id", "bytes",
                                                                   "stream"};
constexpr int kOpField = 1;
// Numbers of fewer digits than this fit into 64 bits whatever their digits are.
constexpr std::size_t kMaxDigits = 20;

struct OpRule {
  TraceOp op;
  bool may_lack_id;
  bool may_lack_bytes;
  bool may_lack_stream;
};

bool find_op(char name, OpRule& rule) noexcept {
  switch (name) {
    case 'a':
      rule = {TraceOp::kAlloc, false, false, false};
      return true;
    case 'f':
      rule = {TraceOp::kFree, false, true, true};
      return true;
    case 'r':
      rule = {TraceOp::kRecordStream, false, true, false};
      return true;
    case 'S':
      rule = {TraceOp::kSegmentAlloc, true, false, false};
      return true;
    case 'T':
      rule = {TraceOp::kSegmentFree, true, false, false};
      return true;
    default:
      return false;
  }
}

bool parse_number(const char*& cursor, std::uint64_t& value) noexcept {
  const char* const start = cursor;
  std::uint64_t sum = 0;
  for (unsigned digit; (digit = static_cast<unsigned char>(*cursor) - unsigned{'0'}) <= 9;) {
    sum = sum * 10 + digit;
    ++cursor;
  }
  const auto digits = static_cast<std::size_t>(cursor - start);
  value = sum;
  if (digits - 1 < kMaxDigits - 1) return true;
  return digits == kMaxDigits && std::from_chars(start, cursor, value).ec == std::errc();
}

// A number, or nothing (then `absent`), in front of a field's end.
bool parse_field(const char*& cursor, bool may_lack, std::uint64_t absent,
                 std::uint64_t& value) noexcept {
  const bool is_empty = *cursor == ',' || *cursor == '\r' || *cursor == '\n';
  if (!is_empty) return parse_number(cursor, value);
  value = absent;
  return may_lack;
}

// As parse_field; the number that stands for "no stream" is refused.
bool parse_stream(const char*& cursor, bool may_lack, std::uint64_t& stream) noexcept {
  const char* const start = cursor;
  if (!parse_field(cursor, may_lack, kNoTraceStream, stream)) return false;
  return stream != kNoTraceStream || cursor == start;
}

bool skip(const char*& cursor, char expected) noexcept {
  if (*cursor != expected) return false;
  ++cursor;
  return true;
}

std::vector<std::string_view> split_fields(std::string_view line) {
  std::vector<std::string_view> fields;
  for (std::size_t start = 0;;) {
    const std::size_t comma = line.find(',', start);
    fields.push_back(line.substr(start, comma - start));
    if (comma == std::string_view::npos) return fields;
    start = comma + 1;
  }
}

// What is wrong with a number; empty if nothing is.
std::string explain_number(std::string_view name, std::string_view text, bool may_lack) {
  if (text.empty()) return may_lack ? std::string() : std::string(name) + " is empty";
  if (text.find_first_not_of("0123456789") != std::string_view::npos) {
    return std::string(name) + ": " + quote_input(text) + " is not a number";
  }
  if (text.size() > kMaxDigits) {
    return std::string(name) + ": " + quote_input(text) + " has more than 20 digits";
  }
  std::uint64_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec == std::errc()) return {};
  return std::string(name) + ": " + quote_input(text) + " is above 18446744073709551615";
}

}  // namespace

bool parse_csv_row(const char*& cursor, TraceEvent& event) noexcept {
  const char* p = cursor;
  if (!parse_number(p, event.time_us) || !skip(p, ',')) return false;
  OpRule rule;
  if (!find_op(*p, rule)) return false;
  ++p;
  if (!skip(p, ',')) return false;
  if (!parse_field(p, rule.may_lack_id, 0, event.id) || !skip(p, ',')) return false;
  if (!parse_field(p, rule.may_lack_bytes, 0, event.bytes) || !skip(p, ',')) return false;
  if (!parse_stream(p, rule.may_lack_stream, event.stream)) return false;
  if (*p == '\r') ++p;
  if (!skip(p, '\n')) return false;
  event.op = rule.op;
  cursor = p;
  return true;
}

std::string explain_csv_row(std::string_view line) {
  const std::vector<std::string_view> fields = split_fields(line);
  if (fields.size() != kFieldCount) {
    return quote_input(line) + " has " + std::to_string(fields.size()) +
           (fields.size() == 1 ? " field" : " fields") + " where t_us,op,id,bytes,stream are 5";
  }
  OpRule rule{};
  if (fields[kOpField].size() != 1 || !find_op(fields[kOpField][0], rule)) {
    return "unknown op " + quote_input(fields[kOpField]) + "; known are a, f, r, S and T";
  }
  const std::array<bool, kFieldCount> may_lack = {false, false, rule.may_lack_id,
                                                  rule.may_lack_bytes, rule.may_lack_stream};
  for (int i = 0; i < kFieldCount; ++i) {
    if (i == kOpField) continue;
    std::string cause = explain_number(kFieldNames[i], fields[i], may_lack[i]);
    if (!cause.empty()) return cause;
  }
  return "stream: " + quote_input(fields.back()) + " is no stream's number";
}

std::string quote_input(std::string_view text) {
  constexpr std::size_t kShown = 60;
  constexpr char kHexDigits[] = "0123456789abcdef";
  std::string quoted = "\"";
  for (const char c : text.substr(0, kShown)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      quoted += c;
    } else {
      quoted += "\\x";
      quoted += kHexDigits[byte >> 4];
      quoted += kHexDigits[byte & 15];
    }
  }
  return quoted + (text.size() > kShown ? "...\"" : "\"");
}

std::string explain_unknown_format(std::string_view start) {
  return "not a trace: expected a CSV with the header \"" + std::string(kCsvHeader) +
         "\" or Quarry's native format, either of them plain or gzip'd; found " +
         quote_input(start);
}

}  // namespace quarry
