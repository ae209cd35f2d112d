// SPDX-License-Identifier: Apache-2.0
// Compares the segments that a replay asks the driver for with those that the recording allocator
// obtained, as two sequences of sizes. Knows no allocator. Memory grows only with how far one
// sequence is ahead of the other.
#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "base/bytes.hpp"

namespace quarry::tools {

class SegmentComparison {
 public:
  // Recordings began after PyTorch had obtained one segment of this size, which their rows lack.
  // The replay's first of this size is taken for it.
  static constexpr Bytes kUnrecordedBytes = 2_MiB;

  void add_replayed(Bytes bytes);
  void add_recorded(Bytes bytes);
  // No more will come.
  void finish();

  // Segments found equal from the start, before any difference.
  std::uint64_t equal_count() const noexcept { return equal_count_; }
  // False: there is nothing to compare with.
  bool has_recorded() const noexcept { return has_recorded_; }
  // Empty if the sequences are equal (so far), else one sentence on where they part.
  const std::string& difference() const noexcept { return difference_; }

 private:
  void compare();

  std::deque<Bytes> replayed_;  // not yet compared, as recorded_: one of the two is empty
  std::deque<Bytes> recorded_;
  std::uint64_t equal_count_ = 0;
  std::string difference_;
  bool has_skipped_unrecorded_ = false;
  bool has_recorded_ = false;
};

}  // namespace quarry::tools
