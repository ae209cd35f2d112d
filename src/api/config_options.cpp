// SPDX-License-Identifier: Apache-2.0
#include "api/config_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <initializer_list>
#include <system_error>
#include <utility>

namespace quarry {
namespace {

using MaybeError = std::optional<ValueError>;

// 16 TiB: larger amounts are typing errors, and every sum of two stays far from wrapping.
constexpr std::uint64_t kMostMegabytes = 1ull << 24;
constexpr std::uint32_t kLargestRoundupKey = 1u << (kRoundupIntervals - 1);

template <class Number>
std::optional<Number> read_number(const std::string& text) {
  Number number{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end) return std::nullopt;
  return number;
}

MaybeError refuse(const ConfigWord& word, std::string reason) {
  return ValueError{std::move(reason), word};
}

MaybeError check_scalar(const ConfigItem& item) {
  if (!item.is_list) return std::nullopt;
  return refuse({"[", item.value.offset}, "is a list, which this option does not take");
}

MaybeError read_megabytes(const ConfigItem& item, std::uint64_t least_mb, Bytes& out) {
  if (MaybeError error = check_scalar(item)) return error;
  const auto number = read_number<std::uint64_t>(item.value.text);
  if (!number) return refuse(item.value, "is not a whole number");
  if (*number < least_mb) return refuse(item.value, fmt::format("is below {}", least_mb));
  if (*number > kMostMegabytes) {
    return refuse(item.value, fmt::format("is above {}", kMostMegabytes));
  }
  out = *number << 20;
  return std::nullopt;
}

MaybeError read_bool(const ConfigItem& item, bool& out) {
  if (MaybeError error = check_scalar(item)) return error;
  if (item.value.text != "True" && item.value.text != "False") {
    return refuse(item.value, "is neither True nor False");
  }
  out = item.value.text == "True";
  return std::nullopt;
}

MaybeError read_fraction(const ConfigItem& item, double& out) {
  if (MaybeError error = check_scalar(item)) return error;
  const auto number = read_number<double>(item.value.text);
  if (!number) return refuse(item.value, "is not a number");
  if (!(*number >= 0.0 && *number <= 1.0)) return refuse(item.value, "is outside [0, 1]");
  out = *number;
  return std::nullopt;
}

// For options of which one value is what this version does: `later` are values that have a meaning
// and are refused for the reason given.
MaybeError expect_only(const ConfigItem& item, std::string_view now,
                       std::initializer_list<std::string_view> later, std::string_view reason) {
  if (MaybeError error = check_scalar(item)) return error;
  if (item.value.text == now) return std::nullopt;
  const bool is_later = std::ranges::find(later, item.value.text) != later.end();
  return refuse(item.value, is_later ? std::string(reason) : "is no value of this option");
}

MaybeError read_divisions(const ConfigWord& word, std::uint32_t& out) {
  const auto number = read_number<std::uint32_t>(word.text);
  if (!number || (*number != 0 && !is_power_of_two(*number))) {
    return refuse(word, "is neither 0 nor a power of two");
  }
  out = *number;
  return std::nullopt;
}

// The list form, as written: a value for some of the intervals, and one for those above them all.
struct WrittenDivisions {
  std::array<std::optional<std::uint32_t>, kRoundupIntervals> interval;
  std::optional<std::uint32_t> rest;
};

MaybeError read_division_pair(const ConfigPair& pair, WrittenDivisions& written) {
  std::uint32_t divisions = 0;
  if (MaybeError error = read_divisions(pair.value, divisions)) return error;
  if (pair.key.text == ">") {
    written.rest = divisions;
    return std::nullopt;
  }
  const auto key = read_number<std::uint32_t>(pair.key.text);
  if (!key || !is_power_of_two(*key) || *key > kLargestRoundupKey) {
    return refuse(pair.key, fmt::format("is neither a power of two from 1 to {} (MB) nor '>'",
                                        kLargestRoundupKey));
  }
  written.interval[static_cast<std::size_t>(std::countr_zero(*key))] = divisions;
  return std::nullopt;
}

// The first key holds below itself too, a gap takes the nearest lower key, `rest` all above the
// last.
RoundupDivisions fill_gaps(const WrittenDivisions& written) {
  RoundupDivisions filled{};
  const auto is_written = [](const auto& value) { return value.has_value(); };
  const auto first = std::find_if(written.interval.begin(), written.interval.end(), is_written);
  const auto after_last =
      std::find_if(written.interval.rbegin(), written.interval.rend(), is_written).base();
  std::uint32_t current = first != written.interval.end() ? **first : 0;
  auto out = filled.begin();
  for (auto it = written.interval.begin(); it != written.interval.end(); ++it, ++out) {
    if (it->has_value()) current = **it;
    if (it == after_last && written.rest) current = *written.rest;
    *out = current;
  }
  return filled;
}

MaybeError apply_roundup(const ConfigItem& item, Config& config) {
  if (!item.is_list) {
    std::uint32_t divisions = 0;
    if (MaybeError error = read_divisions(item.value, divisions)) return error;
    config.roundup_power2_divisions.fill(divisions);
    return std::nullopt;
  }
  WrittenDivisions written;
  for (const ConfigPair& pair : item.pairs) {
    if (MaybeError error = read_division_pair(pair, written)) return error;
  }
  config.roundup_power2_divisions = fill_gaps(written);
  return std::nullopt;
}

MaybeError apply_max_split(const ConfigItem& item, Config& config) {
  if (!item.is_list && item.value.text == "unlimited") {
    config.max_split_bytes = kUnlimited;
    return std::nullopt;
  }
  return read_megabytes(item, 1, config.max_split_bytes);
}

MaybeError apply_threshold(const ConfigItem& item, Config& config) {
  double threshold = 0.0;
  if (MaybeError error = read_fraction(item, threshold)) return error;
  if (threshold == 1.0) return refuse(item.value, "would never be passed");
  config.garbage_collection_threshold = threshold;
  return std::nullopt;
}

MaybeError apply_release_lock(const ConfigItem& item, Config&) {
  return expect_only(item, "True", {"False"},
                     "is not possible: Quarry never holds its lock during a driver allocation, "
                     "since a host function that allocates would deadlock");
}

MaybeError apply_graph_pools(const ConfigItem& item, Config& config) {
  config.automatic_graph_pools = item.value.text == "automatic";
  if (config.automatic_graph_pools) return check_scalar(item);
  return expect_only(item, "begin", {}, {});
}

MaybeError apply_segments(const ConfigItem& item, Config& config) {
  config.expandable_segments = item.value.text == "expandable";
  if (config.expandable_segments) return check_scalar(item);
  return expect_only(item, "plain", {"auto"}, "is planned for a later version and not built yet");
}

MaybeError apply_cross_stream_reuse(const ConfigItem& item, Config& config) {
  if (item.value.text == "off") {
    config.cross_stream_reuse = CrossStreamReuse::kOff;
  } else if (item.value.text == "idle") {
    config.cross_stream_reuse = CrossStreamReuse::kIdle;
  } else {
    config.cross_stream_reuse = CrossStreamReuse::kWait;
    return expect_only(item, "wait", {}, {});
  }
  return check_scalar(item);
}

MaybeError apply_recycle(const ConfigItem& item, Config& config) {
  if (item.value.text == "off") {
    config.recycle = Recycle::kOff;
  } else if (item.value.text == "passed") {
    config.recycle = Recycle::kPassed;
  } else {
    config.recycle = Recycle::kStream;
    return expect_only(item, "stream", {}, {});
  }
  return check_scalar(item);
}

MaybeError apply_extent_handle_types(const ConfigItem& item, Config& config) {
  using HandleType = ExtentKind::HandleType;
  if (item.value.text == "posix_fd") {
    config.extent_handle_types = HandleType::kFileDescriptor;
  } else if (item.value.text == "fabric") {
    config.extent_handle_types = HandleType::kFabric;
  } else {
    config.extent_handle_types = HandleType::kNone;
    return expect_only(item, "none", {}, {});
  }
  return check_scalar(item);
}

MaybeError apply_rdma(const ConfigItem& item, Config& config) {
  config.rdma = item.value.text == "auto";
  if (config.rdma) return check_scalar(item);
  return expect_only(item, "off", {}, {});
}

constexpr std::string_view kReservesElsewhere =
    "is not needed: addresses are reserved for the whole device, and more when they are used up";

constexpr ConfigOption kOptions[] = {
    {"large_segment_size_mb", "MB", "a whole number above 10", "20",
     "Size of the segments that serve requests between 1 MiB and 10 MiB.",
     [](const ConfigItem& i, Config& c) { return read_megabytes(i, 11, c.large_segment_bytes); }},
    {"max_split_size_mb", "MB", "a whole number, at least large_segment_size_mb, or 'unlimited'",
     "unlimited", "Blocks of this size or more are never split, and serve only requests as large.",
     apply_max_split},
    {"max_non_split_rounding_mb", "MB", "a whole number, at least large_segment_size_mb, or 20",
     "20", "How much larger than an oversize request the cached block that serves it may be.",
     [](const ConfigItem& i, Config& c) {
       return read_megabytes(i, 1, c.max_non_split_rounding_bytes);
     }},
    {"garbage_collection_threshold", "fraction", "a number in (0, 1), or 0 for off", "0",
     "Above this part of the limit, old cached segments are given back before growing.",
     apply_threshold},
    {"roundup_power2_divisions", "divisions",
     "0, a power of two, or a list [MB:divisions,...,>:divisions] of powers of two", "0",
     "Steps between a power of two and the next to which sizes are rounded.", apply_roundup},
    {"per_process_memory_fraction", "fraction", "a number in [0, 1]", "1",
     "Part of the device's memory that this process may reserve.",
     [](const ConfigItem& i, Config& c) {
       return read_fraction(i, c.per_process_memory_fraction);
     }},
    {"throw_on_cudamalloc_oom", "True or False", "True or False", "False",
     "Refuse growth above the fraction at once, without giving cached memory back first.",
     [](const ConfigItem& i, Config& c) { return read_bool(i, c.throw_on_cudamalloc_oom); }},
    {"upstream_quirks", "True or False", "True or False", "True",
     "Keep two defects of PyTorch's allocator, so that every decision equals its own.",
     [](const ConfigItem& i, Config& c) { return read_bool(i, c.upstream_quirks); }},
    {"graph_capture_reclaim", "True or False", "True or False", "True",
     "Inside captures, too, give cached memory back to make room; PyTorch refuses instead.",
     [](const ConfigItem& i, Config& c) { return read_bool(i, c.graph_capture_reclaim); }},
    {"graph_capture_record_stream_reuse", "True or False", "True or False", "False",
     "Inside a capture, reuse what other streams of it used once the graph proves the order.",
     [](const ConfigItem& i, Config& c) {
       return read_bool(i, c.graph_capture_record_stream_reuse);
     }},
    {"graph_pools", "word", "begin or automatic", "begin",
     "Pools of captures: begun by calls, or made for each graph, by asking the driver every time.",
     [](const ConfigItem& i, Config& c) { return apply_graph_pools(i, c); }},
    {"segments", "word", "plain or expandable", "plain",
     "Plain segments are one driver allocation each; expandable ones grow and give back in parts.",
     apply_segments},
    {"expandable_segments", "True or False", "True or False", "False",
     "PyTorch's name of segments: True is segments:expandable, False is segments:plain.",
     [](const ConfigItem& i, Config& c) { return read_bool(i, c.expandable_segments); }},
    {"cross_stream_reuse", "word", "off, idle or wait", "wait",
     "Expandable segments: whether a stream gets what another freed, when done or after waiting.",
     apply_cross_stream_reuse},
    {"recycle", "word", "off, passed or stream", "stream",
     "Expandable segments: which idle memory moves to where it is needed instead of growing.",
     apply_recycle},
    {"reserve_slack", "fraction", "a number in [0, 1]", "0.02",
     "Expandable segments: what may be reserved beyond the highest amount allocated.",
     [](const ConfigItem& i, Config& c) { return read_fraction(i, c.reserve_slack); }},
    {"extent_handle_types", "word", "none, posix_fd or fabric", "none",
     "Expandable segments: by which handles other processes may get the memory, where possible.",
     apply_extent_handle_types},
    {"rdma", "word", "auto or off", "auto",
     "Expandable segments: make memory that network cards can use, where the device can.",
     apply_rdma},
    {"thread_cache", "True or False", "True or False", "True",
     "Serve repeated sizes from magazines of the calling thread, without a lock.",
     [](const ConfigItem& i, Config& c) { return read_bool(i, c.thread_cache); }},
    {"backend", "word", "native", "native",
     "PyTorch's choice of allocator: native is Quarry's own, the only one here.",
     [](const ConfigItem& i, Config&) {
       return expect_only(i, "native", {"cudaMallocAsync"},
                          "is the driver's own allocator; Quarry has only the native backend");
     }},
    {"release_lock_on_cudamalloc", "True or False", "True", "True",
     "No lock is held during driver allocations; Quarry always works so.", apply_release_lock},
    {"release_lock_on_hipmalloc", "True or False", "True", "True",
     "PyTorch's second name of release_lock_on_cudamalloc.", apply_release_lock},
};

// Keys of upstream's and of later versions, so that a message can say more than "unknown".
struct ForeignKey {
  std::string_view name;
  std::string_view reason;
};
constexpr std::string_view kLater = "is planned for a later version and not built yet";
constexpr ForeignKey kForeignKeys[] = {
    {"expandable_segments_reserve", kReservesElsewhere},
    {"expandable_segments_reserve_by_class", kReservesElsewhere},
    {"extent_mb", kLater},
    {"seal", kLater},
    {"stream_identity", kLater},
    {"growth", kLater},
    {"deterministic", kLater},
    {"debug", kLater},
    {"free", kLater},
};

}  // namespace

std::span<const ConfigOption> get_config_options() {
  return kOptions;
}

const ConfigOption* find_config_option(std::string_view name) {
  const auto found = std::find_if(std::begin(kOptions), std::end(kOptions),
                                  [&](const ConfigOption& option) { return option.name == name; });
  return found != std::end(kOptions) ? found : nullptr;
}

std::string_view explain_foreign_key(std::string_view name) {
  constexpr std::string_view kPinned = "is about pinned host memory, which Quarry does not pool";
  if (name.starts_with("pinned_")) return kPinned;
  for (const ForeignKey& key : kForeignKeys) {
    if (key.name == name) return key.reason;
  }
  return {};
}

}  // namespace quarry
