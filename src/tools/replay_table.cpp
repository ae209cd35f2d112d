// SPDX-License-Identifier: Apache-2.0
// Outcomes of replays as a table for people.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "tools/number_text.hpp"
#include "tools/replay_outcome.hpp"

namespace quarry::tools {
namespace {

// Two header lines, then the cells. The first column of a table is left-aligned.
struct Column {
  std::string title;
  std::string unit;
  std::vector<std::string> cells;
};

// In the column's MiB; amounts that would show as next to nothing name their own unit.
std::string format_mib(Bytes bytes) {
  if (bytes == 0) return "0";
  if (bytes < 1_KiB) return fmt::format("{} B", bytes);
  const bool is_small = bytes < 1_MiB;
  const Bytes unit = is_small ? 1_KiB : 1_MiB;
  // The whole part apart: ten times the amount may exceed 64 bits.
  const Bytes tenths = (bytes % unit * 10 + unit / 2) / unit;
  return fmt::format("{}.{}{}", format_count(bytes / unit + tenths / 10), tenths % 10,
                     is_small ? " KiB" : "");
}

// By outcome: the trace's label, or its path where another trace has that label.
std::vector<std::string> make_trace_names(const std::vector<ReplayOutcome>& outcomes) {
  std::map<std::string, std::set<std::string>> paths_of_label;
  for (const ReplayOutcome& outcome : outcomes)
    paths_of_label[make_trace_label(outcome.trace)].insert(outcome.trace);
  std::vector<std::string> names;
  for (const ReplayOutcome& outcome : outcomes) {
    const std::string label = make_trace_label(outcome.trace);
    names.push_back(paths_of_label[label].size() == 1 ? label : outcome.trace);
  }
  return names;
}

std::string format_ratio(const ReplayResult& result) {
  if (result.trace.peak_bytes == 0) return "-";
  return fmt::format("{:.3f}", static_cast<double>(result.peak_reserved_bytes) /
                                   static_cast<double>(result.trace.peak_bytes));
}

std::string format_deviation(const ReplayOutcome& outcome) {
  if (!outcome.pytorch_reserved_bytes.has_value() || *outcome.pytorch_reserved_bytes == 0) {
    return "-";
  }
  const Bytes theirs = *outcome.pytorch_reserved_bytes;
  const Bytes ours = outcome.result.peak_reserved_bytes;
  if (ours == theirs) return "equal";
  const double percent = (static_cast<double>(ours) / static_cast<double>(theirs) - 1.0) * 100.0;
  return fmt::format("{:+.2f} %", percent);
}

std::vector<std::string> collect_confs(const std::vector<ReplayOutcome>& outcomes) {
  std::vector<std::string> confs;
  for (const ReplayOutcome& outcome : outcomes) {
    const bool is_known = std::find(confs.begin(), confs.end(), outcome.conf) != confs.end();
    if (!is_known) confs.push_back(outcome.conf);
  }
  return confs;
}

using Format = std::string (*)(const ReplayOutcome&);

void add_column(std::vector<Column>& columns, const std::vector<ReplayOutcome>& outcomes,
                std::string title, std::string unit, Format format) {
  Column column{std::move(title), std::move(unit), {}};
  for (const ReplayOutcome& outcome : outcomes) {
    column.cells.push_back(outcome.error.empty() ? format(outcome) : std::string("-"));
  }
  columns.push_back(std::move(column));
}

void add_memory_columns(std::vector<Column>& columns, const std::vector<ReplayOutcome>& outcomes,
                        const ReportStyle& style) {
  add_column(columns, outcomes, "trace peak", "MiB",
             [](const ReplayOutcome& o) { return format_mib(o.result.trace.peak_bytes); });
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    if (!outcomes[i].error.empty()) columns.back().cells[i] = "failed";
  }
  add_column(columns, outcomes, "allocated", "MiB",
             [](const ReplayOutcome& o) { return format_mib(o.result.peak_allocated_bytes); });
  add_column(columns, outcomes, "active", "MiB",
             [](const ReplayOutcome& o) { return format_mib(o.result.peak_active_bytes); });
  add_column(columns, outcomes, "reserved", "bytes",
             [](const ReplayOutcome& o) { return format_count(o.result.peak_reserved_bytes); });
  if (style.has_reference) {
    add_column(columns, outcomes, "PyTorch", "bytes", [](const ReplayOutcome& o) {
      const auto& bytes = o.pytorch_reserved_bytes;
      return bytes.has_value() ? format_count(*bytes) : std::string("-");
    });
    add_column(columns, outcomes, "against", "PyTorch", format_deviation);
  }
  add_column(columns, outcomes, "ratio", "",
             [](const ReplayOutcome& o) { return format_ratio(o.result); });
}

void add_cost_columns(std::vector<Column>& columns, const std::vector<ReplayOutcome>& outcomes,
                      const ReportStyle& style) {
  add_column(columns, outcomes, "driver", "calls",
             [](const ReplayOutcome& o) { return format_count(o.result.driver_calls); });
  add_column(columns, outcomes, "driver", "ms", [](const ReplayOutcome& o) {
    return fmt::format("{:.1f}", static_cast<double>(o.result.driver_time_ns) / 1e6);
  });
  add_column(columns, outcomes, "events/s", "million", [](const ReplayOutcome& o) {
    return fmt::format("{:.2f}", o.events_per_second / 1e6);
  });
  if (style.has_oracle) {
    add_column(columns, outcomes, "hazards", "",
               [](const ReplayOutcome& o) { return format_count(o.result.hazards); });
  }
  if (style.has_touch) {
    add_column(columns, outcomes, "touched", "GiB", [](const ReplayOutcome& o) {
      if (!o.result.touch.has_value()) return std::string("-");
      return fmt::format("{:.1f}", static_cast<double>(o.result.touch->touched_bytes) /
                                       static_cast<double>(1_GiB));
    });
    add_column(columns, outcomes, "wrong", "words", [](const ReplayOutcome& o) {
      if (!o.result.touch.has_value()) return std::string("-");
      return format_count(o.result.touch->wrong_words);
    });
  }
  add_column(columns, outcomes, "OOMs", "",
             [](const ReplayOutcome& o) { return format_count(o.result.ooms); });
  if (style.has_segments) {
    add_column(columns, outcomes, "segments", "", [](const ReplayOutcome& o) {
      if (!o.result.has_recorded_segments) return std::string("-");
      return std::string(o.result.segment_difference.empty() ? "equal" : "differ");
    });
  }
}

std::string print_columns(const std::vector<Column>& columns) {
  std::vector<std::string> lines(2 + columns.front().cells.size());
  for (const Column& column : columns) {
    std::size_t width = std::max(column.title.size(), column.unit.size());
    for (const std::string& cell : column.cells)
      width = std::max(width, cell.size());
    const bool is_first = &column == &columns.front();
    const auto place = [width, is_first](const std::string& text) {
      return is_first ? fmt::format("{:<{}}", text, width) : fmt::format("  {:>{}}", text, width);
    };
    lines[0] += place(column.title);
    lines[1] += place(column.unit);
    for (std::size_t i = 0; i < column.cells.size(); ++i)
      lines[2 + i] += place(column.cells[i]);
  }
  std::string text;
  for (std::string& line : lines) {
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string format_device(const std::vector<ReplayOutcome>& outcomes, const ReportStyle& style) {
  if (style.driver == DriverKind::kSim) {
    return fmt::format("device memory: {} bytes, GPU lag: {} us\n",
                       format_count(style.device_memory_bytes), format_count(style.gpu_lag_us));
  }
  Bytes bytes = 0;
  for (const ReplayOutcome& outcome : outcomes)
    bytes = std::max(bytes, outcome.result.device_memory_bytes);
  return fmt::format("CUDA device 0, {} bytes; GPU {}; blocks {}; driver time measured\n",
                     format_count(bytes), style.is_in_step ? "in step with the host" : "free",
                     style.has_touch ? "filled and checked" : "not touched");
}

}  // namespace

std::string make_trace_label(const std::string& path) {
  std::string label = path.substr(path.rfind('/') + 1);
  for (const std::string_view suffix : {".gz", ".csv", ".qtrace"}) {
    if (label.ends_with(suffix) && label != suffix) label.resize(label.size() - suffix.size());
  }
  return label;
}

std::string shorten_conf(const std::string& conf) {
  constexpr std::size_t kShownBytes = 200;
  std::string text;
  for (const char c : conf.substr(0, kShownBytes)) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      text += "\\n";
    } else if (byte < 0x20 || byte >= 0x7f) {
      text += fmt::format("\\x{:02x}", byte);
    } else {
      text += c;
    }
  }
  return conf.size() > kShownBytes ? text + "..." : text;
}

std::string format_table(const std::vector<ReplayOutcome>& outcomes, const ReportStyle& style) {
  const std::vector<std::string> confs = collect_confs(outcomes);
  std::string text;
  for (std::size_t i = 0; i < confs.size(); ++i) {
    text += confs.size() == 1 ? "configuration: " : fmt::format("configuration {}: ", i + 1);
    text += shorten_conf(confs[i]) + "\n";
  }
  text += format_device(outcomes, style);
  std::vector<Column> columns = {{"trace", "", make_trace_names(outcomes)}};
  if (confs.size() > 1) {
    Column column{"conf", "", {}};
    for (const ReplayOutcome& outcome : outcomes) {
      const auto place = std::find(confs.begin(), confs.end(), outcome.conf);
      column.cells.push_back(std::to_string(place - confs.begin() + 1));
    }
    columns.push_back(std::move(column));
  }
  add_memory_columns(columns, outcomes, style);
  add_cost_columns(columns, outcomes, style);
  return text + "\n" + print_columns(columns);
}

}  // namespace quarry::tools
