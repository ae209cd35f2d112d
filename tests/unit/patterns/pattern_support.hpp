// SPDX-License-Identifier: Apache-2.0
// Makes traces of patterns by name, and takes them apart.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "patterns/pattern.hpp"
#include "trace/trace_checker.hpp"

namespace quarry::patterns {

using Settings = std::vector<std::pair<std::string, std::string>>;

inline Result<PatternTrace> try_pattern(const Pattern& pattern, const Settings& settings,
                                        std::uint64_t seed = 0,
                                        std::optional<std::vector<Request>> requests = {}) {
  PatternInput input{make_knob_values(pattern), std::move(requests)};
  for (const auto& [name, text] : settings) {
    if (Status status = input.knobs.set(name, text); !status.is_ok()) return status;
  }
  return make_trace(pattern, input, seed);
}

inline std::vector<TraceEvent> make_events(const std::string& name, const Settings& settings,
                                           std::optional<std::vector<Request>> requests = {}) {
  const Pattern* const pattern = find_pattern(name);
  EXPECT_NE(pattern, nullptr);
  if (pattern == nullptr) return {};
  Result<PatternTrace> trace = try_pattern(*pattern, settings, 0, std::move(requests));
  EXPECT_TRUE(trace.is_ok()) << trace.status().message();
  return trace.is_ok() ? std::move(trace).value().events : std::vector<TraceEvent>();
}

// Empty: the trace was made.
inline std::string explain_failure(const std::string& name, const Settings& settings,
                                   std::optional<std::vector<Request>> requests = {}) {
  const Pattern* const pattern = find_pattern(name);
  EXPECT_NE(pattern, nullptr);
  if (pattern == nullptr) return {};
  return std::string(try_pattern(*pattern, settings, 0, std::move(requests)).status().message());
}

// How often each size was asked for.
inline std::map<Bytes, int> count_sizes(const std::vector<TraceEvent>& events) {
  std::map<Bytes, int> counts;
  for (const TraceEvent& event : events) {
    if (event.op == TraceOp::kAlloc) ++counts[event.bytes];
  }
  return counts;
}

inline std::set<std::uint64_t> collect_streams(const std::vector<TraceEvent>& events) {
  std::set<std::uint64_t> streams;
  for (const TraceEvent& event : events) {
    if (event.op == TraceOp::kAlloc) streams.insert(event.stream);
  }
  return streams;
}

inline std::vector<TraceEvent> select(const std::vector<TraceEvent>& events, TraceOp op) {
  std::vector<TraceEvent> selected;
  for (const TraceEvent& event : events) {
    if (event.op == op) selected.push_back(event);
  }
  return selected;
}

inline std::map<std::uint64_t, TraceEvent> map_allocs(const std::vector<TraceEvent>& events) {
  std::map<std::uint64_t, TraceEvent> allocs;
  for (const TraceEvent& event : select(events, TraceOp::kAlloc))
    allocs[event.id] = event;
  return allocs;
}

// A model whose layers are cheap to count: one layer, hidden states of 128 bytes a token.
inline Settings make_small_model(Settings more) {
  Settings settings = {{"layers", "1"},   {"hidden", "64"}, {"heads", "4"},
                       {"kv-heads", "2"}, {"ffn", "96"},    {"vocab", "1000"}};
  settings.insert(settings.end(), more.begin(), more.end());
  return settings;
}

}  // namespace quarry::patterns
