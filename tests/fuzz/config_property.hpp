// SPDX-License-Identifier: Apache-2.0
// What holds for every configuration text, shared by the seeded random test and the fuzzer: both
// only make texts.
#pragma once

#include <string_view>

#include "api/config_parser.hpp"
#include "base/check.hpp"

namespace quarry::testing_support {

inline void check_rules(const Config& config) {
  QUARRY_CHECK(config.large_segment_bytes >= 11_MiB);
  QUARRY_CHECK(config.max_split_bytes >= config.large_segment_bytes);
  QUARRY_CHECK(config.garbage_collection_threshold >= 0.0);
  QUARRY_CHECK(config.garbage_collection_threshold < 1.0);
  QUARRY_CHECK(config.per_process_memory_fraction >= 0.0);
  QUARRY_CHECK(config.per_process_memory_fraction <= 1.0);
  for (const std::uint32_t divisions : config.roundup_power2_divisions) {
    QUARRY_CHECK(divisions == 0 || is_power_of_two(divisions));
  }
}

// Ends the process if the property does not hold. Whether the text was accepted in strict mode.
inline bool check_config_property(std::string_view text) {
  const Config base;
  const auto strict = parse_config(text, base, ParseMode::kStrict);
  const auto lenient = parse_config(text, base, ParseMode::kLenient);
  if (!strict.is_ok()) {
    QUARRY_CHECK(strict.code() == StatusCode::kInvalidArgument);
    QUARRY_CHECK(!strict.status().message().empty());
    if (lenient.is_ok()) check_rules(lenient.value().config);
    return false;
  }
  QUARRY_CHECK(lenient.is_ok());
  QUARRY_CHECK(lenient.value().config == strict.value().config);
  const Config& config = strict.value().config;
  check_rules(config);
  const auto again = parse_config(format_config(config), base, ParseMode::kStrict);
  QUARRY_CHECK(again.is_ok());
  QUARRY_CHECK(again.value().config == config);
  return true;
}

}  // namespace quarry::testing_support
