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

struct ThreadCounts {
  // One figure of one family. Its fields are in this order because the compiler would raise two
  // neighbours by one 16-byte access, which has to wait for the 8-byte store of a fall before it.
  struct Figure {
    std::int64_t rises = 0;
    std::int64_t high = 0;  // of now
    std::int64_t now = 0;   // rises less falls
  };
  // The same figure of both families together.
  struct Sum {
    std::int64_t now = 0;
    std::int64_t high = 0;
  };
  template <class Value>
  struct Figures {
    Value blocks;     // held by users
    Value bytes;      // of them
    Value requested;  // bytes that were asked for
    Value inactive_splits;
    Value inactive_split_bytes;
  };
  Figures<Figure> family[2];  // by StatFamily
  Figures<Sum> all;
  bool is_empty = true;

  void take(const Block& block) noexcept {
    Figures<Figure>& own = family[static_cast<int>(block.segment->family)];
    is_empty = false;
    rise(own.blocks, all.blocks, 1);
    rise(own.bytes, all.bytes, static_cast<std::int64_t>(block.size));
    rise(own.requested, all.requested, static_cast<std::int64_t>(block.requested_bytes));
  }
  void give_back(const Block& block) noexcept {
    Figures<Figure>& own = family[static_cast<int>(block.segment->family)];
    is_empty = false;
    fall(own.blocks, all.blocks, 1);
    fall(own.bytes, all.bytes, static_cast<std::int64_t>(block.size));
    fall(own.requested, all.requested, static_cast<std::int64_t>(block.requested_bytes));
  }
  // Free parts of split segments that came or went, as one change.
  void change_inactive_splits(StatFamily of, std::int64_t count, std::int64_t bytes) noexcept {
    Figures<Figure>& own = family[static_cast<int>(of)];
    is_empty = false;
    change(own.inactive_splits, all.inactive_splits, count);
    change(own.inactive_split_bytes, all.inactive_split_bytes, bytes);
  }

 private:
  static void rise(Figure& figure, Sum& sum, std::int64_t amount) noexcept {
    figure.rises += amount;
    figure.now += amount;
    sum.now += amount;
    if (figure.now > figure.high) [[unlikely]]
      figure.high = figure.now;
    if (sum.now > sum.high) [[unlikely]]
      sum.high = sum.now;
  }
  static void fall(Figure& figure, Sum& sum, std::int64_t amount) noexcept {
    figure.now -= amount;
    sum.now -= amount;
  }
  // Up or down. Which of them cannot be foreseen, so nothing branches on it.
  static void change(Figure& figure, Sum& sum, std::int64_t amount) noexcept {
    figure.rises += std::max<std::int64_t>(amount, 0);
    figure.now += amount;
    sum.now += amount;
    figure.high = std::max(figure.high, figure.now);
    sum.high = std::max(sum.high, sum.now);
  }
};

}  // namespace quarry
