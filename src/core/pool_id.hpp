// SPDX-License-Identifier: Apache-2.0
// The name of a MemPool of one device: two numbers, as PyTorch's MempoolId_t, so that its names
// can be used as they are. (0, 0) is the default pool.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

namespace quarry {

struct PoolId {
  std::uint64_t first = 0;
  std::uint64_t second = 0;

  bool is_default() const noexcept { return first == 0 && second == 0; }
  friend auto operator<=>(const PoolId&, const PoolId&) = default;
};

// Names of Quarry's own making. PyTorch's have a 0 in one of the two places.
inline constexpr std::uint64_t kUserPools = 1ull << 63;   // (this, a number)
inline constexpr std::uint64_t kGraphPools = 1ull << 62;  // (this, the capture's number)

inline std::string to_text(PoolId id) {
  if (id.first == kUserPools) return std::to_string(id.second);
  return "(" + std::to_string(id.first) + ", " + std::to_string(id.second) + ")";
}

}  // namespace quarry
