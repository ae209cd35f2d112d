// SPDX-License-Identifier: Apache-2.0
// The operations on streams, captures, settings and the device.
#include <algorithm>

#include "core/size_policy.hpp"
#include "tests/model/state.hpp"

namespace quarry::model {
namespace {

constexpr std::uint64_t kLongNs = 1'000'000'000;

std::string describe(const char* call, StatusCode code) {
  return std::string(call) + " answered " + std::string(get_name(code));
}

void end_capture(State& state, UserStream& stream) {
  state.graphs().end(state.graphs().find(stream)->number);
}

void complete(State& state, UserStream& stream) {
  stream.has_endless_work = false;
  state.sim().complete(stream.ref);
}

// The handle is dead for the user: no block's work is there any more.
void begin_generation(State& state, UserStream& stream, sim::StreamKind next_kind) {
  state.pools().move_replays(stream);
  ++stream.name.generation;
  ++state.tally.retired_streams;
  if (!stream.is_made) return;
  if (stream.has_endless_work) complete(state, stream);
  if (state.sim().destroy_stream(stream.ref) != DriverCode::kSuccess) {
    state.fail("the simulator refused to destroy a stream: a fault of this test");
  }
  stream.kind = next_kind;
  stream.ref = state.sim().create_stream(stream.ref.device, next_kind);
  stream.handle = stream.ref.handle;
}

void set_gate(State& state, bool is_held) {
  if (state.is_gate_held == is_held) return;
  state.is_gate_held = is_held;
  if (is_held) {
    state.allocator().free_gate().lock();
  } else if (!state.allocator().free_gate().unlock()) {
    state.fail("the free gate forgot its holder");
  }
}

}  // namespace

void Busy::perform(State& state) const {
  state.submit(state.stream(stream), sim::WorkTime::endless());
}

void Complete::perform(State& state) const {
  complete(state, state.stream(stream));
}

void Advance::perform(State& state) const {
  state.sim().advance_by_ns(ns);
}

void Order::perform(State& state) const {
  state.order(state.stream(before), state.stream(after));
}

void Synchronize::perform(State& state) const {
  UserStream& on = state.stream(stream);
  if (!state.is_usable(on)) return;
  static_cast<void>(state.sim().user_synchronizes(on.ref));
}

void Retire::perform(State& state) const {
  UserStream& on = state.stream(stream);
  const std::optional<Caller> as = state.choose_caller(on, caller);
  if (!as) return;
  const StreamRef told{on.ref.device, on.handle};
  const StatusCode code =
      state.call_as(*as, [&] { return state.allocator().retire_stream(told); }).code();
  if (on.handle == StreamHandle::kLegacy) {  // never ends
    if (code != StatusCode::kInvalidArgument) state.fail(describe("retire_stream", code));
    return;
  }
  // A stream that the allocator has not met needs no retirement: kOk even then.
  const bool may_be_busy = *as == Caller::kDriverCallback || !state.is_usable(on);
  if (code == StatusCode::kBusy && may_be_busy) return;
  if (code == StatusCode::kDriverError && state.are_faults_possible) return;
  if (code == StatusCode::kBusy && state.are_faults_possible) return;
  if (code != StatusCode::kOk) return state.fail(describe("retire_stream", code));
  state.pools().forget_stream(on, state.thread_life(*as));
  if (may_be_busy) return;
  begin_generation(state, on, next_kind);
}

void RetireThread::perform(State& state) const {
  const Caller as = state.choose_caller(caller);
  state.call_as(as, [&] {
    state.allocator().retire_thread_streams();
    return true;
  });
  const int thread = as == Caller::kDriverCallback ? 0 : static_cast<int>(as);
  for (UserStream& on : state.streams()) {
    if (on.thread != thread) continue;
    begin_generation(state, on, on.kind);
    state.pools().forget_stream(on, state.thread_life(as));
  }
}

void EndThread::perform(State& state) const {
  const Caller as = state.choose_caller(caller);
  if (as == Caller::kMain || as == Caller::kDriverCallback) return;
  const int thread = static_cast<int>(as);
  for (UserStream& on : state.streams()) {
    const bool is_its_own = on.thread == thread;
    if (on.capturing_thread && (is_its_own || *on.capturing_thread == thread)) {
      end_capture(state, on);
    }
    if (is_its_own) complete(state, on);
  }
  RetireThread{as}.perform(state);
  const std::size_t ended = state.pools().end_routes_of_thread(state.thread_life(as));
  if (state.call_as(as, [&] { return state.allocator().end_thread_pools(); }) != ended) {
    state.fail("end_thread_pools ended another number of routes");
  }
  state.replace_thread(thread);
  ++state.tally.ended_threads;
}

void BeginCapture::perform(State& state) const {
  UserStream& on = state.stream(stream);
  if (on.capturing_thread || on.handle == StreamHandle::kLegacy) return;
  const Caller as =
      caller == Caller::kDriverCallback ? Caller::kMain : state.choose_caller(caller);
  const DriverCode code =
      state.call_as(as, [&] { return state.sim().begin_capture(on.ref, mode); });
  if (code != DriverCode::kSuccess) state.fail("begin_capture: " + quarry::describe(code));
  state.graphs().begin(on, as);
}

void EndCapture::perform(State& state) const {
  UserStream& on = state.stream(stream);
  if (on.capturing_thread) end_capture(state, on);
}

void EmptyCache::perform(State& state) const {
  const DeviceId on = state.device(device);
  const Caller as = state.choose_caller(caller);
  const StatusCode code =
      state.call_as(as, [&] { return state.allocator().empty_cache(on); }).code();
  const bool may_be_busy = state.is_gate_held || as == Caller::kDriverCallback;
  if (code == StatusCode::kBusy && may_be_busy) return;
  if (code == StatusCode::kDriverError && state.are_faults_possible) return;
  if (code != StatusCode::kOk) return state.fail(describe("empty_cache", code));
  const DeviceStats now = state.stats(on);
  const Bytes held = state.calculate_kept_bytes(on);
  state.touch_pools();
  const auto reserved = static_cast<Bytes>(now.reserved_bytes.all.current);
  const bool is_exact = now.pending_bytes == 0 && !state.are_faults_possible && !state.is_full(on);
  if (reserved < held || (is_exact && reserved != held)) {
    state.fail("empty_cache left " + std::to_string(reserved) + " bytes, blocks are held in " +
               std::to_string(held));
  }
}

void Configure::perform(State& state) const {
  Config config;
  config.large_segment_bytes = static_cast<Bytes>(large_segment_mib) << 20;
  if (max_split_mib > 0) config.max_split_bytes = static_cast<Bytes>(max_split_mib) << 20;
  config.max_non_split_rounding_bytes = static_cast<Bytes>(max_non_split_rounding_mib) << 20;
  config.roundup_power2_divisions.fill(static_cast<std::uint32_t>(divisions));
  config.garbage_collection_threshold = garbage_percent / 100.0;
  config.per_process_memory_fraction = fraction_percent / 100.0;
  config.throw_on_cudamalloc_oom = rejects_early;
  config.upstream_quirks = upstream_quirks;
  config.thread_cache = thread_cache;
  config.expandable_segments = state.options().expandable;
  config.graph_capture_reclaim = graph_capture_reclaim;
  config.graph_capture_record_stream_reuse = record_stream_reuse;
  using HandleType = ExtentKind::HandleType;
  config.extent_handle_types = handle_types == 0   ? HandleType::kNone
                               : handle_types == 1 ? HandleType::kFileDescriptor
                                                   : HandleType::kFabric;
  config.rdma = rdma;
  state.allocator().configure(config);
  if (state.allocator().get_config() != config) state.fail("configure did not take");
}

void SetLimit::perform(State& state) const {
  const DeviceId on = state.device(device);
  const bool is_set = state.allocator().set_limit(on, bytes).is_ok();
  if (!is_set || state.allocator().get_limit(on).value() != bytes) {
    state.fail("set_limit did not take");
  }
}

void SetFraction::perform(State& state) const {
  const DeviceId on = state.device(device);
  const double fraction = percent / 100.0;
  const StatusCode code = state.allocator().set_memory_fraction(on, fraction).code();
  const bool is_valid = percent >= 0 && percent <= 100;
  if (code != (is_valid ? StatusCode::kOk : StatusCode::kInvalidArgument)) {
    state.fail(describe("set_memory_fraction", code));
  }
  if (is_valid && state.allocator().get_memory_fraction(on).value() != fraction) {
    state.fail("set_memory_fraction did not take");
  }
}

void SetExternal::perform(State& state) const {
  state.sim().set_external_bytes(state.device(device), bytes);
}

void HoldGate::perform(State& state) const {
  set_gate(state, is_held);
}

void OfferSlot::perform(State& state) const {
  state.offered_slot = slot;
}

void ResetStats::perform(State& state) const {
  const DeviceId on = state.device(device);
  DeviceLedger& own = state.ledger().devices[static_cast<std::size_t>(on)];
  if (is_peak) {
    static_cast<void>(state.allocator().reset_peak_stats(on));
    own.peak_bytes = own.bytes;
    return;
  }
  const DeviceStats before = state.stats(on);
  static_cast<void>(state.allocator().reset_accumulated_stats(on));
  const DeviceStats after = state.stats(on);
  own.risen_bytes = own.fallen_bytes = 0;
  own.ooms = after.num_ooms;
  own.size_mismatches = after.size_mismatches;
  state.ledger().invalid_frees += after.invalid_frees - before.invalid_frees;
  if (after.num_ooms > 0) state.fail("reset_accumulated_stats left num_ooms");
}

void Quiesce::perform(State& state) const {
  set_gate(state, false);
  while (!state.graphs().active().empty())
    state.graphs().end(state.graphs().active().front().number);
  for (UserStream& on : state.streams())
    complete(state, on);
  state.sim().advance_by_ns(kLongNs);
  // Each thread in turn, because only it can seal the fences of its default streams.
  const int threads = state.options().threads;
  for (int i = 0; i < threads * state.options().device_count; ++i) {
    EmptyCache{i / threads, static_cast<Caller>(i % threads)}.perform(state);
  }
  if (state.are_faults_possible) return;
  for (int i = 0; i < state.pools().count(); ++i) {
    if (state.pools().at(i).use_count > 0) TrimPool{i}.perform(state);
  }
  state.check_quiet();
}

}  // namespace quarry::model
