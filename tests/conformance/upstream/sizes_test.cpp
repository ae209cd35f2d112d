// SPDX-License-Identifier: Apache-2.0
// Rounding, segment sizes and splits (PyTorch's constants), as a user of the allocator sees them.
#include <gtest/gtest.h>

#include "tests/support/scenario.hpp"

namespace quarry::test {
namespace {

struct Sizes {
  Bytes block = 0;    // what is allocated
  Bytes segment = 0;  // what is reserved for it
};

// On an allocator of its own.
Sizes measure(Bytes bytes, const Config& config = make_config()) {
  ScenarioOptions options;
  options.config = config;
  Scenario s(options);
  EXPECT_NE(s.malloc(bytes), 0u);
  return {s.allocated(), s.reserved()};
}

TEST(UpstreamSizes, RequestsAreRoundedToFiveHundredTwelve) {
  EXPECT_EQ(measure(1).block, 512u);
  EXPECT_EQ(measure(511).block, 512u);
  EXPECT_EQ(measure(512).block, 512u);
  EXPECT_EQ(measure(513).block, 1024u);
  EXPECT_EQ(measure(1200).block, 1536u);
  EXPECT_EQ(measure(1_MiB - 1).block, 1_MiB);
}

TEST(UpstreamSizes, DivisionsRoundBetweenPowersOfTwo) {
  Config config = make_config();
  config.roundup_power2_divisions.fill(4);
  EXPECT_EQ(measure(1200, config).block, 1536u) << "1200 is not above 512 x 4: plain rounding";
  EXPECT_EQ(measure(2048, config).block, 2048u);
  EXPECT_EQ(measure(2049, config).block, 2560u);
  EXPECT_EQ(measure(5000, config).block, 5120u);
  EXPECT_EQ(measure(64_KiB, config).block, 64_KiB) << "a power of two stays";
  EXPECT_EQ(measure(64_KiB + 1, config).block, 80_KiB);
  EXPECT_EQ(measure(84_MiB, config).block, 96_MiB);
}

TEST(UpstreamSizes, DivisionsAreChosenByTheIntervalOfTheRequest) {
  Config config = make_config();
  config.roundup_power2_divisions[8] = 2;   // 256 MiB and up
  config.roundup_power2_divisions[15] = 4;  // 32 GiB and all above
  EXPECT_EQ(measure(250_MiB + 1, config).block, 250_MiB + 512);
  EXPECT_EQ(measure(256_MiB + 1, config).block, 384_MiB);
  EXPECT_EQ(measure(512_MiB + 1, config).block, 512_MiB + 512);
  EXPECT_EQ(measure(33_GiB, config).block, 40_GiB);
  EXPECT_EQ(measure(65_GiB, config).block, 80_GiB);
}

TEST(UpstreamSizes, SegmentsAreTwoTwentyOrRoundedMebibytes) {
  EXPECT_EQ(measure(1).segment, 2_MiB);
  EXPECT_EQ(measure(1_MiB).segment, 2_MiB);
  EXPECT_EQ(measure(1_MiB + 1).segment, 20_MiB);
  EXPECT_EQ(measure(10_MiB - 512).segment, 20_MiB);
  EXPECT_EQ(measure(10_MiB).segment, 10_MiB);
  EXPECT_EQ(measure(10_MiB + 512).segment, 12_MiB);
  EXPECT_EQ(measure(17825792).segment, 18874368u);
  EXPECT_EQ(measure(1_GiB + 1).segment, 1_GiB + 2_MiB);
}

TEST(UpstreamSizes, TheMediumSegmentIsAnOption) {
  Config config = make_config();
  config.large_segment_bytes = 64_MiB;
  EXPECT_EQ(measure(1_MiB, config).segment, 2_MiB);
  EXPECT_EQ(measure(1_MiB + 1, config).segment, 64_MiB);
  EXPECT_EQ(measure(10_MiB - 512, config).segment, 64_MiB);
  EXPECT_EQ(measure(10_MiB, config).segment, 10_MiB);
}

TEST(UpstreamSizes, ASmallBlockIsSplitForARestOfFiveHundredTwelve) {
  Scenario s;
  const Address first = s.malloc(1_MiB - 512);
  EXPECT_EQ(s.malloc(1_MiB), first + 1_MiB - 512);
  EXPECT_EQ(s.malloc(512), first + 2_MiB - 512) << "the last 512 bytes of the segment";
  EXPECT_EQ(s.reserved(), 2_MiB);
  EXPECT_EQ(s.allocated(), 2_MiB);
}

TEST(UpstreamSizes, ALargeBlockKeepsARestOfExactlyOneMebibyte) {
  EXPECT_EQ(measure(13_MiB).block, 14_MiB) << "a rest of 1 MiB is not split off";
  EXPECT_EQ(measure(13_MiB - 512).block, 13_MiB - 512) << "one of 1 MiB + 512 is";
  EXPECT_EQ(measure(14_MiB - 512).block, 14_MiB);
}

TEST(UpstreamSizes, RequestsAtTheSplitLimitKeepWholeBlocks) {
  Config config = make_config();
  config.max_split_bytes = 40_MiB;
  ScenarioOptions options;
  options.config = config;
  Scenario s(options);
  s.free(s.malloc(58_MiB));
  EXPECT_NE(s.malloc(40_MiB), 0u);
  EXPECT_EQ(s.allocated(), 58_MiB) << "served whole by the larger block";
  EXPECT_EQ(s.reserved(), 58_MiB);
}

TEST(UpstreamSizes, RequestsBelowTheSplitLimitAreSplit) {
  Config config = make_config();
  config.max_split_bytes = 40_MiB;
  ScenarioOptions options;
  options.config = config;
  Scenario s(options);
  s.free(s.malloc(38_MiB));
  EXPECT_NE(s.malloc(30_MiB), 0u);
  EXPECT_EQ(s.allocated(), 30_MiB);
  EXPECT_EQ(s.reserved(), 38_MiB);
}

}  // namespace
}  // namespace quarry::test
