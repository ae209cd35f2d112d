// SPDX-License-Identifier: Apache-2.0
// The set of ids as disjoint intervals.
#include "trace/id_set.hpp"

#include <iterator>
#include <limits>

namespace quarry {

bool IdSet::contains(std::uint64_t id) const {
  const auto after = intervals_.upper_bound(id);
  return after != intervals_.begin() && std::prev(after)->second >= id;
}

void IdSet::insert_elsewhere(std::uint64_t id) {
  auto after = intervals_.upper_bound(id);
  auto place = intervals_.end();
  if (after != intervals_.begin()) {
    const auto before = std::prev(after);
    if (before->second >= id) return;
    if (before->second == id - 1) place = before;
  }
  if (place == intervals_.end()) place = intervals_.emplace_hint(after, id, id);
  place->second = id;
  if (after != intervals_.end() && after->first - 1 == id) {
    place->second = after->second;
    after = intervals_.erase(after);
  }
  latest_last_ = &place->second;
  // One less than the next interval's first: reaching it would make the two adjacent.
  latest_limit_ =
      after == intervals_.end() ? std::numeric_limits<std::uint64_t>::max() : after->first - 1;
}

}  // namespace quarry
