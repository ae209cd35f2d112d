// SPDX-License-Identifier: Apache-2.0
// Random numbers that are the same on every platform: one fixed generator (SplitMix64) and
// distributions in whole numbers only, so that neither a standard library nor rounding has a say.
// Not for secrets. Not thread-safe.
#pragma once

#include <cstdint>

namespace quarry::patterns {

class Rng {
 public:
  explicit Rng(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next();
  // Evenly from 0 to n - 1; n is from 1 to 2^32.
  std::uint64_t below(std::uint64_t n);
  // Evenly from `least` to `most`, both included, less than 2^32 apart.
  std::uint64_t between(std::uint64_t least, std::uint64_t most);
  // Rounded down; `mean` below 2^32.
  std::uint64_t exponential(std::uint64_t mean);
  bool chance(std::uint64_t percent) { return below(100) < percent; }
  // A generator of its own, whose numbers do not depend on how many this one gives later.
  Rng fork() { return Rng(next()); }

 private:
  std::uint64_t state_;
};

}  // namespace quarry::patterns
