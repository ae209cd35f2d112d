// SPDX-License-Identifier: Apache-2.0
// Thousands separators, and amounts with units.
#include "tools/number_text.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <system_error>

namespace quarry::tools {
namespace {

struct Unit {
  std::string_view name;
  Bytes bytes;
};

constexpr std::array<Unit, 10> kUnits = {{{"", 1},
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
    if (parsed.ec != std::errc() || unit.name != unit_name) continue;
    if (number <= kUnlimited / unit.bytes) return number * unit.bytes;
  }
  return Status(StatusCode::kInvalidArgument,
                fmt::format("\"{}\" is not an amount of memory; write 85899345920, 80GiB or 80GB "
                            "(units: B, KiB, MiB, GiB, TiB, kB, MB, GB, TB)",
                            text));
}

}  // namespace quarry::tools
