// SPDX-License-Identifier: Apache-2.0
#include "patterns/knob.hpp"

#include <fmt/format.h>

#include <charconv>
#include <system_error>
#include <utility>

#include "base/check.hpp"
#include "trace/csv_row.hpp"

namespace quarry::patterns {
namespace {

Result<std::uint64_t> parse_choice(const Knob& knob, std::string_view text) {
  for (const KnobChoice& choice : knob.choices) {
    if (choice.word == text) return choice.value;
  }
  return Status(StatusCode::kInvalidArgument,
                fmt::format("value {} is not allowed; allowed: {}", quote_input(text),
                            describe_allowed(knob)));
}

std::string describe_range(std::uint64_t least, std::uint64_t most) {
  return fmt::format("a whole number from {} to {}", least, most);
}

}  // namespace

std::string describe_allowed(const Knob& knob) {
  if (knob.choices.empty()) return describe_range(knob.least, knob.most);
  std::string words;
  for (const KnobChoice& choice : knob.choices) {
    words += fmt::format("{}{}", words.empty() ? "one of " : ", ", choice.word);
  }
  return words;
}

std::string describe_default(const Knob& knob) {
  for (const KnobChoice& choice : knob.choices) {
    if (choice.value == knob.value) return std::string(choice.word);
  }
  return std::to_string(knob.value);
}

Result<std::uint64_t> parse_number(std::string_view text, std::uint64_t least,
                                   std::uint64_t most) {
  std::uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number);
  const bool is_number = parsed.ec == std::errc() && parsed.ptr == end;
  if (is_number && number >= least && number <= most) return number;
  return Status(StatusCode::kInvalidArgument,
                fmt::format("value {} is not allowed; allowed: {}", quote_input(text),
                            describe_range(least, most)));
}

KnobValues::KnobValues(std::vector<Knob> knobs) : knobs_(std::move(knobs)) {
  for (std::size_t i = 0; i < knobs_.size(); ++i) {
    const bool is_new =
        values_.try_emplace(knobs_[i].name, Value{i, knobs_[i].value, false}).second;
    QUARRY_CHECK(is_new);
  }
}

Status KnobValues::set(std::string_view name, std::string_view text) {
  const auto found = values_.find(name);
  QUARRY_CHECK(found != values_.end());
  const Knob& knob = knobs_[found->second.knob];
  const Result<std::uint64_t> number =
      knob.choices.empty() ? parse_number(text, knob.least, knob.most) : parse_choice(knob, text);
  if (!number.is_ok()) {
    return Status(number.code(), fmt::format("--{}: {}", name, number.status().message()));
  }
  found->second.number = number.value();
  found->second.is_set = true;
  return Status::ok();
}

std::uint64_t KnobValues::get(std::string_view name) const {
  const auto found = values_.find(name);
  QUARRY_CHECK(found != values_.end());
  return found->second.number;
}

bool KnobValues::is_set(std::string_view name) const {
  const auto found = values_.find(name);
  QUARRY_CHECK(found != values_.end());
  return found->second.is_set;
}

Status KnobValues::check_order(std::string_view least, std::string_view most) const {
  if (get(least) <= get(most)) return Status::ok();
  return Status(StatusCode::kInvalidArgument,
                fmt::format("--{}: value {} is not allowed; allowed: at most --{}, which is {}",
                            least, get(least), most, get(most)));
}

}  // namespace quarry::patterns
