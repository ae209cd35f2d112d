// SPDX-License-Identifier: Apache-2.0
// Which ranges of addresses are pinned, how often each. A value without rules: what that means for
// segments and extents is pinning.cpp. Guarded by the device's mutex.
#pragma once

#include <compare>
#include <cstddef>
#include <map>

#include "base/bytes.hpp"

namespace quarry {

struct PinnedRange {
  Address address = 0;
  Bytes bytes = 0;

  Address end() const noexcept { return address + bytes; }
  friend auto operator<=>(const PinnedRange&, const PinnedRange&) = default;
};

class Pins {
 public:
  // True for the first pin of exactly this range.
  bool add(PinnedRange range) { return ++counts_[range] == 1; }

  enum class Removed { kNone, kOneOfSeveral, kLast };
  Removed remove(PinnedRange range) {
    const auto found = counts_.find(range);
    if (found == counts_.end()) return Removed::kNone;
    if (--found->second > 0) return Removed::kOneOfSeveral;
    counts_.erase(found);
    return Removed::kLast;
  }

  // Calls visit(const PinnedRange&) for each, however often it is pinned, by address.
  template <class Visit>
  void for_each(Visit visit) const {
    for (const auto& [range, count] : counts_)
      visit(range);
  }

 private:
  std::map<PinnedRange, std::size_t> counts_;
};

}  // namespace quarry
