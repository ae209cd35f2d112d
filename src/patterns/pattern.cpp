// SPDX-License-Identifier: Apache-2.0
#include "patterns/pattern.hpp"

#include <utility>

#include "base/check.hpp"
#include "patterns/pattern_table.hpp"

namespace quarry::patterns {
namespace {

constexpr const Pattern* kPatterns[] = {
    &kKvConcat,           &kKvStatic,        &kBatchWobble,  &kChunkedPrefill,
    &kContinuousBatching, &kTwoBatchOverlap, &kMoe,          &kGraphBuckets,
    &kShardedLayers,      &kRaggedTraining,  &kUnet,         &kServerThreads,
    &kOneShotStream,      &kGrowingScratch,  &kWeightSwizzle};

constexpr Knob kDeviceKnobs[] = {
    {"tflops", 400, 1, 1'000'000, "10^12 operations/s", "Arithmetic that the device reaches"},
    {"memory-gb-per-s", 3300, 1, 1'000'000, "10^9 bytes/s", "Memory traffic that it reaches"},
    {"load-gb-per-s", 20, 1, 1'000'000, "10^9 bytes/s", "Reading of weights at the start"},
};

}  // namespace

std::span<const Pattern* const> list_patterns() {
  return kPatterns;
}

const Pattern* find_pattern(std::string_view name) {
  for (const Pattern* const pattern : kPatterns) {
    if (pattern->name == name) return pattern;
  }
  return nullptr;
}

KnobValues make_knob_values(const Pattern& pattern) {
  std::vector<Knob> knobs(pattern.knobs.begin(), pattern.knobs.end());
  knobs.insert(knobs.end(), std::begin(kDeviceKnobs), std::end(kDeviceKnobs));
  return KnobValues(std::move(knobs));
}

Result<PatternTrace> make_trace(const Pattern& pattern, const PatternInput& input,
                                std::uint64_t seed) {
  QUARRY_CHECK(pattern.takes_requests || !input.requests.has_value());
  DeviceRates rates;
  rates.tflops = input.knobs.get("tflops");
  rates.memory_gb_per_s = input.knobs.get("memory-gb-per-s");
  rates.load_gb_per_s = input.knobs.get("load-gb-per-s");
  if (input.knobs.has("link-gb-per-s")) rates.link_gb_per_s = input.knobs.get("link-gb-per-s");
  Workload workload(rates, seed);
  if (Status status = pattern.act(input, workload); !status.is_ok()) return status;
  Result<std::vector<TraceEvent>> events = workload.finish();
  if (!events.is_ok()) return std::move(events).status();
  return PatternTrace{std::move(events).value(), workload.kept_count()};
}

}  // namespace quarry::patterns
