// SPDX-License-Identifier: Apache-2.0
// From a configuration text (upstream's grammar, see config_grammar.hpp) to a Config and back. A
// parse is all or nothing: on any error the caller keeps the settings it had.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"
#include "core/config.hpp"

namespace quarry {

enum class ParseMode {
  kStrict,   // an unknown key is an error
  kLenient,  // unknown keys are ignored with one warning; a bad value of a known key is an error
};

// kLenient if QUARRY_CONF_LENIENT is 1 in the environment, otherwise kStrict.
ParseMode get_parse_mode_from_environment();

struct ParsedConfig {
  Config config;
  std::vector<std::string> warnings;  // for people; at most a few, whatever the text
  // The text names per_process_memory_fraction: it then holds for every device, also where the
  // Config had that value and a device was given another since.
  bool names_memory_fraction = false;
};

// `base` with the options that `text` names changed. Of a key given twice the last value holds,
// with a warning. An error is kInvalidArgument and names the key, the value, its offset in bytes
// and what is allowed. An empty text is fine. Linear in the length of the text.
Result<ParsedConfig> parse_config(std::string_view text, const Config& base, ParseMode mode);

// The whole of a Config in the same grammar: parse_config gives an equal one, for every Config
// that came from it (amounts are written in whole MB). Every option that decides something is
// named, with the only value that it has too; not the aliases and the names of upstream's that
// decide nothing here (docs/tuning.md lists them).
std::string format_config(const Config& config);

// The table of options for `quarry --help-conf`: a few lines an option.
std::string format_config_help();

}  // namespace quarry
