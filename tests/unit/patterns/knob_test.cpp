// SPDX-License-Identifier: Apache-2.0
#include "patterns/knob.hpp"

#include <gtest/gtest.h>

namespace quarry::patterns {
namespace {

constexpr KnobChoice kColours[] = {{"red", 1}, {"blue", 2}};
const std::vector<Knob> kKnobs = {{"layers", 16, 1, 64, "", "Layers"},
                                  {"most", 8, 1, 64, "", "Most layers"},
                                  {"colour", 2, 1, 2, "", "Colour", kColours}};

std::string set(const std::string& name, const std::string& text) {
  KnobValues values(kKnobs);
  return std::string(values.set(name, text).message());
}

TEST(KnobTest, KeepsDefaultsUntilSet) {
  KnobValues values(kKnobs);
  EXPECT_EQ(values.get("layers"), 16u);
  EXPECT_FALSE(values.is_set("layers"));
  EXPECT_TRUE(values.set("layers", "64").is_ok());
  EXPECT_EQ(values.get("layers"), 64u);
  EXPECT_TRUE(values.is_set("layers"));
  EXPECT_TRUE(values.set("colour", "red").is_ok());
  EXPECT_EQ(values.get("colour"), 1u);
  EXPECT_TRUE(values.has("colour"));
  EXPECT_FALSE(values.has("color"));
}

TEST(KnobTest, ARefusedValueNamesTheKnobTheValueAndWhatIsAllowed) {
  EXPECT_EQ(set("layers", "0"),
            "--layers: value \"0\" is not allowed; allowed: a whole number from 1 to 64");
  for (const char* text : {"65", "-1", "", " 3", "3x", "1.5", "99999999999999999999"})
    EXPECT_NE(set("layers", text), "") << text;
  EXPECT_EQ(set("colour", "green"),
            "--colour: value \"green\" is not allowed; allowed: one of red, blue");
}

TEST(KnobTest, ARefusedValueChangesNothing) {
  KnobValues values(kKnobs);
  EXPECT_FALSE(values.set("layers", "65").is_ok());
  EXPECT_EQ(values.get("layers"), 16u);
  EXPECT_FALSE(values.is_set("layers"));
}

TEST(KnobTest, DescribesItsDefaultAsAUserWouldWriteIt) {
  EXPECT_EQ(describe_default(kKnobs[0]), "16");
  EXPECT_EQ(describe_default(kKnobs[2]), "blue");
}

TEST(KnobTest, TwoKnobsInTheWrongOrderAreNamedWithTheirValues) {
  KnobValues values(kKnobs);
  EXPECT_TRUE(values.check_order("most", "layers").is_ok());
  EXPECT_TRUE(values.check_order("most", "most").is_ok());
  EXPECT_EQ(values.check_order("layers", "most").message(),
            "--layers: value 16 is not allowed; allowed: at most --most, which is 8");
}

}  // namespace
}  // namespace quarry::patterns
