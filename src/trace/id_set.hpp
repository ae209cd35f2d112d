// SPDX-License-Identifier: Apache-2.0
// A set of numbers that mostly come in sequence, kept as intervals: ids given out one after the
// other cost no memory, however many. Grows only, by one node for each gap. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace quarry {

class IdSet {
 public:
  IdSet() = default;
  IdSet(const IdSet&) = delete;  // latest_ points into intervals_
  IdSet& operator=(const IdSet&) = delete;

  // Constant time for the successor of the latest insertion, otherwise a search.
  void insert(std::uint64_t id) {
    if (id != 0 && latest_last_ != nullptr && id - 1 == *latest_last_ && id < latest_limit_) {
      *latest_last_ = id;
      return;
    }
    insert_elsewhere(id);
  }
  bool contains(std::uint64_t id) const;
  std::size_t interval_count() const noexcept { return intervals_.size(); }

 private:
  void insert_elsewhere(std::uint64_t id);

  std::map<std::uint64_t, std::uint64_t> intervals_;  // first -> last, disjoint, never adjacent
  // The interval of the latest insertion may grow in place while it stays below latest_limit_.
  std::uint64_t* latest_last_ = nullptr;
  std::uint64_t latest_limit_ = 0;
};

}  // namespace quarry
