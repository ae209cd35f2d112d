// SPDX-License-Identifier: Apache-2.0
// Requests to a server: what users send, and when. Read from CSV, strictly: the first line that is
// not exactly of the format is an error that names it. Pure functions of text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"

namespace quarry::patterns {

inline constexpr std::string_view kRequestHeader = "arrival_us,prompt_tokens,output_tokens";

struct Request {
  std::uint64_t arrival_us = 0;     // since the start; not before that of the request before
  std::uint64_t prompt_tokens = 0;  // 1 to kMostTokens
  std::uint64_t output_tokens = 0;  // likewise

  static constexpr std::uint64_t kMostArrivalUs = 1'000'000'000'000;  // 11 days
  static constexpr std::uint64_t kMostTokens = 1u << 20;

  friend bool operator==(const Request&, const Request&) = default;
};

// The header, then one request a line; lines may end in "\r\n", and blank ones may follow the
// last. `name` is what errors call the file.
Result<std::vector<Request>> parse_requests(std::string_view text, const std::string& name);

}  // namespace quarry::patterns
