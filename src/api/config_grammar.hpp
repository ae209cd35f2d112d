// SPDX-License-Identifier: Apache-2.0
// The grammar of a configuration text: `key:value,key:[a:b,c:d]`. White space is ignored wherever
// it stands, empty items (stray commas) too. Knows no option: what keys and values mean is
// config_options.hpp.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"

namespace quarry {

// One word of the text, without its white space, and where it begins (bytes from the start).
struct ConfigWord {
  std::string text;
  std::size_t offset = 0;
};

struct ConfigPair {
  ConfigWord key;
  ConfigWord value;
};

// `key:value`, or `key:[pairs]`. For a list, value.text is empty and value.offset that of the '['.
struct ConfigItem {
  ConfigWord key;
  ConfigWord value;
  bool is_list = false;
  std::vector<ConfigPair> pairs;
};

// kInvalidArgument names what was expected and the offset. Linear in the length of the text.
Result<std::vector<ConfigItem>> parse_items(std::string_view text);

// The word in quotes as it may stand in a message: control characters escaped, long words cut.
std::string quote(std::string_view word);

}  // namespace quarry
