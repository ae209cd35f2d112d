// SPDX-License-Identifier: Apache-2.0
// libFuzzer target of the configuration parser; the property is config_property.hpp.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tests/fuzz/config_property.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  quarry::testing_support::check_config_property(
      std::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
