// SPDX-License-Identifier: Apache-2.0
// The table of options: name, type, what is allowed, what it does, and the function that puts a
// value into a Config. The parser, `quarry --help-conf` and the test of docs/tuning.md all read
// this table. Rules between options are in config_parser.cpp.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "api/config_grammar.hpp"
#include "core/config.hpp"

namespace quarry {

// Why a value was refused, and where in the text.
struct ValueError {
  std::string reason;  // continues "value 'x' at offset n": "is not a whole number"
  ConfigWord word;     // the word at fault: of a list, the one inside it
};

// Puts the value into the Config, or leaves the Config as it is and says why not.
using ApplyOption = std::optional<ValueError> (*)(const ConfigItem& item, Config& config);

struct ConfigOption {
  std::string_view name;
  std::string_view type;     // "MB", "fraction", "True or False", ...
  std::string_view allowed;  // for messages: what may be written
  std::string_view default_text;
  std::string_view help;  // one sentence
  ApplyOption apply;
};

// In the order of docs/tuning.md. Static storage.
std::span<const ConfigOption> get_config_options();

// nullptr for a name that is no option of this version.
const ConfigOption* find_config_option(std::string_view name);

// Why a key of upstream's or of a later version is not accepted; empty for a key never heard of.
std::string_view explain_foreign_key(std::string_view name);

}  // namespace quarry
