// SPDX-License-Identifier: Apache-2.0
// Configuration texts at random, seeded: no text ends the process, and every accepted one gives a
// Config that keeps the rules and survives being written and read. The same property is fuzzed in
// tests/fuzz/config_fuzz.cpp.
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "api/config_options.hpp"
#include "tests/fuzz/config_property.hpp"

namespace quarry {
namespace {

using Random = std::mt19937_64;

std::size_t pick(Random& random, std::size_t count) {
  return std::uniform_int_distribution<std::size_t>(0, count - 1)(random);
}

std::string make_noise(Random& random, std::size_t length) {
  std::string text(length, '\0');
  for (char& c : text)
    c = static_cast<char>(pick(random, 256));
  return text;
}

// Pieces that the grammar knows, in any order.
std::string make_pieces(Random& random, std::size_t count) {
  static const std::vector<std::string> kPieces = [] {
    std::vector<std::string> pieces = {",", ":",  "[",   "]",  " ",   ">",    "0",     "1",    "2",
                                       "3", "64", "0.5", "-1", "1e9", "True", "False", "plain"};
    for (const ConfigOption& option : get_config_options())
      pieces.emplace_back(option.name);
    return pieces;
  }();
  std::string text;
  for (std::size_t i = 0; i < count; ++i)
    text += kPieces[pick(random, kPieces.size())];
  return text;
}

// Well-formed items, of which most values are allowed.
std::string make_items(Random& random, std::size_t count) {
  static constexpr std::string_view kValues[] = {
      "0", "1", "16", "32", "64", "0.5", "True", "False", "plain", "native", "[1:2]", "[>:4]"};
  std::string text;
  for (std::size_t i = 0; i < count; ++i) {
    const auto options = get_config_options();
    const ConfigOption& option = options[pick(random, options.size())];
    const bool is_default = pick(random, 3) == 0;
    text += std::string(option.name) + ":";
    text += is_default ? option.default_text : kValues[pick(random, std::size(kValues))];
    text += ",";
  }
  return text;
}

TEST(ConfigRandom, C55NoTextUpTo100KilobytesBreaksTheParser) {
  Random random(55);
  for (int i = 0; i < 40; ++i) {
    testing_support::check_config_property(make_noise(random, pick(random, 100'000)));
    testing_support::check_config_property(make_pieces(random, pick(random, 8'000)));
  }
}

TEST(ConfigRandom, ShortTextsKeepTheRulesWhetherAcceptedOrNot) {
  Random random(7);
  int accepted = 0;
  for (int i = 0; i < 20'000; ++i) {
    testing_support::check_config_property(make_pieces(random, pick(random, 12)));
    accepted += testing_support::check_config_property(make_items(random, pick(random, 4)));
  }
  // The generator is worth nothing unless both sides are visited often.
  EXPECT_GT(accepted, 4'000);
  EXPECT_LT(accepted, 16'000);
}

}  // namespace
}  // namespace quarry
