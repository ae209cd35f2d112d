// SPDX-License-Identifier: Apache-2.0
// Comparison of segment sequences: whatever way the two are interleaved, and the 2 MiB segment
// that recordings lack.
#include "tools/segment_comparison.hpp"

#include <gtest/gtest.h>

namespace quarry::tools {
namespace {

TEST(SegmentComparison, IsEqualForEqualSequencesHoweverFarOneIsAhead) {
  SegmentComparison ahead;
  for (Bytes bytes = 20_MiB; bytes < 40_MiB; bytes += 2_MiB)
    ahead.add_replayed(bytes);
  for (Bytes bytes = 20_MiB; bytes < 40_MiB; bytes += 2_MiB)
    ahead.add_recorded(bytes);
  ahead.finish();
  EXPECT_EQ(ahead.difference(), "");
  EXPECT_EQ(ahead.equal_count(), 10u);
}

TEST(SegmentComparison, LeavesOutTheFirstSmallSegmentOfTheReplayOnly) {
  SegmentComparison segments;
  segments.add_recorded(20_MiB);
  segments.add_replayed(20_MiB);
  segments.add_replayed(2_MiB);
  segments.add_replayed(2_MiB);
  segments.add_recorded(2_MiB);
  segments.finish();
  EXPECT_EQ(segments.difference(), "");
  EXPECT_EQ(segments.equal_count(), 2u);
}

TEST(SegmentComparison, SaysWhereTheSequencesPart) {
  SegmentComparison segments;
  segments.add_recorded(20_MiB);
  segments.add_replayed(20_MiB);
  segments.add_recorded(20_MiB);
  segments.add_replayed(22_MiB);
  segments.add_recorded(4_MiB);
  segments.finish();
  EXPECT_EQ(segments.difference(),
            "segment 2 has 23,068,672 bytes in the replay and 20,971,520 in the recording");
  EXPECT_EQ(segments.equal_count(), 1u);
}

TEST(SegmentComparison, KnowsThatThereIsNothingToCompareWith) {
  SegmentComparison segments;
  segments.add_replayed(2_MiB);
  segments.add_replayed(20_MiB);
  segments.finish();
  EXPECT_FALSE(segments.has_recorded());
  EXPECT_EQ(segments.difference(), "");
  segments.add_recorded(20_MiB);
  EXPECT_TRUE(segments.has_recorded());
}

TEST(SegmentComparison, SaysWhichSequenceIsLonger) {
  SegmentComparison replay;
  replay.add_replayed(20_MiB);
  replay.add_recorded(20_MiB);
  replay.add_replayed(20_MiB);
  replay.finish();
  EXPECT_EQ(replay.difference(), "after 1 equal segments the replay has 1 more");
  SegmentComparison recording;
  recording.add_recorded(20_MiB);
  recording.add_recorded(20_MiB);
  recording.finish();
  EXPECT_EQ(recording.difference(), "after 0 equal segments the recording has 2 more");
}

}  // namespace
}  // namespace quarry::tools
