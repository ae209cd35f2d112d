// SPDX-License-Identifier: Apache-2.0
#include "tools/config_text.hpp"

namespace quarry::tools {

std::string format_value(const ConfigItem& item) {
  if (!item.is_list) return item.value.text;
  std::string text;
  for (const ConfigPair& pair : item.pairs) {
    text += (text.empty() ? "[" : ",") + pair.key.text + ":" + pair.value.text;
  }
  return text.empty() ? "[]" : text + "]";
}

}  // namespace quarry::tools
