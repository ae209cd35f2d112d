// SPDX-License-Identifier: Apache-2.0
// What one thread did to a device's figures without the device's mutex, until the device takes it
// into its statistics. Keeps the highest value that each figure had in between, so that peaks are
// exact while one thread allocates; with several, a peak is at most the sum of what each of them
// reached since its last call under the mutex, and what a thread frees for others is left out of
// account for 16 MiB at most. Guarded by whoever owns it.
//
// A request that a magazine serves has to do with three figures, of its family and of both
// together, each with its highest value. Most of that need not be looked at: each family has a
// *share* of the highest values, at most its own, and both families' shares together are at most
// the common one. While a family holds no more than its share, no highest value can rise.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/segment.hpp"

namespace quarry {

struct ThreadCounts {
  enum Held : std::size_t { kBlocks, kBytes, kRequested };  // what users hold
  static constexpr std::array kHeld = {kBlocks, kBytes, kRequested};

  // One figure of one family. `rises` and `ceiling` are beside each other so that the compiler
  // does not change those of two figures by one 16-byte access, which would have to wait for
  // 8-byte stores before it.
  struct Figure {
    std::int64_t rises = 0;
    std::int64_t ceiling = 0;  // falls plus share: what `rises` may reach and raise no high
    std::int64_t share = 0;    // what the family may hold; see above
    std::int64_t high = 0;     // the most that it held

    std::int64_t get_falls() const noexcept { return ceiling - share; }
    std::int64_t get_now() const noexcept { return rises - get_falls(); }
    void set_share(std::int64_t to) noexcept {
      ceiling += to - share;
      share = to;
    }
  };
  using Family = std::array<Figure, 3>;  // by Held
  // Free parts of split segments, of one family and of both.
  struct SplitFigure {
    std::int64_t rises = 0;
    std::int64_t now = 0;  // rises less falls
    std::int64_t high = 0;
  };
  struct Splits {
    SplitFigure blocks;
    SplitFigure bytes;
  };

  Family family[2];                           // by StatFamily
  std::array<std::int64_t, 3> high_of_all{};  // by Held; of both families together
  Splits splits[2];                           // by StatFamily
  Splits all_splits;
  bool has_splits = false;

  bool is_empty() const noexcept {
    const auto is_still = [](const Figure& blocks) {
      return blocks.rises == 0 && blocks.get_falls() == 0;
    };
    return is_still(family[0][kBlocks]) && is_still(family[1][kBlocks]) && !has_splits;
  }

  // False, with nothing counted, if a highest value might rise.
  static bool try_take(Family& own, const Block& block, Bytes requested) noexcept {
    const std::int64_t blocks = own[kBlocks].rises + 1;
    const std::int64_t bytes = own[kBytes].rises + static_cast<std::int64_t>(block.size);
    const std::int64_t asked = own[kRequested].rises + static_cast<std::int64_t>(requested);
    if (blocks > own[kBlocks].ceiling || bytes > own[kBytes].ceiling ||
        asked > own[kRequested].ceiling) [[unlikely]] {
      return false;
    }
    own[kBlocks].rises = blocks;
    own[kBytes].rises = bytes;
    own[kRequested].rises = asked;
    return true;
  }
  void take(const Block& block) noexcept {
    const StatFamily of = block.segment->family;
    Family& own = family[static_cast<int>(of)];
    if (try_take(own, block, block.requested_bytes)) return;
    own[kBlocks].rises += 1;
    own[kBytes].rises += static_cast<std::int64_t>(block.size);
    own[kRequested].rises += static_cast<std::int64_t>(block.requested_bytes);
    raise(of);
  }
  static void give_back(Family& own, const Block& block) noexcept {
    const auto bytes = static_cast<std::int64_t>(block.size);
    const auto requested = static_cast<std::int64_t>(block.requested_bytes);
    own[kBlocks].ceiling += 1;
    own[kBytes].ceiling += bytes;
    own[kRequested].ceiling += requested;
  }
  void give_back(const Block& block) noexcept {
    give_back(family[static_cast<int>(block.segment->family)], block);
  }
  // Free parts of split segments that came or went, as one change.
  void change_inactive_splits(StatFamily of, std::int64_t count, std::int64_t bytes) noexcept {
    Splits& own = splits[static_cast<int>(of)];
    has_splits = true;
    change(own.blocks, all_splits.blocks, count);
    change(own.bytes, all_splits.bytes, bytes);
  }

 private:
  // The family holds more than its share: the highest values follow what is held, and the family
  // gets all of them that the other does not need at the moment.
  void raise(StatFamily of) noexcept {
    for (const Held held : kHeld) {
      Figure& own = family[static_cast<int>(of)][held];
      Figure& other = family[1 - static_cast<int>(of)][held];
      const std::int64_t now = own.get_now();
      const std::int64_t of_other = other.get_now();
      const std::int64_t all = std::max(high_of_all[held], now + of_other);
      high_of_all[held] = all;
      own.high = std::max(own.high, now);
      own.set_share(std::min(own.high, all - of_other));
      other.set_share(std::min(other.high, all - own.share));
    }
  }
  // Up or down. Which of them cannot be foreseen, so nothing branches on it.
  static void change(SplitFigure& figure, SplitFigure& sum, std::int64_t amount) noexcept {
    for (SplitFigure* const each : {&figure, &sum}) {
      each->rises += std::max<std::int64_t>(amount, 0);
      each->now += amount;
      each->high = std::max(each->high, each->now);
    }
  }
};

}  // namespace quarry
