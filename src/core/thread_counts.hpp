// SPDX-License-Identifier: Apache-2.0
// What one thread did to a device's figures without the device's mutex, until the device takes it
// into its statistics. Keeps the highest value that each figure had in between, so that peaks are
// exact while one thread allocates; with several, a peak is at most the sum of what each of them
// reached since its last call under the mutex. Guarded by whoever owns it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/segment.hpp"

namespace quarry {

// One figure for small, large, and both together, since the last time it was taken.
struct FamilyTally {
  struct Part {
    // Not beside `now`: the compiler would raise both by one 16-byte access, which has to wait for
    // the 8-byte store of a fall before it.
    std::int64_t rises = 0;
    std::int64_t high = 0;  // of now
    std::int64_t now = 0;   // rises less falls
  };
  Part family[2];
  std::int64_t now_all = 0;
  std::int64_t high_all = 0;

  void rise(int of, std::int64_t amount) noexcept {
    Part& part = family[of];
    part.rises += amount;
    part.now += amount;
    now_all += amount;
    if (part.now > part.high) [[unlikely]]
      part.high = part.now;
    if (now_all > high_all) [[unlikely]]
      high_all = now_all;
  }
  void fall(int of, std::int64_t amount) noexcept {
    family[of].now -= amount;
    now_all -= amount;
  }
  // Up or down, as one change. Which of them cannot be foreseen, so nothing branches on it.
  void change(int of, std::int64_t amount) noexcept {
    Part& part = family[of];
    part.rises += std::max<std::int64_t>(amount, 0);
    part.now += amount;
    now_all += amount;
    part.high = std::max(part.high, part.now);
    high_all = std::max(high_all, now_all);
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
