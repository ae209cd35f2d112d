// SPDX-License-Identifier: Apache-2.0
// Values of a configuration text as text again, to compare and to show them. Pure functions.
#pragma once

#include <string>

#include "api/config_grammar.hpp"

namespace quarry::tools {

// "256", or "[256:1,>:4]": without white space, as parse_items takes it.
std::string format_value(const ConfigItem& item);

}  // namespace quarry::tools
