// SPDX-License-Identifier: Apache-2.0
// The replay loop. It is measured (events per second), so an event costs no allocation of host
// memory once as many blocks have lived at once as ever will.
#include "tools/replayer.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.hpp"

namespace quarry::tools {
namespace {

constexpr DeviceId kDevice = 0;
// Later times (in nanoseconds beyond 64 bits) all count as this one.
constexpr std::uint64_t kMaxTimeUs = kMaxGpuLagUs;

sim::SimOptions make_sim_options(const ReplayOptions& options) {
  sim::SimOptions sim_options;
  sim_options.physical_bytes = options.device_memory_bytes;
  sim_options.oracle = options.oracle;
  return sim_options;
}

Status make_allocator_failure(const char* call, const Status& status) {
  return Status(status.code(), std::string(call) + " failed: " + std::string(status.message()));
}

}  // namespace

double ReplayResult::calculate_events_per_second() const noexcept {
  if (loop_ns == 0) return 0.0;
  const auto events = static_cast<double>(trace.allocs + trace.frees + trace.records);
  return events * 1e9 / static_cast<double>(loop_ns);
}

Result<std::unique_ptr<Replayer>> Replayer::create(const ReplayOptions& options) {
  std::unique_ptr<Replayer> replayer(new Replayer(options));
  Result<std::unique_ptr<Allocator>> allocator =
      Allocator::create(replayer->driver_, options.config);
  if (!allocator.is_ok()) return std::move(allocator).status();
  replayer->allocator_ = std::move(allocator).value();
  return replayer;
}

Replayer::Replayer(const ReplayOptions& options)
    : options_(options),
      driver_(make_sim_options(options)),
      submits_work_(options.oracle || options.gpu_lag_us != 0) {
  QUARRY_CHECK_GE(kMaxGpuLagUs, options_.gpu_lag_us);
  if (!options_.compare_segments) return;
  // A fault plan that fails nothing and sees the size of every segment that is asked for.
  const auto note_size = [this](Bytes bytes) {
    segments_.add_replayed(bytes);
    return false;
  };
  driver_.fail_calls_if(DriverEntry::kAllocate, note_size, DriverCode::kOutOfMemory);
}

Replayer::~Replayer() = default;

Status Replayer::replay(std::span<const TraceEvent> events) {
  const auto start = std::chrono::steady_clock::now();
  Status status;
  for (const TraceEvent& event : events) {
    status = replay_event(event);
    if (!status.is_ok()) break;
  }
  result_.loop_ns += static_cast<std::uint64_t>(
      std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count());
  return status;
}

Status Replayer::replay_event(const TraceEvent& event) {
  TraceSlot slot = 0;
  const TraceFault fault = checker_.check(event, slot);
  if (fault != TraceFault::kNone) [[unlikely]] {
    return Status(StatusCode::kInvalidArgument, explain(fault, event));
  }
  advance_time(event.time_us);
  if (options_.validate && event_count() >= next_validation_) {
    next_validation_ += kValidateEvents;
    allocator_->validate();
  }
  switch (event.op) {
    case TraceOp::kAlloc:
      return replay_alloc(event, slot);
    case TraceOp::kFree:
      return replay_free(holdings_[slot]);
    case TraceOp::kRecordStream:
      return replay_record(event, holdings_[slot]);
    case TraceOp::kSegmentAlloc:
      if (options_.compare_segments) segments_.add_recorded(event.bytes);
      return Status::ok();
    case TraceOp::kSegmentFree:
      return Status::ok();
  }
  return Status::ok();
}

Status Replayer::replay_alloc(const TraceEvent& event, TraceSlot slot) {
  if (slot >= holdings_.size()) holdings_.resize(slot + 1);
  Holding& holding = holdings_[slot];
  holding.stream = find_stream(event.stream);
  holding.address = 0;
  holding.lifetime = sim::LifetimeId::kNone;
  holding.is_out_of_memory = false;
  holding.recorded.clear();
  Result<Address> address = allocator_->allocate(holding.stream, event.bytes);
  if (!address.is_ok()) {
    if (address.code() != StatusCode::kOutOfMemory) {
      return make_allocator_failure("allocate", address.status());
    }
    ++result_.ooms;
    holding.is_out_of_memory = true;
    return Status::ok();
  }
  if (event.bytes == 0) {
    ++result_.empty_requests;
    return Status::ok();
  }
  holding.address = address.value();
  if (options_.oracle) {
    holding.lifetime =
        driver_.begin_lifetime(kDevice, holding.address, event.bytes, holding.stream);
  }
  submit_work(holding.stream, holding.lifetime);
  return Status::ok();
}

Status Replayer::replay_free(Holding& holding) {
  if (holding.address == 0) {
    result_.rows_after_oom += holding.is_out_of_memory ? 1 : 0;
    return Status::ok();
  }
  submit_work(holding.stream, holding.lifetime);
  for (const StreamRef stream : holding.recorded)
    submit_work(stream, holding.lifetime);
  if (options_.oracle) driver_.end_lifetime(holding.lifetime);
  Status status = allocator_->free(std::exchange(holding.address, 0));
  return status.is_ok() ? Status::ok() : make_allocator_failure("free", status);
}

Status Replayer::replay_record(const TraceEvent& event, Holding& holding) {
  if (holding.address == 0) {
    result_.rows_after_oom += holding.is_out_of_memory ? 1 : 0;
    return Status::ok();
  }
  const StreamRef stream = find_stream(event.stream);
  Status status = allocator_->record_stream(holding.address, stream.handle);
  if (!status.is_ok()) return make_allocator_failure("record_stream", status);
  if (stream == holding.stream) return Status::ok();
  if (submits_work_) static_cast<void>(driver_.user_orders(holding.stream, stream));
  submit_work(stream, holding.lifetime);
  const auto place = std::find(holding.recorded.begin(), holding.recorded.end(), stream);
  if (place == holding.recorded.end()) holding.recorded.push_back(stream);
  return Status::ok();
}

StreamRef Replayer::find_stream(std::uint64_t number) {
  if (number == latest_stream_) return latest_stream_ref_;
  auto place = streams_.find(number);
  if (place == streams_.end()) {
    // No stream of a trace orders itself after others, as blocking ones would.
    const StreamRef stream = driver_.create_stream(kDevice, sim::StreamKind::kNonBlocking);
    place = streams_.emplace(number, stream).first;
  }
  latest_stream_ = number;
  latest_stream_ref_ = place->second;
  return latest_stream_ref_;
}

void Replayer::advance_time(std::uint64_t time_us) {
  if (time_us <= latest_time_us_) return;
  latest_time_us_ = std::min(time_us, kMaxTimeUs);
  driver_.advance_to_us(latest_time_us_);
}

void Replayer::submit_work(StreamRef stream, sim::LifetimeId lifetime) {
  if (!submits_work_) return;
  const std::uint64_t end_us = latest_time_us_ + options_.gpu_lag_us;
  const sim::WorkTime time = sim::WorkTime::until_ns(end_us * sim::kNsPerUs);
  const bool has_use = lifetime != sim::LifetimeId::kNone;
  static_cast<void>(driver_.submit_work(stream, time, {&lifetime, has_use ? 1u : 0u}));
}

Result<ReplayResult> Replayer::finish() {
  if (options_.validate) allocator_->validate();
  // Before the statistics, which ask the driver too.
  result_.driver_calls = driver_.call_count();
  result_.driver_time_ns = driver_.driver_time_ns();
  Result<DeviceStats> stats = allocator_->get_stats(kDevice);
  if (!stats.is_ok()) return std::move(stats).status();
  result_.trace = checker_.totals();
  result_.peak_allocated_bytes = static_cast<Bytes>(stats.value().allocated_bytes.all.peak);
  result_.peak_active_bytes = static_cast<Bytes>(stats.value().active_bytes.all.peak);
  result_.peak_reserved_bytes = static_cast<Bytes>(stats.value().reserved_bytes.all.peak);
  segments_.finish();
  result_.has_recorded_segments = segments_.has_recorded();
  result_.equal_segments = segments_.equal_count();
  result_.segment_difference = segments_.difference();
  if (Status status = free_all(); !status.is_ok()) return status;
  result_.hazards = driver_.hazard_count();
  if (result_.hazards != 0) result_.first_hazard = driver_.get_hazards().front().text;
  return std::move(result_);
}

// The end of the program: what still lives is freed, then the allocator goes.
Status Replayer::free_all() {
  for (Holding& holding : holdings_) {
    if (holding.address == 0) continue;
    if (Status status = replay_free(holding); !status.is_ok()) return status;
  }
  if (options_.validate) allocator_->validate();
  allocator_.reset();
  if (driver_.misuse_count() != 0) {
    return Status(StatusCode::kInternal,
                  "the allocator misused the driver: " + driver_.get_misuses().front().text);
  }
  const SimDriver::Holdings left = driver_.get_holdings(kDevice);
  if (left.physical_bytes == 0 && left.events == 0) return Status::ok();
  return Status(StatusCode::kInternal, "the allocator did not give back " +
                                           std::to_string(left.physical_bytes) + " bytes and " +
                                           std::to_string(left.events) + " events");
}

}  // namespace quarry::tools
