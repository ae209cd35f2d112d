// SPDX-License-Identifier: Apache-2.0
// The user side of the simulated device: what a program does with its GPU, and what a test asks.
// None of it is counted, costed or subject to the fault plan.
#include <algorithm>
#include <utility>

#include "sim/sim_driver.hpp"
#include "sim/sim_state.hpp"

namespace quarry {

using sim::GraphId;
using sim::GraphUse;
using sim::LifetimeId;
using sim::MemoryRange;
using sim::StreamIndex;

namespace {

constexpr auto kIllegalState = static_cast<DriverCode>(401);  // CUDA_ERROR_ILLEGAL_STATE

}  // namespace

std::uint64_t SimDriver::now_ns() const {
  MutexLock lock(state_->mutex);
  return state_->clock.now_ns();
}

void SimDriver::advance_to_ns(std::uint64_t ns) {
  const FiringLock lock(*state_);
  state_->clock.advance_to(ns);
}

void SimDriver::advance_by_ns(std::uint64_t ns) {
  const FiringLock lock(*state_);
  state_->clock.advance_by(ns);
}

StreamRef SimDriver::create_stream(DeviceId device, sim::StreamKind kind) {
  MutexLock lock(state_->mutex);
  QUARRY_CHECK(state_->is_device(device));
  return state_->streams.at(state_->streams.create(device, kind)).ref;
}

DriverCode SimDriver::destroy_stream(StreamRef ref) {
  const FiringLock lock(*state_);
  StreamIndex index{};
  const DriverCode code = state_->find_stream(ref, std::nullopt, index);
  if (code != DriverCode::kSuccess) return code;
  sim::Stream& stream = state_->streams.at(index);
  if (stream.is_legacy) return DriverCode::kInvalidHandle;
  if (stream.capture != 0) {
    const DriverCode lost = DriverCode::kCaptureUnsupported;
    state_->captures.lose(*state_->captures.find(stream.capture), {std::nullopt, lost});
    return lost;
  }
  state_->streams.destroy(index);
  return code;
}

StreamRef SimDriver::get_per_thread_stream(DeviceId device, sim::ThreadId thread) {
  MutexLock lock(state_->mutex);
  QUARRY_CHECK(state_->is_device(device));
  return state_->streams.at(state_->streams.per_thread(device, thread)).ref;
}

DriverCode SimDriver::submit_work(StreamRef ref, sim::WorkTime time,
                                  std::span<const LifetimeId> uses) {
  const FiringLock lock(*state_);
  StreamIndex index{};
  const DriverCode code = state_->submit(ref, time, index);
  if (code != DriverCode::kSuccess) return code;
  for (const LifetimeId use : uses) {
    state_->note_use(state_->streams.at(index), {use, state_->oracle.find_range(use)});
  }
  return code;
}

DriverCode SimDriver::submit_work(StreamRef ref, sim::WorkTime time, MemoryRange use) {
  const FiringLock lock(*state_);
  StreamIndex index{};
  const DriverCode code = state_->submit(ref, time, index);
  if (code != DriverCode::kSuccess) return code;
  state_->note_use(state_->streams.at(index), {LifetimeId::kNone, use});
  return code;
}

void SimDriver::complete(StreamRef ref) {
  const FiringLock lock(*state_);
  StreamIndex index{};
  if (state_->find_stream(ref, std::nullopt, index) != DriverCode::kSuccess) return;
  state_->streams.complete(index);
}

bool SimDriver::is_idle(StreamRef ref) const {
  MutexLock lock(state_->mutex);
  StreamIndex index{};
  if (state_->find_stream(ref, std::nullopt, index) != DriverCode::kSuccess) return true;
  return state_->streams.at(index).end_ns <= state_->clock.now_ns();
}

DriverCode SimDriver::user_orders(StreamRef before, StreamRef after) {
  const FiringLock lock(*state_);
  StreamIndex first{};
  StreamIndex second{};
  DriverCode code = state_->find_stream(before, std::nullopt, first);
  if (code == DriverCode::kSuccess) code = state_->find_stream(after, std::nullopt, second);
  if (code != DriverCode::kSuccess) return code;
  const sim::Mark mark = state_->streams.mark(first);
  state_->streams.wait(second, {&mark, 1});
  return code;
}

DriverCode SimDriver::user_synchronizes(StreamRef ref) {
  const FiringLock lock(*state_);
  StreamIndex index{};
  const DriverCode code = state_->find_stream(ref, std::nullopt, index);
  if (code != DriverCode::kSuccess) return code;
  if (state_->wait_on_host({state_->streams.mark(index)})) return code;
  state_->note_misuse(sim::MisuseKind::kDeadlock, std::nullopt, "behind endless work");
  return DriverCode::kUnknown;
}

DriverCode SimDriver::begin_capture(StreamRef ref, CaptureMode mode) {
  const FiringLock lock(*state_);
  StreamIndex index{};
  const DriverCode code = state_->find_stream(ref, std::nullopt, index);
  if (code != DriverCode::kSuccess) return code;
  const sim::Stream& stream = state_->streams.at(index);
  if (stream.is_legacy) return DriverCode::kCaptureUnsupported;
  if (stream.capture != 0) return kIllegalState;
  state_->captures.begin(index, mode, sim::get_this_thread());
  return code;
}

DriverResult<GraphId> SimDriver::end_capture(StreamRef ref) {
  const FiringLock lock(*state_);
  StreamIndex index{};
  const DriverCode code = state_->find_stream(ref, std::nullopt, index);
  if (code != DriverCode::kSuccess) return code;
  const sim::Stream& stream = state_->streams.at(index);
  if (stream.capture == 0) return kIllegalState;
  const sim::Capture& capture = *state_->captures.find(stream.capture);
  if (capture.origin != index) return DriverCode::kCaptureUnmatched;
  const bool is_wrong_thread =
      capture.mode != CaptureMode::kRelaxed && capture.thread != sim::get_this_thread();
  if (is_wrong_thread) return DriverCode::kCaptureWrongThread;
  return state_->captures.end(index);
}

DriverCode SimDriver::launch_graph(GraphId id, StreamRef ref, sim::WorkTime time) {
  const FiringLock lock(*state_);
  sim::Graph* graph = state_->captures.find_graph(id);
  if (graph == nullptr) return DriverCode::kInvalidHandle;
  return state_->launch(*graph, ref, time);
}

DriverCode SimDriver::destroy_graph(GraphId graph) {
  const FiringLock lock(*state_);
  return state_->captures.destroy_graph(graph) ? DriverCode::kSuccess : DriverCode::kInvalidHandle;
}

std::vector<sim::LostCapture> SimDriver::get_lost_captures() const {
  MutexLock lock(state_->mutex);
  return state_->captures.lost();
}

void SimDriver::set_current_device(DeviceId device) {
  MutexLock lock(state_->mutex);
  state_->this_thread().current_device = device;
}

DeviceId SimDriver::get_current_device() const {
  MutexLock lock(state_->mutex);
  return state_->this_thread().current_device;
}

void SimDriver::set_callback_thread(bool is_callback) {
  MutexLock lock(state_->mutex);
  state_->this_thread().is_callback = is_callback;
}

void SimDriver::reset_device(DeviceId device) {
  const FiringLock lock(*state_);
  QUARRY_CHECK(state_->is_device(device));
  state_->captures.forget_device(device);
  state_->streams.reset_device(device);
  state_->events.reset_device(device);
  state_->freed.clear();
  state_->memory.virtual_memory().reset_device(device, state_->freed);
  sim::PlainMemory& plain = state_->memory.plain(device);
  while (!plain.allocations().empty()) {
    state_->freed.push_back(plain.free(plain.allocations().begin()->first)->physical);
  }
  state_->drop_freed();
}

void SimDriver::set_physical_bytes(DeviceId device, Bytes bytes) {
  MutexLock lock(state_->mutex);
  state_->memory.budget(device).set_limit(bytes);
}

void SimDriver::set_external_bytes(DeviceId device, Bytes bytes) {
  MutexLock lock(state_->mutex);
  state_->memory.budget(device).set_external(bytes);
}

LifetimeId SimDriver::begin_lifetime(DeviceId device, Address address, Bytes bytes,
                                     StreamRef ref) {
  if (!state_->options.oracle) return LifetimeId::kNone;
  MutexLock lock(state_->mutex);
  StreamIndex index{};
  if (!state_->is_device(device)) return LifetimeId::kNone;
  if (state_->find_stream(ref, std::nullopt, index) != DriverCode::kSuccess) {
    return LifetimeId::kNone;
  }
  const sim::Actor actor = state_->actor_of(state_->streams.at(index));
  return state_->oracle.begin(device, {address, bytes}, actor);
}

void SimDriver::end_lifetime(LifetimeId lifetime) {
  if (!state_->options.oracle) return;
  MutexLock lock(state_->mutex);
  state_->oracle.end(lifetime);
}

void SimDriver::use(LifetimeId lifetime, StreamRef stream) {
  if (!state_->options.oracle) return;
  static_cast<void>(submit_work(stream, {}, {&lifetime, 1}));
}

void SimDriver::use(MemoryRange range, StreamRef stream) {
  if (!state_->options.oracle) return;
  static_cast<void>(submit_work(stream, {}, range));
}

sim::RegistrationId SimDriver::register_memory(MemoryRange range) {
  if (!state_->options.oracle) return sim::RegistrationId::kNone;
  MutexLock lock(state_->mutex);
  const auto id = static_cast<sim::RegistrationId>(++state_->last_registration);
  return state_->oracle.add_registration(id, range) ? id : sim::RegistrationId::kNone;
}

void SimDriver::deregister_memory(sim::RegistrationId registration) {
  MutexLock lock(state_->mutex);
  state_->oracle.drop_registration(registration);
}

std::uint64_t SimDriver::hazard_count() const {
  MutexLock lock(state_->mutex);
  return state_->oracle.hazard_count();
}

std::vector<sim::Hazard> SimDriver::get_hazards() const {
  MutexLock lock(state_->mutex);
  return state_->oracle.hazards();
}

void SimDriver::clear_hazards() {
  MutexLock lock(state_->mutex);
  state_->oracle.clear_hazards();
}

}  // namespace quarry
