// SPDX-License-Identifier: Apache-2.0
// The patterns: kinds of workload, as LLM servers, image models and training jobs make them, that
// a seed and a few knobs turn into traces. A table of all, and the one function that makes a
// trace. The same pattern, knobs, requests and seed give the same trace on every platform.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.hpp"
#include "patterns/knob.hpp"
#include "patterns/request_file.hpp"
#include "patterns/workload.hpp"
#include "trace/trace_event.hpp"

namespace quarry::patterns {

struct PatternInput {
  KnobValues knobs;
  std::optional<std::vector<Request>> requests;  // only where the pattern takes a request file
};

struct Pattern {
  std::string_view name;
  std::string_view summary;     // one line
  std::string_view at_end;      // what lives at the end; the rest is freed
  std::span<const Knob> knobs;  // besides those of every pattern
  Status (*act)(const PatternInput& input, Workload& workload);
  bool takes_requests = false;
};

struct PatternTrace {
  std::vector<TraceEvent> events;
  std::size_t kept_count = 0;  // allocations that live at the end
};

// In the order in which they are listed.
std::span<const Pattern* const> list_patterns();
// Null: there is none of that name.
const Pattern* find_pattern(std::string_view name);
// Those of the pattern and those of every pattern, which say how fast the device is.
KnobValues make_knob_values(const Pattern& pattern);

// Fails where knobs contradict each other or ask for too much.
Result<PatternTrace> make_trace(const Pattern& pattern, const PatternInput& input,
                                std::uint64_t seed);

}  // namespace quarry::patterns
