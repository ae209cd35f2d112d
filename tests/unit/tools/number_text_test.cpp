// SPDX-License-Identifier: Apache-2.0
// Numbers as people write and read them.
#include "tools/number_text.hpp"

#include <gtest/gtest.h>

#include <string>

namespace quarry::tools {
namespace {

TEST(FormatCount, SeparatesThousands) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1000), "1,000");
  EXPECT_EQ(format_count(21606957056), "21,606,957,056");
  EXPECT_EQ(format_count(kUnlimited), "18,446,744,073,709,551,615");
}

TEST(ParseByteSize, KnowsBinaryAndDecimalUnits) {
  EXPECT_EQ(parse_byte_size("0").value(), 0u);
  EXPECT_EQ(parse_byte_size("150109880320").value(), 150109880320u);
  EXPECT_EQ(parse_byte_size("80GiB").value(), 80_GiB);
  EXPECT_EQ(parse_byte_size("80 GiB").value(), 80_GiB);
  EXPECT_EQ(parse_byte_size("80GB").value(), 80'000'000'000u);
  EXPECT_EQ(parse_byte_size("512B").value(), 512u);
  EXPECT_EQ(parse_byte_size("512M").value(), 512_MiB);
  EXPECT_EQ(parse_byte_size("16G").value(), 16_GiB);
  EXPECT_EQ(parse_byte_size("18446744073709551615").value(), kUnlimited);
}

TEST(ParseByteSize, RefusesEverythingElse) {
  for (const char* text : {"", "GiB", "-1", "1.5GiB", "80g", "80gib", "80GiBs", " 80", "1e9",
                           "18446744073709551616", "16777216TiB"}) {
    EXPECT_FALSE(parse_byte_size(text).is_ok()) << text;
  }
  EXPECT_EQ(
      parse_byte_size("80g").status().message(),
      "\"80g\" is not an amount of memory; write 85899345920, 80G, 80GiB or 80GB (units: K, M, "
      "G, T, B, KiB, MiB, GiB, TiB, kB, MB, GB, TB)");
  for (const std::string text : {"18446744073709551616", "16777216TiB", "99999999999999999999G"}) {
    EXPECT_EQ(parse_byte_size(text).status().message(),
              "\"" + text + "\" is too large: 64 bits do not hold it");
  }
}

TEST(ParseWholeNumber, TakesNothingButANumberWithinItsBounds) {
  EXPECT_EQ(parse_whole_number("1", 1, 1000).value(), 1u);
  EXPECT_EQ(parse_whole_number("1000", 1, 1000).value(), 1000u);
  for (const char* text :
       {"", "-1", "+1", "abc", "1.5", "1e3", " 1", "1 ", "0", "1001", "18446744073709551616"}) {
    EXPECT_FALSE(parse_whole_number(text, 1, 1000).is_ok()) << text;
  }
  EXPECT_EQ(parse_whole_number("-1", 0, 9).status().message(),
            "value \"-1\" is not allowed; allowed: a whole number from 0 to 9");
}

}  // namespace
}  // namespace quarry::tools
