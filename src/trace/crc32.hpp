// SPDX-License-Identifier: Apache-2.0
// CRC-32 as gzip, PNG and Ethernet use it (reflected polynomial 0xEDB88320): any tool can check
// the sums in a native trace. Finds damage, not malice. About 1 byte in 2.5 ns.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace quarry {

namespace internal {

constexpr std::array<std::uint32_t, 256> make_crc32_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit)
      crc = (crc >> 1) ^ ((crc & 1) ? 0xEDB88320u : 0u);
    table[byte] = crc;
  }
  return table;
}

inline constexpr std::array<std::uint32_t, 256> kCrc32Table = make_crc32_table();

}  // namespace internal

// The sum of `bytes`, or of what `before` is the sum of followed by `bytes`.
constexpr std::uint32_t calculate_crc32(std::span<const char> bytes, std::uint32_t before = 0) {
  std::uint32_t crc = ~before;
  for (const char c : bytes) {
    crc = (crc >> 8) ^ internal::kCrc32Table[(crc ^ static_cast<unsigned char>(c)) & 0xff];
  }
  return ~crc;
}

}  // namespace quarry
