// SPDX-License-Identifier: Apache-2.0
// Where the generator's decisions come from: a seed, or the bytes of a fuzzer. Deterministic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>

namespace quarry::model {

class Entropy {
 public:
  explicit Entropy(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15ull + 1) {}
  explicit Entropy(std::span<const std::uint8_t> bytes) : bytes_(bytes), has_bytes_(true) {}

  // Uniform in [0, bound) for a seed; bytes are used up from the front, then everything is 0.
  std::uint64_t below(std::uint64_t bound) {
    if (bound <= 1) return 0;
    return (has_bytes_ ? take_bytes(bound) : mix()) % bound;
  }
  // True `percent` times of 100.
  bool chance(unsigned percent) { return below(100) < percent; }
  template <class T>
  T pick(std::initializer_list<T> choices) {
    return choices.begin()[below(choices.size())];
  }
  // Whether the bytes are used up. Never for a seed.
  bool is_exhausted() const { return has_bytes_ && bytes_.empty(); }

 private:
  // splitmix64
  std::uint64_t mix() {
    std::uint64_t x = state_ += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
  }
  std::uint64_t take_bytes(std::uint64_t bound) {
    std::uint64_t value = 0;
    for (std::uint64_t reach = bound - 1; reach > 0 && !bytes_.empty(); reach >>= 8) {
      value = value << 8 | bytes_.front();
      bytes_ = bytes_.subspan(1);
    }
    return value;
  }

  std::uint64_t state_ = 0;
  std::span<const std::uint8_t> bytes_;
  bool has_bytes_ = false;
};

}  // namespace quarry::model
