// SPDX-License-Identifier: Apache-2.0
#include "api/config_parser.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <utility>

#include "api/config_grammar.hpp"
#include "api/config_options.hpp"

namespace quarry {
namespace {

constexpr std::size_t kNamedUnknownKeys = 4;

Status fail(std::string message) {
  return {StatusCode::kInvalidArgument, std::move(message)};
}

Status explain_value(const ConfigOption& option, const ValueError& error) {
  return fail(fmt::format("option '{}': value {} at offset {} {}; allowed: {}", option.name,
                          quote(error.word.text), error.word.offset, error.reason,
                          option.allowed));
}

std::string list_option_names() {
  std::string names;
  for (const ConfigOption& option : get_config_options()) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", option.name);
  }
  return names;
}

Status explain_unknown_key(const ConfigItem& item) {
  const std::string_view reason = explain_foreign_key(item.key.text);
  return fail(fmt::format("option {} at offset {} (value {}) {}; allowed: {}",
                          quote(item.key.text), item.key.offset,
                          quote(item.is_list ? "[...]" : item.value.text),
                          reason.empty() ? "is unknown" : reason, list_option_names()));
}

// The last occurrence of each option that the text names, and how often it is named.
class Occurrences {
 public:
  Occurrences() : last_(get_config_options().size()), count_(get_config_options().size()) {}

  void add(const ConfigOption& option, const ConfigItem& item) {
    const std::size_t index = index_of(option);
    last_[index] = &item;
    ++count_[index];
  }
  // nullptr if the text does not name the option.
  const ConfigItem* find(std::string_view name) const {
    return last_[index_of(*find_config_option(name))];
  }
  void append_warnings(std::vector<std::string>& out) const {
    for (std::size_t i = 0; i < last_.size(); ++i) {
      if (count_[i] < 2) continue;
      out.push_back(fmt::format("option '{}' is given {} times; the last, at offset {}, holds",
                                get_config_options()[i].name, count_[i], last_[i]->key.offset));
    }
  }

 private:
  static std::size_t index_of(const ConfigOption& option) {
    return static_cast<std::size_t>(&option - get_config_options().data());
  }
  std::vector<const ConfigItem*> last_;
  std::vector<std::size_t> count_;
};

std::string explain_unknown_keys(const std::vector<const ConfigItem*>& unknown) {
  std::string names;
  for (std::size_t i = 0; i < std::min(unknown.size(), kNamedUnknownKeys); ++i) {
    names += fmt::format("{}{} at offset {}", i == 0 ? "" : ", ", quote(unknown[i]->key.text),
                         unknown[i]->key.offset);
  }
  if (unknown.size() > kNamedUnknownKeys) {
    names += fmt::format(" and {} more", unknown.size() - kNamedUnknownKeys);
  }
  return "unknown options are ignored (lenient): " + names;
}

// Checked once everything is applied, so that the order of the options does not matter. The item
// at fault is the limit's own if the text names it, otherwise that of the segment size.
Status check_not_below_large_segment(std::string_view name, Bytes bytes, const Config& config,
                                     const Occurrences& named) {
  const ConfigItem* culprit = named.find(name);
  if (culprit == nullptr) culprit = named.find("large_segment_size_mb");
  if (culprit == nullptr || bytes >= config.large_segment_bytes) return {};
  return fail(fmt::format(
      "option '{}': value {} at offset {} leaves {} ({} MB) below large_segment_size_mb ({} MB); "
      "allowed: at least as large",
      culprit->key.text, quote(culprit->value.text), culprit->value.offset, name, bytes >> 20,
      config.large_segment_bytes >> 20));
}

Status check_combinations(const Config& config, const Occurrences& named) {
  Status status =
      check_not_below_large_segment("max_split_size_mb", config.max_split_bytes, config, named);
  if (!status.is_ok()) return status;
  // The default stands beside any segment size, as upstream.
  if (config.max_non_split_rounding_bytes == Config{}.max_non_split_rounding_bytes) return {};
  return check_not_below_large_segment("max_non_split_rounding_mb",
                                       config.max_non_split_rounding_bytes, config, named);
}

bool has_division_of_one(const Config& config) {
  return std::ranges::find(config.roundup_power2_divisions, 1u) !=
         config.roundup_power2_divisions.end();
}

// Settings that are allowed and do nothing as things stand: the user should know.
void warn_of_no_effect(const Config& config, const Occurrences& named,
                       std::vector<std::string>& out) {
  if (named.find("garbage_collection_threshold") != nullptr && config.upstream_quirks &&
      config.garbage_collection_threshold > 0 && config.per_process_memory_fraction == 1.0) {
    out.emplace_back(
        "garbage_collection_threshold does nothing until a memory fraction below 1 is set; "
        "with upstream_quirks:False it is a part of the device's memory");
  }
  if (named.find("roundup_power2_divisions") != nullptr && config.upstream_quirks &&
      has_division_of_one(config)) {
    out.emplace_back(
        "roundup_power2_divisions: a division of 1 rounds nothing, as in PyTorch; with "
        "upstream_quirks:False it rounds to the next power of two");
  }
  if (named.find("max_non_split_rounding_mb") != nullptr && config.max_split_bytes == kUnlimited) {
    out.emplace_back(
        "max_non_split_rounding_mb does nothing while max_split_size_mb is unlimited");
  }
}

}  // namespace

