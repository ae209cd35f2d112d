// SPDX-License-Identifier: Apache-2.0
#include "bench/policy_model/policy_trace.hpp"

#include <algorithm>
#include <filesystem>
#include <unordered_map>
#include <utility>

#include "tools/trace_file.hpp"

namespace quarry::policy_model {
namespace {

constexpr std::size_t kBatchEvents = 4096;

class PolicyTraceBuilder {
 public:
  Status add(const TraceEvent& event) {
    TraceSlot slot = 0;
    const TraceFault fault = checker_.check(event, slot);
    if (fault != TraceFault::kNone) {
      return Status(StatusCode::kInvalidArgument, explain(fault, event));
    }
    if (trace_.events.empty() && checker_.totals().events == 1) first_us_ = event.time_us;
    now_us_ = std::max(now_us_, event.time_us);
    if (event.op == TraceOp::kSegmentAlloc || event.op == TraceOp::kSegmentFree) {
      return Status::ok();
    }
    PolicyEvent& added = trace_.events.emplace_back();
    added.time_us = now_us_;
    added.op = event.op;
    added.slot = slot;
    added.bytes = round_up(event.op == TraceOp::kAlloc ? event.bytes : 0, kTraceGranularity);
    if (event.op != TraceOp::kFree) return number_stream(event.stream, added.stream);
    return Status::ok();
  }

  PolicyTrace finish() {
    trace_.totals = checker_.totals();
    trace_.slot_count = checker_.slot_count();
    trace_.stream_count = static_cast<std::uint32_t>(streams_.size());
    trace_.span_us = now_us_ - std::min(first_us_, now_us_);
    return std::move(trace_);
  }

 private:
  Status number_stream(std::uint64_t stream, std::uint32_t& number) {
    number =
        streams_.try_emplace(stream, static_cast<std::uint32_t>(streams_.size())).first->second;
    if (number < kMaxStreams) return Status::ok();
    return Status(StatusCode::kNotSupported, "more than 64 streams");
  }

  TraceChecker checker_;
  std::unordered_map<std::uint64_t, std::uint32_t> streams_;
  PolicyTrace trace_;
  std::uint64_t first_us_ = 0;
  std::uint64_t now_us_ = 0;
};

}  // namespace

Result<PolicyTrace> read_policy_trace(const std::string& path) {
  Result<std::unique_ptr<tools::TraceFile>> file = tools::TraceFile::open(path, true);
  if (!file.is_ok()) return std::move(file).status();
  Result<std::unique_ptr<TraceReader>> reader = file.value()->rewind();
  if (!reader.is_ok()) return std::move(reader).status();
  PolicyTraceBuilder builder;
  std::vector<TraceEvent> batch(kBatchEvents);
  for (std::uint64_t before = 0;;) {
    Result<std::size_t> count = reader.value()->read(batch);
    if (!count.is_ok()) return std::move(count).status();
    if (count.value() == 0) break;
    for (std::size_t i = 0; i < count.value(); ++i) {
      const Status status = builder.add(batch[i]);
      if (!status.is_ok()) {
        return Status(status.code(), reader.value()->describe_place(before + i) + ": " +
                                         std::string(status.message()));
      }
    }
    before += count.value();
  }
  PolicyTrace trace = builder.finish();
  trace.name = std::filesystem::path(path).filename().string();
  trace.name = trace.name.substr(0, trace.name.find('.'));
  return trace;
}

}  // namespace quarry::policy_model
