// SPDX-License-Identifier: Apache-2.0
// What one thread did to a device's figures without the device's mutex, until the device takes it
// into its statistics. Keeps the highest value that each figure had in between, so that peaks are
// exact while one thread allocates; with several, a peak is at most the sum of what each of them
// reached since its last call under the mutex. Guarded by whoever owns it.
#pragma once

#include <cstdint>

#include "core/segment.hpp"

namespace quarry {

// One figure, since the last time it was taken.
struct Tally {
  std::int64_t rises = 0;
  std::int64_t falls = 0;
  std::int64_t high = 0;  // of rises - falls

  std::int64_t now() const noexcept { return rises - falls; }
};

// The same for small, large, and both together.
struct FamilyTally {
  Tally family[2];
  std::int64_t high_all = 0;

  void rise(int of, std::int64_t amount) noexcept {
    Tally& tally = family[of];
    tally.rises += amount;
    const std::int64_t now = tally.now();
    if (now > tally.high) [[unlikely]]
      tally.high = now;
    if (now + family[1 - of].now() > high_all) [[unlikely]]
      high_all = now + family[1 - of].now();
  }
  void fall(int of, std::int64_t amount) noexcept { family[of].falls += amount; }
  // Up or down, as one change.
  void change(int of, std::int64_t amount) noexcept {
    amount >= 0 ? rise(of, amount) : fall(of, -amount);
  }
};

struct ThreadCounts {
  FamilyTally blocks;     // held by users
  FamilyTally bytes;      // of them
  FamilyTally requested;  // bytes that were asked for
  FamilyTally inactive_splits;
  FamilyTally inactive_split_bytes;
  bool is_empty = true;

  void take(const Block& block) noexcept {
    const int family = static_cast<int>(block.segment->family);
    is_empty = false;
    blocks.rise(family, 1);
    bytes.rise(family, static_cast<std::int64_t>(block.size));
    requested.rise(family, static_cast<std::int64_t>(block.requested_bytes));
  }
  void give_back(const Block& block) noexcept {
    const int family = static_cast<int>(block.segment->family);
    is_empty = false;
    blocks.fall(family, 1);
    bytes.fall(family, static_cast<std::int64_t>(block.size));
    requested.fall(family, static_cast<std::int64_t>(block.requested_bytes));
  }
};

}  // namespace quarry