ParseMode get_parse_mode_from_environment() {
  const char* text = std::getenv("QUARRY_CONF_LENIENT");
  return text != nullptr && std::string_view(text) == "1" ? ParseMode::kLenient
                                                          : ParseMode::kStrict;
}

Result<ParsedConfig> parse_config(std::string_view text, const Config& base, ParseMode mode) {
  auto items = parse_items(text);
  if (!items.is_ok()) return std::move(items).status();

  ParsedConfig parsed{base, {}, false};
  Occurrences named;
  std::vector<const ConfigItem*> unknown;
  for (const ConfigItem& item : items.value()) {
    const ConfigOption* option = find_config_option(item.key.text);
    if (option == nullptr) {
      if (mode == ParseMode::kStrict) return explain_unknown_key(item);
      unknown.push_back(&item);
      continue;
    }
    if (auto error = option->apply(item, parsed.config)) return explain_value(*option, *error);
    named.add(*option, item);
  }
  if (Status status = check_combinations(parsed.config, named); !status.is_ok()) return status;

  parsed.names_memory_fraction = named.find("per_process_memory_fraction") != nullptr;
  named.append_warnings(parsed.warnings);
  if (!unknown.empty()) parsed.warnings.push_back(explain_unknown_keys(unknown));
  warn_of_no_effect(parsed.config, named, parsed.warnings);
  return parsed;
}

std::string_view get_name(CrossStreamReuse reuse) {
  switch (reuse) {
    case CrossStreamReuse::kOff:
      return "off";
    case CrossStreamReuse::kIdle:
      return "idle";
    case CrossStreamReuse::kWait:
      break;
  }
  return "wait";
}

std::string_view get_name(Recycle recycle) {
  switch (recycle) {
    case Recycle::kOff:
      return "off";
    case Recycle::kPassed:
      return "passed";
    case Recycle::kStream:
      break;
  }
  return "stream";
}

std::string_view get_name(ExtentKind::HandleType type) {
  switch (type) {
    case ExtentKind::HandleType::kFileDescriptor:
      return "posix_fd";
    case ExtentKind::HandleType::kFabric:
      return "fabric";
    case ExtentKind::HandleType::kNone:
      break;
  }
  return "none";
}

std::string format_config(const Config& config) {
  const auto write_bool = [](bool value) { return value ? "True" : "False"; };
  const std::string max_split = config.max_split_bytes == kUnlimited
                                    ? "unlimited"
                                    : fmt::format("{}", config.max_split_bytes >> 20);
  std::string divisions;
  for (int i = 0; i < kRoundupIntervals; ++i) {
    divisions += fmt::format("{}{}:{}", i == 0 ? "" : ",", 1 << i,
                             config.roundup_power2_divisions[static_cast<std::size_t>(i)]);
  }
  return fmt::format(
      "large_segment_size_mb:{},max_split_size_mb:{},max_non_split_rounding_mb:{},"
      "garbage_collection_threshold:{},roundup_power2_divisions:[{}],"
      "per_process_memory_fraction:{},throw_on_cudamalloc_oom:{},upstream_quirks:{},"
      "graph_capture_reclaim:{},graph_capture_record_stream_reuse:{},graph_pools:{},segments:"
      "{},cross_stream_reuse:{},recycle:{},reserve_slack:{},extent_handle_types:{},rdma:{},"
      "thread_cache:{}",
      config.large_segment_bytes >> 20, max_split, config.max_non_split_rounding_bytes >> 20,
      config.garbage_collection_threshold, divisions, config.per_process_memory_fraction,
      write_bool(config.throw_on_cudamalloc_oom), write_bool(config.upstream_quirks),
      write_bool(config.graph_capture_reclaim),
      write_bool(config.graph_capture_record_stream_reuse),
      config.automatic_graph_pools ? "automatic" : "begin",
      config.expandable_segments ? "expandable" : "plain", get_name(config.cross_stream_reuse),
      get_name(config.recycle), config.reserve_slack, get_name(config.extent_handle_types),
      config.rdma ? "auto" : "off", write_bool(config.thread_cache));
}

std::string format_config_help() {
  std::string out;
  for (const ConfigOption& option : get_config_options()) {
    out += fmt::format("{}:<{}>  (default {})\n    {}\n    Allowed: {}\n", option.name,
                       option.type, option.default_text, option.help, option.allowed);
  }
  return out;
}

}  // namespace quarry
