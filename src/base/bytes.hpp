// SPDX-License-Identifier: Apache-2.0
// Amounts of memory and addresses on a device: types, literals, alignment, and how sizes are
// written for people. Pure values; nothing here allocates device memory.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

namespace quarry {

using Bytes = std::uint64_t;
// An address in a device's address space. Never dereferenced by this library.
using Address = std::uint64_t;

inline constexpr Bytes kUnlimited = std::numeric_limits<Bytes>::max();

inline namespace literals {
constexpr Bytes operator""_KiB(unsigned long long n) {
  return n << 10;
}
constexpr Bytes operator""_MiB(unsigned long long n) {
  return n << 20;
}
constexpr Bytes operator""_GiB(unsigned long long n) {
  return n << 30;
}
}  // namespace literals

constexpr bool is_power_of_two(std::uint64_t n) {
  return n != 0 && (n & (n - 1)) == 0;
}

// `alignment` is a power of two. The caller makes sure that the result does not wrap.
constexpr std::uint64_t round_up(std::uint64_t n, std::uint64_t alignment) {
  return (n + alignment - 1) & ~(alignment - 1);
}
constexpr std::uint64_t round_down(std::uint64_t n, std::uint64_t alignment) {
  return n & ~(alignment - 1);
}
constexpr bool is_aligned(std::uint64_t n, std::uint64_t alignment) {
  return (n & (alignment - 1)) == 0;
}

// "512 bytes", "1.50 KiB", "20.00 MiB", "139.80 GiB": PyTorch's layout, so that log scanners
// match.
std::string format_bytes(Bytes n);
std::string format_address(Address address);  // "0x7f0000000200"

}  // namespace quarry
