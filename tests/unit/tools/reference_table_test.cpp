// SPDX-License-Identifier: Apache-2.0
// Reference tables: columns are found by name, errors name the line.
#include "tools/reference_table.hpp"

#include <gtest/gtest.h>

#include <sstream>

namespace quarry::tools {
namespace {

std::string read_error(const std::string& text) {
  std::istringstream input(text);
  return std::string(ReferenceTable::read(input).status().message());
}

TEST(ReferenceTable, FindsColumnsByName) {
  std::istringstream input(
      "note,pytorch_peak_reserved_bytes,trace\r\nx,123,one\r\n,456,two\r\n\n");
  const Result<ReferenceTable> table = ReferenceTable::read(input);
  ASSERT_TRUE(table.is_ok());
  EXPECT_EQ(table.value().find("one"), Bytes{123});
  EXPECT_EQ(table.value().find("two"), Bytes{456});
  EXPECT_EQ(table.value().find("three"), std::nullopt);
}

TEST(ReferenceTable, NamesTheLineOfAnError) {
  const std::string header = "trace,pytorch_peak_reserved_bytes\n";
  EXPECT_EQ(read_error(""),
            "line 1: the header lacks the column trace or pytorch_peak_reserved_bytes");
  EXPECT_EQ(read_error(header + "one,1\ntwo\n"), "line 3: too few fields");
  EXPECT_EQ(read_error(header + "one,1x\n"), "line 2: \"1x\" is not a number");
}

}  // namespace
}  // namespace quarry::tools
