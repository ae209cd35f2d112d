// SPDX-License-Identifier: Apache-2.0
#include "tools/simulated_work.hpp"

#include <string>
#include <utility>

namespace quarry::tools {
namespace {

constexpr DeviceId kDevice = 0;

sim::SimOptions make_sim_options(Bytes device_memory_bytes, bool oracle) {
  sim::SimOptions options;
  options.physical_bytes = device_memory_bytes;
  options.oracle = oracle;
  return options;
}

}  // namespace

SimulatedWork::SimulatedWork(Bytes device_memory_bytes, std::uint64_t gpu_lag_us, bool oracle)
    : driver_(make_sim_options(device_memory_bytes, oracle)),
      device_memory_bytes_(device_memory_bytes),
      gpu_lag_us_(gpu_lag_us),
      oracle_(oracle),
      submits_work_(oracle || gpu_lag_us != 0) {}

void SimulatedWork::observe_segments(std::function<void(Bytes)> observer) {
  // A fault plan that fails nothing.
  const auto note_size = [observer = std::move(observer)](Bytes bytes) {
    observer(bytes);
    return false;
  };
  driver_.fail_calls_if(DriverEntry::kAllocate, note_size, DriverCode::kOutOfMemory);
}

DriverResult<StreamRef> SimulatedWork::create_stream() {
  // No stream of a trace orders itself after others, as blocking ones would.
  return driver_.create_stream(kDevice, sim::StreamKind::kNonBlocking);
}

void SimulatedWork::advance_to_us(std::uint64_t time_us) {
  now_us_ = time_us;
  driver_.advance_to_us(time_us);
}

DriverCode SimulatedWork::begin_use(ReplayBlock& block) {
  block.lifetime = sim::LifetimeId::kNone;
  if (oracle_) {
    block.lifetime = driver_.begin_lifetime(kDevice, block.address, block.bytes, block.stream);
  }
  submit(block.stream, block.lifetime);
  return DriverCode::kSuccess;
}

DriverCode SimulatedWork::use_elsewhere(const ReplayBlock& block, StreamRef stream) {
  if (submits_work_) static_cast<void>(driver_.user_orders(block.stream, stream));
  submit(stream, block.lifetime);
  return DriverCode::kSuccess;
}

DriverCode SimulatedWork::end_use(const ReplayBlock& block) {
  submit(block.stream, block.lifetime);
  for (const StreamRef stream : block.recorded)
    submit(stream, block.lifetime);
  if (oracle_) driver_.end_lifetime(block.lifetime);
  return DriverCode::kSuccess;
}

void SimulatedWork::submit(StreamRef stream, sim::LifetimeId lifetime) {
  if (!submits_work_) return;
  const std::uint64_t end_us = now_us_ + gpu_lag_us_;
  const sim::WorkTime time = sim::WorkTime::until_ns(end_us * sim::kNsPerUs);
  const bool has_use = lifetime != sim::LifetimeId::kNone;
  static_cast<void>(driver_.submit_work(stream, time, {&lifetime, has_use ? 1u : 0u}));
}

void SimulatedWork::read_driver_figures(ReplayResult& result) const {
  result.driver_calls = driver_.call_count();
  result.driver_time_ns = driver_.driver_time_ns();
}

Status SimulatedWork::close(ReplayResult& result) {
  result.device_memory_bytes = device_memory_bytes_;
  result.hazards = driver_.hazard_count();
  if (result.hazards != 0) result.first_hazard = driver_.get_hazards().front().text;
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
