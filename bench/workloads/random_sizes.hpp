// SPDX-License-Identifier: Apache-2.0
// Random choices for workloads that cost next to nothing inside a measured loop: a small
// generator, and sizes. The same in every process.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>

namespace quarry::bench {

// xorshift64*: a nanosecond a number.
class FastRandom {
 public:
  explicit FastRandom(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15 | 1) {}

  // Below `bound`, which is at most 2^32.
  std::size_t below(std::size_t bound) {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return static_cast<std::size_t>(((state_ * 0x2545f4914f6cdd1d) >> 32) * bound >> 32);
  }

 private:
  std::uint64_t state_;
};

enum class SizeLaw { kUniform, kLogUniform };  // from 1 byte, from 512 bytes

class RandomSizes {
 public:
  RandomSizes(SizeLaw law, std::size_t max_bytes) : law_(law), max_bytes_(max_bytes) {
    if (law == SizeLaw::kUniform) return;
    std::mt19937_64 random(1);
    for (std::uint32_t& size : sizes_) {
      const double part = static_cast<double>(random() >> 11) * 0x1p-53;
      const double bytes = 512.0 * std::pow(static_cast<double>(max_bytes) / 512.0, part);
      size = static_cast<std::uint32_t>(bytes);
    }
  }

  std::size_t draw(FastRandom& random) const {
    return law_ == SizeLaw::kUniform ? 1 + random.below(max_bytes_)
                                     : sizes_[random.below(sizes_.size())];
  }

 private:
  SizeLaw law_;
  std::size_t max_bytes_;
  std::array<std::uint32_t, 4096> sizes_{};  // a sample of the logarithmic law, since pow is slow
};

}  // namespace quarry::bench
