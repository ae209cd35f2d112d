// SPDX-License-Identifier: Apache-2.0
#include "base/bytes.hpp"

#include <fmt/format.h>

namespace quarry {

std::string format_bytes(Bytes n) {
  if (n <= 1_KiB) return fmt::format("{} bytes", n);
  const double value = static_cast<double>(n);
  if (n <= 1_MiB) return fmt::format("{:.2f} KiB", value / (1 << 10));
  if (n <= 1_GiB) return fmt::format("{:.2f} MiB", value / (1 << 20));
  return fmt::format("{:.2f} GiB", value / (1 << 30));
}

std::string format_address(Address address) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (; address != 0; address >>= 4)
    text.insert(text.begin(), kDigits[address & 15]);
  return "0x" + (text.empty() ? "0" : text);
}

}  // namespace quarry
