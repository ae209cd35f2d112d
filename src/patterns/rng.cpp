// SPDX-License-Identifier: Apache-2.0
#include "patterns/rng.hpp"

#include "base/check.hpp"

namespace quarry::patterns {

std::uint64_t Rng::next() {
  state_ += 0x9E3779B97F4A7C15u;
  std::uint64_t mixed = state_;
  mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9u;
  mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBu;
  return mixed ^ (mixed >> 31);
}

std::uint64_t Rng::below(std::uint64_t n) {
  QUARRY_CHECK(n >= 1 && n <= std::uint64_t{1} << 32);
  return ((next() >> 32) * n) >> 32;
}

std::uint64_t Rng::between(std::uint64_t least, std::uint64_t most) {
  QUARRY_CHECK(least <= most);
  return least + below(most - least + 1);
}

// Von Neumann's way, which needs comparisons only. A run of falling numbers that starts at u has
// odd length with probability exp(-u); every run that is refused moves the result up by a mean.
std::uint64_t Rng::exponential(std::uint64_t mean) {
  QUARRY_CHECK(mean < std::uint64_t{1} << 32);
  for (std::uint64_t whole = 0;; ++whole) {
    const std::uint64_t first = next() >> 32;
    std::uint64_t length = 1;
    std::uint64_t last = first;
    for (std::uint64_t drawn = next() >> 32; drawn < last; drawn = next() >> 32) {
      last = drawn;
      ++length;
    }
    if (length % 2 == 1) return mean * whole + ((mean * first) >> 32);
  }
}

}  // namespace quarry::patterns
