// SPDX-License-Identifier: Apache-2.0
// What a section found survives the way between processes, and is told without loss.
#include "bench/driver_facts/fact_sheet.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <sstream>

namespace quarry::facts {
namespace {

FactSheet make_sheet() {
  FactSheet sheet{"plain", "Plain allocation", "About it.", {}, {}, {}};
  sheet.tables.push_back({"Costs", {"call", "us"}, {{"a | b", 1.23456}, {"c", 0.0}}});
  sheet.rules.push_back({"water is wet", true});
  sheet.rules.push_back({"the moon is cheese", false});
  sheet.failures.push_back("step: error 2");
  return sheet;
}

std::string to_markdown(const FactSheet& sheet) {
  std::ostringstream out;
  print_markdown(out, {sheet});
  return out.str();
}

TEST(FactSheetTest, SurvivesTheWayThroughJson) {
  const FactSheet sheet = make_sheet();
  const std::vector<FactSheet> back = parse_json(dump_json({sheet, sheet}));
  ASSERT_EQ(back.size(), 2u);
  EXPECT_EQ(back[1].name, "plain");
  ASSERT_EQ(back[1].tables.size(), 1u);
  EXPECT_EQ(back[1].tables[0].rows[0][1].number, 1.23456);
  EXPECT_EQ(to_markdown(back[1]), to_markdown(sheet));
}

TEST(FactSheetTest, ANumberThatJsonCannotHoldIsCarriedAsText) {
  FactSheet sheet = make_sheet();
  sheet.tables[0].rows[0][1] = Cell(std::numeric_limits<double>::infinity());
  const std::vector<FactSheet> back = parse_json(dump_json({sheet}));
  ASSERT_EQ(back.size(), 1u);
  EXPECT_EQ(back[0].tables[0].rows[0][1].text, "inf");
}

TEST(FactSheetTest, WhatIsNoSheetParsesToNone) {
  EXPECT_TRUE(parse_json("").empty());
  EXPECT_TRUE(parse_json("[{\"name\": 1}]").empty());
}

TEST(FactSheetTest, MarkdownHasAHeadingWellFormedTablesAndTheRules) {
  EXPECT_EQ(to_markdown(make_sheet()),
            "## Plain allocation\n\nAbout it.\n\n"
            "**Costs**\n\n| call | us |\n|---|---|\n| a \\| b | 1.23 |\n| c | 0 |\n\n"
            "| what Quarry relies on | here |\n|---|---|\n| water is wet | holds |\n"
            "| the moon is cheese | **does not hold** |\n\n"
            "- not measured: step: error 2\n\n");
}

TEST(FactSheetTest, NumbersAreRoundedToWhatAReaderNeeds) {
  EXPECT_EQ(format_number(0.1234), "0.12");
  EXPECT_EQ(format_number(9.876), "9.88");
  EXPECT_EQ(format_number(98.76), "98.8");
  EXPECT_EQ(format_number(987.6), "988");
  EXPECT_EQ(format_number(4096), "4096");
}

}  // namespace
}  // namespace quarry::facts
