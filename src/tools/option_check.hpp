// SPDX-License-Identifier: Apache-2.0
// Checks of option values that CLI11 has not. For the files that add options only.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace quarry::tools {

// Refuses a value that is given but empty, as by a shell variable that is not set: it would read
// as an option that was not given.
inline CLI::Validator refuse_empty() {
  return CLI::Validator(
      [](std::string& value) { return value.empty() ? std::string("its value is empty") : ""; },
      "");
}

}  // namespace quarry::tools
