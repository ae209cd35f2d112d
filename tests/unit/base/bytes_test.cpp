// SPDX-License-Identifier: Apache-2.0
#include "base/bytes.hpp"

#include <gtest/gtest.h>

namespace quarry {
namespace {

TEST(BytesTest, LiteralsArePowersOfTwo) {
  EXPECT_EQ(3_KiB, 3072u);
  EXPECT_EQ(1_MiB, 1048576u);
  EXPECT_EQ(2_GiB, 2147483648u);
}

TEST(BytesTest, PowersOfTwoAreRecognisedAndNothingElse) {
  int count = 0;
  for (std::uint64_t n = 0; n <= 4096; ++n)
    count += is_power_of_two(n) ? 1 : 0;
  EXPECT_EQ(count, 13);
  EXPECT_TRUE(is_power_of_two(1ull << 63));
  EXPECT_FALSE(is_power_of_two(~0ull));
}

TEST(BytesTest, RoundingFindsTheNearestMultipleOnItsSide) {
  for (std::uint64_t alignment = 1; alignment <= 64; alignment *= 2) {
    for (std::uint64_t n = 0; n <= 256; ++n) {
      const std::uint64_t up = round_up(n, alignment);
      const std::uint64_t down = round_down(n, alignment);
      EXPECT_EQ(up % alignment, 0u);
      EXPECT_EQ(down % alignment, 0u);
      EXPECT_TRUE(up >= n && up - n < alignment);
      EXPECT_TRUE(down <= n && n - down < alignment);
      EXPECT_EQ(is_aligned(n, alignment), up == n);
    }
  }
  EXPECT_EQ(round_up((1ull << 60) - 1, 2_MiB), 1ull << 60);
}

// PyTorch's layout: each unit ends at 1024 of it, inclusive; two decimals from KiB on.
TEST(BytesTest, FormatSwitchesUnitsAboveATrueThousandTwentyFour) {
  EXPECT_EQ(format_bytes(0), "0 bytes");
  EXPECT_EQ(format_bytes(512), "512 bytes");
  EXPECT_EQ(format_bytes(1024), "1024 bytes");
  EXPECT_EQ(format_bytes(1025), "1.00 KiB");
  EXPECT_EQ(format_bytes(1536), "1.50 KiB");
  EXPECT_EQ(format_bytes(1_MiB), "1024.00 KiB");
  EXPECT_EQ(format_bytes(1_MiB + 1), "1.00 MiB");
  EXPECT_EQ(format_bytes(20_MiB), "20.00 MiB");
  EXPECT_EQ(format_bytes(1_GiB), "1024.00 MiB");
  EXPECT_EQ(format_bytes(1_GiB + 1), "1.00 GiB");
  EXPECT_EQ(format_bytes(150'109'880'320), "139.80 GiB");
  EXPECT_EQ(format_bytes(800'000'000_GiB), "800000000.00 GiB");
}

}  // namespace
}  // namespace quarry
