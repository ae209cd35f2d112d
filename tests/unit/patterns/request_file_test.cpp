// SPDX-License-Identifier: Apache-2.0
#include "patterns/request_file.hpp"

#include <gtest/gtest.h>

namespace quarry::patterns {
namespace {

std::string explain(const std::string& text) {
  return std::string(parse_requests(text, "r.csv").status().message());
}

std::string explain_rows(const std::string& rows) {
  return explain("arrival_us,prompt_tokens,output_tokens\n" + rows);
}

TEST(RequestFileTest, ReadsRowsInTheirOrder) {
  const Result<std::vector<Request>> requests = parse_requests(
      "arrival_us,prompt_tokens,output_tokens\r\n0,10,1\r\n0,1048576,2\n7,1,3\n\n\n", "r.csv");
  ASSERT_TRUE(requests.is_ok()) << requests.status().message();
  EXPECT_EQ(requests.value(), (std::vector<Request>{{0, 10, 1}, {0, 1048576, 2}, {7, 1, 3}}));
}

TEST(RequestFileTest, TheLastLineMayLackItsEnd) {
  EXPECT_EQ(explain_rows("0,10,1"), "");
}

TEST(RequestFileTest, AnErrorNamesTheLineTheFieldTheValueAndWhatIsAllowed) {
  EXPECT_EQ(explain_rows("0,10,1\n1,x,1\n"),
            "r.csv: line 3: prompt_tokens: value \"x\" is not allowed; allowed: a whole number "
            "from 1 to 1048576");
  EXPECT_EQ(explain_rows("0,10,0\n"),
            "r.csv: line 2: output_tokens: value \"0\" is not allowed; allowed: a whole number "
            "from 1 to 1048576");
  EXPECT_EQ(explain_rows("-1,10,1\n"),
            "r.csv: line 2: arrival_us: value \"-1\" is not allowed; allowed: a whole number "
            "from 0 to 1000000000000");
}

TEST(RequestFileTest, ALineOfOtherThanThreeFieldsIsAnError) {
  for (const std::string row : {"1,2", "1,2,3,4", "1"}) {
    EXPECT_EQ(explain_rows("0,10,1\n" + row + "\n"),
              "r.csv: line 3: \"" + row +
                  "\" does not have the 3 fields arrival_us,prompt_tokens,output_tokens");
  }
}

TEST(RequestFileTest, AnArrivalBeforeTheLastIsAnError) {
  EXPECT_EQ(explain_rows("5,10,1\n4,10,1\n"),
            "r.csv: line 3: arrival_us: value \"4\" is not allowed; allowed: at least that of the "
            "line before, 5");
}

TEST(RequestFileTest, ARowAfterABlankLineIsAnError) {
  EXPECT_EQ(explain_rows("5,10,1\n\n6,10,1\n"), "r.csv: line 4: a row after the blank line 3");
}

TEST(RequestFileTest, AFileWithoutHeaderOrRequestsIsAnError) {
  EXPECT_EQ(explain("0,10,1\n"),
            "r.csv: line 1: expected the header \"arrival_us,prompt_tokens,output_tokens\", found "
            "\"0,10,1\"");
  EXPECT_EQ(explain(""),
            "r.csv: line 1: expected the header \"arrival_us,prompt_tokens,output_tokens\", found "
            "\"\"");
  EXPECT_EQ(explain_rows(""), "r.csv: line 2: no request in the file");
}

}  // namespace
}  // namespace quarry::patterns
