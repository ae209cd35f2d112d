// SPDX-License-Identifier: Apache-2.0
// What can be set about a pattern: a table of knobs, and the values that a user chose. Whole
// numbers only, or words that stand for them. Knows no command line.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"

namespace quarry::patterns {

struct KnobChoice {
  std::string_view word;
  std::uint64_t value;
};

struct Knob {
  std::string_view name;  // of the option, without "--"
  std::uint64_t value;    // unless set
  std::uint64_t least;
  std::uint64_t most;
  std::string_view unit;
  std::string_view text;
  std::span<const KnobChoice> choices = {};  // if there are any, words instead of numbers
};

// "a whole number from 1 to 64", "one of fp8, fp16".
std::string describe_allowed(const Knob& knob);
// As a user would write it.
std::string describe_default(const Knob& knob);

// A whole number from `least` to `most`. An error names the text and what is allowed.
Result<std::uint64_t> parse_number(std::string_view text, std::uint64_t least, std::uint64_t most);

class KnobValues {
 public:
  // All at their defaults. Names are different.
  explicit KnobValues(std::vector<Knob> knobs);

  // A failure names the knob, the text and what is allowed. `name` must be one of the knobs.
  Status set(std::string_view name, std::string_view text);
  bool has(std::string_view name) const { return values_.contains(name); }
  // `name` must be one of the knobs.
  std::uint64_t get(std::string_view name) const;
  bool is_set(std::string_view name) const;
  const std::vector<Knob>& knobs() const noexcept { return knobs_; }

  // Fails unless the first is at most the second.
  Status check_order(std::string_view least, std::string_view most) const;

 private:
  struct Value {
    std::size_t knob = 0;  // in knobs_
    std::uint64_t number = 0;
    bool is_set = false;
  };

  std::vector<Knob> knobs_;
  std::map<std::string_view, Value> values_;  // names are those of the table, which is static
};

}  // namespace quarry::patterns
