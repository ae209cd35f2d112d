// SPDX-License-Identifier: Apache-2.0
// The library's log: slow paths only, outside every lock, one line of key=value pairs to stderr.
// QUARRY_LOG_LEVEL = debug | info | warning (default) | error | off, read at the first line; one
// warning for any other value. Thread-safe.
#pragma once

#include <string_view>

namespace quarry {

void log_debug(std::string_view line);
void log_info(std::string_view line);
void log_warning(std::string_view line);
void log_error(std::string_view line);

}  // namespace quarry
