// SPDX-License-Identifier: Apache-2.0
// Thousands separators, and amounts with units.
#include "tools/number_text.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <system_error>

#include "trace/csv_row.hpp"

namespace quarry::tools {
namespace {

struct Unit {
  std::string_view name;
  Bytes bytes;
};

constexpr std::array<Unit, 14> kUnits = {{{"", 1},
                                          {"K", 1_KiB},
                                          {"M", 1_MiB},
                                          {"G", 1_GiB},
                                          {"T", 1024_GiB},
                                          {"B", 1},
                                          {"KiB", 1_KiB},
                                          {"MiB", 1_MiB},
                                          {"GiB", 1_GiB},
                                          {"TiB", 1024_GiB},
                                          {"kB", 1'000},
                                          {"MB", 1'000'000},
                                          {"GB", 1'000'000'000},
                                          {"TB", 1'000'000'000'000}}};

}  // namespace

std::string format_count(std::uint64_t n) {
  const std::string digits = std::to_string(n);
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i != 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

Result<Bytes> parse_byte_size(std::string_view text) {
  Bytes number = 0;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number);
  std::string_view unit_name(parsed.ptr, static_cast<std::size_t>(end - parsed.ptr));
  if (unit_name.starts_with(' ')) unit_name.remove_prefix(1);
  for (const Unit& unit : kUnits) {
    if (parsed.ec == std::errc::invalid_argument || unit.name != unit_name) continue;
    const bool is_too_large = parsed.ec != std::errc() || number > kUnlimited / unit.bytes;
    if (!is_too_large) return number * unit.bytes;
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("{} is too large: 64 bits do not hold it", quote_input(text)));
  }
  return Status(StatusCode::kInvalidArgument,
                fmt::format("{} is not an amount of memory; write 85899345920, 80G, 80GiB or 80GB "
                            "(units: K, M, G, T, B, KiB, MiB, GiB, TiB, kB, MB, GB, TB)",
                            quote_input(text)));
}

Result<std::uint64_t> parse_whole_number(std::string_view text, std::uint64_t least,
                                         std::uint64_t most) {
  std::uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number);
  const bool is_number = parsed.ec == std::errc() && parsed.ptr == end;
  if (is_number && number >= least && number <= most) return number;
  return Status(StatusCode::kInvalidArgument,
                fmt::format("value {} is not allowed; allowed: a whole number from {} to {}",
                            quote_input(text), least, most));
}

}  // namespace quarry::tools
