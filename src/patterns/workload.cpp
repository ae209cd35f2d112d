// SPDX-License-Identifier: Apache-2.0
#include "patterns/workload.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "trace/trace_checker.hpp"

namespace quarry::patterns {
namespace {

// 30 years, which no trace lasts: clocks stop there instead of beginning anew.
constexpr Moment kLastMoment = 1'000'000'000'000'000'000;
constexpr Moment kNsPerUs = 1000;

Status check_rows(const std::vector<TraceEvent>& rows) {
  TraceChecker checker;
  for (const TraceEvent& row : rows) {
    TraceSlot slot = 0;
    const TraceFault fault = checker.check(row, slot);
    if (fault == TraceFault::kNone) continue;
    // Only sizes come from the knobs; the rest is a pattern's own fault.
    QUARRY_CHECK(fault == TraceFault::kTooLarge || fault == TraceFault::kTooMuch);
    return Status(StatusCode::kInvalidArgument,
                  "these knobs ask for too much: " + explain(fault, row));
  }
  return Status::ok();
}

}  // namespace

Tensor Workload::allocate(Bytes bytes, Stream stream) {
  const Tensor tensor{++last_id_, bytes, stream};
  add_row(TraceOp::kAlloc, tensor, stream, stream);
  return tensor;
}

Tensor Workload::keep(Bytes bytes, Stream stream) {
  ++kept_count_;
  return allocate(bytes, stream);
}

Tensor Workload::keep_loaded(Bytes bytes) {
  const Tensor tensor = keep(bytes);
  load(bytes);
  return tensor;
}

void Workload::load(Bytes bytes) {
  advance(0, bytes / rates_.load_gb_per_s);
}

void Workload::free_by(const Tensor& tensor, Stream caller) {
  add_row(TraceOp::kFree, tensor, tensor.stream, caller);
}

void Workload::record_stream_by(const Tensor& tensor, Stream user, Stream caller) {
  add_row(TraceOp::kRecordStream, tensor, user, caller);
}

void Workload::run(Stream stream, std::uint64_t operations, Bytes moved) {
  const Moment computing = operations / multiply(rates_.tflops, 1000);
  const Moment moving = moved / rates_.memory_gb_per_s;
  advance(stream, multiply(sharing_threads_, std::max(computing, moving)));
}

void Workload::send(Stream stream, Bytes sent) {
  advance(stream, sent / rates_.link_gb_per_s);
}

void Workload::wait(Stream stream, Moment until) {
  clock(stream) = std::max(clock(stream), std::min(until, kLastMoment));
}

void Workload::assign_thread(Stream stream, std::uint32_t thread) {
  get_state(stream).thread = thread;
}

Workload::StreamState& Workload::get_state(Stream stream) {
  if (stream >= streams_.size()) streams_.resize(std::size_t{stream} + 1);
  return streams_[stream];
}

void Workload::advance(Stream stream, Moment nanoseconds) {
  Moment& time = clock(stream);
  time = std::min(kLastMoment, time + std::min(nanoseconds, kLastMoment) + DeviceRates::kLaunchNs);
}

void Workload::add_row(TraceOp op, const Tensor& tensor, Stream stream, Stream caller) {
  if (is_full()) return;
  const StreamState& state = get_state(caller);
  if (state.thread >= threads_.size()) threads_.resize(std::size_t{state.thread} + 1);
  Moment& now = threads_[state.thread];
  now = std::max(now, state.clock);
  const Bytes bytes = op == TraceOp::kAlloc ? tensor.bytes : 0;
  rows_.push_back({now / kNsPerUs, tensor.id, bytes, stream, op});
}

Result<std::vector<TraceEvent>> Workload::finish() {
  if (is_full()) {
    return Status(StatusCode::kInvalidArgument, "these knobs ask for too much: a trace of " +
                                                    std::to_string(kMostRows) + " rows or more");
  }
  // Rows of equal times stay in the order in which they were written, which is that of causes.
  std::stable_sort(rows_.begin(), rows_.end(),
                   [](const TraceEvent& a, const TraceEvent& b) { return a.time_us < b.time_us; });
  std::vector<std::uint64_t> new_ids(last_id_ + 1);
  std::uint64_t count = 0;
  for (TraceEvent& row : rows_) {
    if (row.op == TraceOp::kAlloc) new_ids[row.id] = ++count;
    row.id = new_ids[row.id];
  }
  if (Status status = check_rows(rows_); !status.is_ok()) return status;
  return std::move(rows_);
}

}  // namespace quarry::patterns
