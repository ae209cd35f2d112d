// SPDX-License-Identifier: Apache-2.0
// The comparison of two sequences of segment sizes as they come.
#include "tools/segment_comparison.hpp"

#include "tools/number_text.hpp"

namespace quarry::tools {

void SegmentComparison::add_replayed(Bytes bytes) {
  if (!difference_.empty()) return;
  if (!has_skipped_unrecorded_ && bytes == kUnrecordedBytes) {
    has_skipped_unrecorded_ = true;
    return;
  }
  replayed_.push_back(bytes);
  compare();
}

void SegmentComparison::add_recorded(Bytes bytes) {
  has_recorded_ = true;
  if (!difference_.empty()) return;
  recorded_.push_back(bytes);
  compare();
}

void SegmentComparison::compare() {
  if (replayed_.empty() || recorded_.empty()) return;
  if (replayed_.front() != recorded_.front()) {
    difference_ = "segment " + std::to_string(equal_count_ + 1) + " has " +
                  format_count(replayed_.front()) + " bytes in the replay and " +
                  format_count(recorded_.front()) + " in the recording";
    return;
  }
  ++equal_count_;
  replayed_.pop_front();
  recorded_.pop_front();
}

void SegmentComparison::finish() {
  if (!has_recorded_ || !difference_.empty() || replayed_.empty() == recorded_.empty()) return;
  const bool is_replay_longer = !replayed_.empty();
  difference_ = "after " + std::to_string(equal_count_) + " equal segments the " +
                (is_replay_longer ? "replay" : "recording") + " has " +
                std::to_string(is_replay_longer ? replayed_.size() : recorded_.size()) + " more";
}

}  // namespace quarry::tools
