// SPDX-License-Identifier: Apache-2.0
#include "api/config_grammar.hpp"

#include <fmt/format.h>

#include <utility>

namespace quarry {
namespace {

constexpr std::size_t kQuotedLimit = 40;

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\v' || c == '\f';
}
bool is_mark(char c) {
  return c == ',' || c == ':' || c == '[' || c == ']';
}

// Reads words and marks from left to right; the position is always on neither white space nor past
// the end by more than one.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) { skip_space(); }

  bool is_at_end() const { return position_ == text_.size(); }
  std::size_t offset() const { return position_; }

  // Takes the mark `c` if it is next.
  bool take_mark(char c) {
    if (is_at_end() || text_[position_] != c) return false;
    ++position_;
    skip_space();
    return true;
  }

  // Empty if a mark or the end is next.
  ConfigWord take_word() {
    ConfigWord word{{}, position_};
    for (; !is_at_end() && !is_mark(text_[position_]); ++position_) {
      if (!is_space(text_[position_])) word.text += text_[position_];
    }
    return word;
  }

  Status explain(std::string_view expected) const {
    const std::string found =
        is_at_end() ? "the end of the text" : quote(text_.substr(position_, 1));
    return {StatusCode::kInvalidArgument,
            fmt::format("configuration text: expected {} at offset {}, found {}; the form is "
                        "key:value,key:value with lists as [a:b,c:d]",
                        expected, position_, found)};
  }

 private:
  void skip_space() {
    while (!is_at_end() && is_space(text_[position_]))
      ++position_;
  }

  std::string_view text_;
  std::size_t position_ = 0;
};

Status parse_pair(Reader& reader, ConfigPair& pair) {
  pair.key = reader.take_word();
  if (pair.key.text.empty()) return reader.explain("a key inside the list");
  if (!reader.take_mark(':')) {
    return reader.explain(fmt::format("':' after {}", quote(pair.key.text)));
  }
  pair.value = reader.take_word();
  if (pair.value.text.empty()) {
    return reader.explain(fmt::format("a value for {} inside the list", quote(pair.key.text)));
  }
  return {};
}

// After the '['. Takes the ']' too.
Status parse_list(Reader& reader, ConfigItem& item) {
  do {
    ConfigPair pair;
    if (Status status = parse_pair(reader, pair); !status.is_ok()) return status;
    item.pairs.push_back(std::move(pair));
  } while (reader.take_mark(','));
  if (!reader.take_mark(']')) {
    return reader.explain(fmt::format("',' or ']' in the list of {}", quote(item.key.text)));
  }
  return {};
}

Status parse_item(Reader& reader, ConfigItem& item) {
  item.key = reader.take_word();
  if (item.key.text.empty()) return reader.explain("an option");
  if (!reader.take_mark(':')) {
    return reader.explain(fmt::format("':' after option {}", quote(item.key.text)));
  }
  item.value.offset = reader.offset();
  if (reader.take_mark('[')) {
    item.is_list = true;
    return parse_list(reader, item);
  }
  item.value = reader.take_word();
  if (item.value.text.empty()) {
    return reader.explain(fmt::format("a value for option {}", quote(item.key.text)));
  }
  return {};
}

}  // namespace

Result<std::vector<ConfigItem>> parse_items(std::string_view text) {
  std::vector<ConfigItem> items;
  Reader reader(text);
  while (!reader.is_at_end()) {
    if (reader.take_mark(',')) continue;
    ConfigItem item;
    if (Status status = parse_item(reader, item); !status.is_ok()) return status;
    items.push_back(std::move(item));
    if (!reader.is_at_end() && !reader.take_mark(',')) {
      return reader.explain(fmt::format("',' after option {}", quote(items.back().key.text)));
    }
  }
  return items;
}

std::string quote(std::string_view word) {
  std::string out = "'";
  for (const char c : word.substr(0, kQuotedLimit)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  out += word.size() > kQuotedLimit ? "...'" : "'";
  return out;
}

}  // namespace quarry
