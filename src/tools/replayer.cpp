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

Status make_allocator_failure(const char* call, const Status& status) {
  return Status(status.code(), std::string(call) + " failed: " + std::string(status.message()));
}

Status make_device_failure(DriverCode code) {
  return Status(StatusCode::kDriverError, "the device failed: " + describe(code));
}

}  // namespace

double ReplayResult::calculate_events_per_second() const noexcept {
  if (loop_ns == 0) return 0.0;
  const auto events = static_cast<double>(trace.allocs + trace.frees + trace.records);
  return events * 1e9 / static_cast<double>(loop_ns);
}

Result<std::unique_ptr<Replayer>> Replayer::create(const ReplayOptions& options) {
  Result<ReplayWork> work = make_replay_work(options);
  if (!work.is_ok()) return std::move(work).status();
  return create(options, std::move(work).value());
}

Result<std::unique_ptr<Replayer>> Replayer::create(const ReplayOptions& options, ReplayWork work) {
  std::unique_ptr<Replayer> replayer(new Replayer(options, std::move(work)));
  Result<std::unique_ptr<Allocator>> allocator = replayer->with_work(
      [&options](auto& device) { return Allocator::create(device.driver(), options.config); });
  if (!allocator.is_ok()) return std::move(allocator).status();
  replayer->allocator_ = std::move(allocator).value();
  if (replayer->allocator_->device_count() > 0) return replayer;
  return Status(StatusCode::kNotSupported, "the driver has no device");
}

Replayer::Replayer(const ReplayOptions& options, ReplayWork work)
    : options_(options), work_(std::move(work)) {
  QUARRY_CHECK_GE(kMaxGpuLagUs, options_.gpu_lag_us);
  if (!options_.compare_segments) return;
  with_work([this](auto& device) {
    device.observe_segments([this](Bytes bytes) { segments_.add_replayed(bytes); });
  });
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
      return replay_free(blocks_[slot]);
    case TraceOp::kRecordStream:
      return replay_record(event, blocks_[slot]);
    case TraceOp::kSegmentAlloc:
      if (options_.compare_segments) segments_.add_recorded(event.bytes);
      return Status::ok();
    case TraceOp::kSegmentFree:
      return Status::ok();
  }
  return Status::ok();
}

Status Replayer::replay_alloc(const TraceEvent& event, TraceSlot slot) {
  if (slot >= blocks_.size()) blocks_.resize(slot + 1);
  ReplayBlock& block = blocks_[slot];
  if (Status status = find_stream(event.stream, block.stream); !status.is_ok()) return status;
  block.address = 0;
  block.bytes = event.bytes;
  block.number = checker_.totals().allocs - 1;
  block.is_out_of_memory = false;
  block.recorded.clear();
  Result<Address> address = allocator_->allocate(block.stream, event.bytes);
  if (!address.is_ok()) {
    if (address.code() != StatusCode::kOutOfMemory) {
      return make_allocator_failure("allocate", address.status());
    }
    ++result_.ooms;
    block.is_out_of_memory = true;
    return Status::ok();
  }
  if (event.bytes == 0) {
    ++result_.empty_requests;
    return Status::ok();
  }
  block.address = address.value();
  const DriverCode code = with_work([&block](auto& work) { return work.begin_use(block); });
  return code == DriverCode::kSuccess ? Status::ok() : make_device_failure(code);
}

Status Replayer::replay_free(ReplayBlock& block) {
  if (block.address == 0) {
    result_.rows_after_oom += block.is_out_of_memory ? 1 : 0;
    return Status::ok();
  }
  DriverCode code = with_work([&block](auto& work) { return work.end_use(block); });
  if (code != DriverCode::kSuccess) return make_device_failure(code);
  Status status = allocator_->free(std::exchange(block.address, 0));
  if (!status.is_ok()) return make_allocator_failure("free", status);
  code = with_work([&block](auto& work) { return work.after_free(block); });
  return code == DriverCode::kSuccess ? Status::ok() : make_device_failure(code);
}

Status Replayer::replay_record(const TraceEvent& event, ReplayBlock& block) {
  if (block.address == 0) {
    result_.rows_after_oom += block.is_out_of_memory ? 1 : 0;
    return Status::ok();
  }
  StreamRef stream;
  if (Status status = find_stream(event.stream, stream); !status.is_ok()) return status;
  Status status = allocator_->record_stream(block.address, stream.handle);
  if (!status.is_ok()) return make_allocator_failure("record_stream", status);
  if (stream == block.stream) return Status::ok();
  const DriverCode code =
      with_work([&block, stream](auto& work) { return work.use_elsewhere(block, stream); });
  if (code != DriverCode::kSuccess) return make_device_failure(code);
  const auto place = std::find(block.recorded.begin(), block.recorded.end(), stream);
  if (place == block.recorded.end()) block.recorded.push_back(stream);
  return Status::ok();
}

Status Replayer::find_stream(std::uint64_t number, StreamRef& stream) {
  if (number != latest_stream_) {
    auto place = streams_.find(number);
    if (place == streams_.end()) {
      const DriverResult<StreamRef> made =
          with_work([](auto& work) { return work.create_stream(); });
      if (!made.is_ok()) return make_device_failure(made.code);
      place = streams_.emplace(number, made.value).first;
    }
    latest_stream_ = number;
    latest_stream_ref_ = place->second;
  }
  stream = latest_stream_ref_;
  return Status::ok();
}

void Replayer::advance_time(std::uint64_t time_us) {
  if (time_us <= latest_time_us_) return;
  latest_time_us_ = std::min(time_us, kMaxTimeUs);
  with_work([this](auto& work) { work.advance_to_us(latest_time_us_); });
}

Result<ReplayResult> Replayer::finish() {
  if (options_.validate) allocator_->validate();
  // Before the statistics, which ask the driver too.
  with_work([this](auto& work) { work.read_driver_figures(result_); });
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
  return std::move(result_);
}

// The end of the program: what still lives is freed, then the allocator goes.
Status Replayer::free_all() {
  for (ReplayBlock& block : blocks_) {
    if (block.address == 0) continue;
    if (Status status = replay_free(block); !status.is_ok()) return status;
  }
  if (options_.validate) allocator_->validate();
  allocator_.reset();
  return with_work([this](auto& work) { return work.close(result_); });
}

}  // namespace quarry::tools
