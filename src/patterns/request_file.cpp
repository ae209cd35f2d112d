// SPDX-License-Identifier: Apache-2.0
#include "patterns/request_file.hpp"

#include <fmt/format.h>

#include <array>

#include "patterns/knob.hpp"
#include "trace/csv_row.hpp"

namespace quarry::patterns {
namespace {

Status fail(std::string text) {
  return Status(StatusCode::kInvalidArgument, std::move(text));
}

std::string_view take_line(std::string_view& text) {
  const std::size_t end = text.find('\n');
  std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

struct Field {
  std::string_view name;
  std::uint64_t least;
  std::uint64_t most;
};
constexpr std::array<Field, 3> kFields = {{{"arrival_us", 0, Request::kMostArrivalUs},
                                           {"prompt_tokens", 1, Request::kMostTokens},
                                           {"output_tokens", 1, Request::kMostTokens}}};

Result<Request> parse_row(std::string_view line) {
  std::array<std::uint64_t, kFields.size()> numbers{};
  std::string_view rest = line;
  for (std::size_t i = 0; i < kFields.size(); ++i) {
    const std::size_t comma = rest.find(',');
    if ((comma == std::string_view::npos) != (i + 1 == kFields.size())) {
      return fail(
          fmt::format("{} does not have the 3 fields {}", quote_input(line), kRequestHeader));
    }
    const Field& field = kFields[i];
    const Result<std::uint64_t> number =
        parse_number(rest.substr(0, comma), field.least, field.most);
    if (!number.is_ok()) return fail(fmt::format("{}: {}", field.name, number.status().message()));
    numbers[i] = number.value();
    rest.remove_prefix(comma == std::string_view::npos ? rest.size() : comma + 1);
  }
  return Request{numbers[0], numbers[1], numbers[2]};
}

}  // namespace

Result<std::vector<Request>> parse_requests(std::string_view text, const std::string& name) {
  const std::string_view header = take_line(text);
  if (header != kRequestHeader) {
    return fail(fmt::format("{}: line 1: expected the header \"{}\", found {}", name,
                            kRequestHeader, quote_input(header)));
  }
  std::vector<Request> requests;
  std::size_t blank_line = 0;
  for (std::size_t line = 2; !text.empty(); ++line) {
    const std::string_view row = take_line(text);
    if (row.empty()) {
      if (blank_line == 0) blank_line = line;
      continue;
    }
    if (blank_line != 0) {
      return fail(
          fmt::format("{}: line {}: a row after the blank line {}", name, line, blank_line));
    }
    const Result<Request> request = parse_row(row);
    if (!request.is_ok()) {
      return fail(fmt::format("{}: line {}: {}", name, line, request.status().message()));
    }
    const std::uint64_t before = requests.empty() ? 0 : requests.back().arrival_us;
    if (request.value().arrival_us < before) {
      return fail(
          fmt::format("{}: line {}: arrival_us: value \"{}\" is not allowed; allowed: at "
                      "least that of the line before, {}",
                      name, line, request.value().arrival_us, before));
    }
    requests.push_back(request.value());
  }
  if (requests.empty()) return fail(fmt::format("{}: line 2: no request in the file", name));
  return requests;
}

}  // namespace quarry::patterns
