// SPDX-License-Identifier: Apache-2.0
// Numbers as people write and read them on a command line. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/bytes.hpp"
#include "base/status.hpp"

namespace quarry::tools {

// "21,606,957,056".
std::string format_count(std::uint64_t n);

// "1234", "80GiB" and "80G" (2^30), "80GB" (10^9); likewise for K, M and T, after an optional
// space. Whole numbers only. An error names the text and what is allowed.
Result<Bytes> parse_byte_size(std::string_view text);

// A whole number from `least` to `most`. An error names the text and what is allowed.
Result<std::uint64_t> parse_whole_number(std::string_view text, std::uint64_t least,
                                         std::uint64_t most);

}  // namespace quarry::tools
