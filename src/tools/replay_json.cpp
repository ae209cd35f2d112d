// SPDX-License-Identifier: Apache-2.0
// Outcomes of replays as JSON objects. Fields are only ever added.
#include <cmath>
#include <nlohmann/json.hpp>

#include "tools/replay_outcome.hpp"

namespace quarry::tools {

std::string format_json(const ReplayOutcome& outcome, const ReportStyle& style) {
  nlohmann::ordered_json json;
  json["trace"] = outcome.trace;
  json["conf"] = outcome.conf;
  const bool is_real = style.driver == DriverKind::kCuda;
  json["driver"] = is_real ? "cuda" : "sim";
  if (is_real) {
    json["in_step"] = style.is_in_step;
  } else {
    json["device_memory_bytes"] = style.device_memory_bytes;
    json["gpu_lag_us"] = style.gpu_lag_us;
  }
  const auto dump = [&json] {
    // A path may hold bytes that are no UTF-8.
    return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  };
  if (!outcome.error.empty()) {
    json["error"] = outcome.error;
    return dump();
  }
  const ReplayResult& result = outcome.result;
  if (is_real) json["device_memory_bytes"] = result.device_memory_bytes;
  json["allocs"] = result.trace.allocs;
  json["frees"] = result.trace.frees;
  json["record_streams"] = result.trace.records;
  json["trace_peak_bytes"] = result.trace.peak_bytes;
  json["peak_allocated_bytes"] = result.peak_allocated_bytes;
  json["peak_active_bytes"] = result.peak_active_bytes;
  json["peak_reserved_bytes"] = result.peak_reserved_bytes;
  json["ooms"] = result.ooms;
  json["rows_after_oom"] = result.rows_after_oom;
  json["empty_requests"] = result.empty_requests;
  json["hazards"] = style.has_oracle ? nlohmann::ordered_json(result.hazards) : nullptr;
  if (result.touch.has_value()) {
    json["touched_bytes"] = result.touch->touched_bytes;
    json["wrong_words"] = result.touch->wrong_words;
  }
  json["driver_calls"] = result.driver_calls;
  json["driver_time_us"] = static_cast<double>(result.driver_time_ns) / 1e3;
  json["events_per_second"] = std::round(outcome.events_per_second);
  if (style.has_segments) {
    const bool can_compare = result.has_recorded_segments;
    const nlohmann::ordered_json none;
    json["segments_equal"] =
        can_compare ? nlohmann::ordered_json(result.segment_difference.empty()) : none;
    json["equal_segments"] = can_compare ? nlohmann::ordered_json(result.equal_segments) : none;
    json["segment_difference"] =
        can_compare ? nlohmann::ordered_json(result.segment_difference) : none;
  }
  if (outcome.pytorch_reserved_bytes.has_value()) {
    json["pytorch_peak_reserved_bytes"] = *outcome.pytorch_reserved_bytes;
  }
  return dump();
}

}  // namespace quarry::tools
