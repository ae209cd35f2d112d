// SPDX-License-Identifier: Apache-2.0
// Writing to standard output so that nothing is lost in silence: a full disk and a closed
// descriptor are failures. Messages for people go to standard error and are not this file's.
#pragma once

#include <string_view>

#include "base/status.hpp"

namespace quarry::tools {

// Gives each closed standard descriptor to a file that refuses its use. Otherwise the first file
// that is opened would take its number, and get what was meant for standard output. Once, first.
void reserve_standard_streams();

// Writes all of the text and flushes. A failure names the cause.
Status write_standard_output(std::string_view text);

}  // namespace quarry::tools
