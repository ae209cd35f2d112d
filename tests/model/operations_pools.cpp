// SPDX-License-Identifier: Apache-2.0
// The operations on private pools and routes, and which pool a request must be served from.
#include <algorithm>

#include "tests/model/state.hpp"

namespace quarry::model {
namespace {

void expect_code(State& state, const char* call, StatusCode is, StatusCode should_be) {
  if (is == should_be) return;
  state.fail(std::string(call) + " answered " + std::string(get_name(is)) + ", should be " +
             std::string(get_name(should_be)));
}

std::optional<PoolReport> find_report(State& state, const UserPool& pool) {
  auto report = state.allocator().get_pool_report(pool.device, pool.id);
  if (!report.is_ok()) return std::nullopt;
  return report.value();
}

}  // namespace

// --- Requests ----------------------------------------------------------------------------------

std::optional<Before> prepare_request(State& state, const Allocate& request, UserStream& on,
                                      Caller as) {
  Before before;
  const DeviceId device = on.ref.device;
  UserCapture* const capture = state.graphs().find(on);
  const bool is_captured = capture != nullptr;
  // A user who lost his capture, or who is in a callback, does not ask for memory inside.
  if (is_captured && (capture->is_spoilt || as == Caller::kDriverCallback)) return std::nullopt;
  before.pool = request.pool >= 0 ? state.pools().index_of(device, request.pool)
                                  : state.pools().find(on, state.thread_life(as), false);
  if (before.pool != kDefaultPool) {
    const UserPool& pool = state.pools().at(before.pool);
    if (is_captured && pool.use_count == 0) return std::nullopt;
    if (is_captured) state.graphs().enter_pool(*capture, before.pool);
    if (const auto report = find_report(state, pool)) {
      before.pool_reserved_bytes = static_cast<Bytes>(report->stats.reserved_bytes.current);
    }
    if (pool.functions != nullptr) before.refusal_count = pool.functions->refusal_count();
    state.touch_pools();
  } else if (is_captured) {
    return std::nullopt;
  }
  before.capture = is_captured ? capture->number : 0;
  before.stats = state.stats(device);
  return before;
}

namespace {

// Which pool has a block more than is known; of all, or (as a request to the default pool may have
// been served) of those that lend.
int find_source(State& state, DeviceId device, bool lends) {
  for (int i = 0; i < state.pools().count(); ++i) {
    const UserPool& pool = state.pools().at(i);
    if (pool.device != device || pool.use_count == 0) continue;
    if (lends && !pool.options.use_on_oom) continue;
    const auto report = find_report(state, pool);
    if (report && report->stats.allocations.current == pool.count + 1) return i;
  }
  return kDefaultPool;
}

void check_pool_growth(State& state, const Before& before) {
  const UserPool& pool = state.pools().at(before.pool);
  const auto report = find_report(state, pool);
  if (!report) return state.fail("a pool is gone that served a request");
  const auto reserved = static_cast<Bytes>(report->stats.reserved_bytes.current);
  if (reserved > before.pool_reserved_bytes && reserved > pool.options.limit_bytes) {
    state.fail("a pool reserved more than its limit");
  }
}

void tally_captured(State& state, const UserBlock& block) {
  ++state.tally.captured_allocations;
  for (const UserCapture& capture : state.graphs().active()) {
    if (capture.number != block.capture) continue;
    state.tally.captured_reuses += capture.freed.count(block.address);
  }
}

}  // namespace

void note_pool(State& state, const Before& before, UserBlock& block) {
  block.capture = before.capture;
  block.pool = before.pool;
  if (block.pool == kDefaultPool) {
    block.pool = find_source(state, block.device, true);
    state.tally.borrowed_blocks += block.pool == kDefaultPool ? 0 : 1;
  } else {
    ++state.tally.private_allocations;
    check_pool_growth(state, before);
  }
  if (block.capture != 0) tally_captured(state, block);
  if (block.pool == kDefaultPool) return;
  state.touch_pools();
  const auto info = state.allocator().find_block(block.address);
  if (!info.is_ok()) return;
  state.pools().add(block.pool, block, info.value());
}

// A planted fault lost the capture that the block was asked for in: it may be of any pool, and
// nothing can be said of its uses.
void give_back_at_once(State& state, const Before& before, Address address) {
  const auto info = state.allocator().find_block(address);
  if (!info.is_ok()) return state.fail("a block that was handed out is unknown");
  UserBlock block{};
  block.device = info.value().stream.device;
  block.bytes = info.value().bytes;
  block.pool = find_source(state, block.device, false);
  DeviceLedger& own = state.ledger_of(block.device);
  own.add(block.bytes, info.value().requested_bytes);
  own.remove(block.bytes, info.value().requested_bytes);
  own.pending.push_back({block.bytes, {}});
  if (block.pool != kDefaultPool) {
    state.pools().add(block.pool, block, info.value());
    state.pools().remove(block);
    state.pools().at(block.pool).has_unknown_segments = true;
  }
  if (before.capture == 0) state.fail("a capture was lost that nobody began");
  if (!state.allocator().free(address).is_ok()) state.fail("a block could not be given back");
}

// --- Pools -------------------------------------------------------------------------------------

void RetainPool::perform(State& state) const {
  UserPool& known = state.pools().at(pool);
  const bool exists = find_report(state, known).has_value();
  PoolOptions refused;  // the functions are never called
  refused.backend.on_unused = [&state] { state.fail("unused functions were said to be unused"); };
  const StatusCode expected = state.pools().retain(known, *this, exists);
  const PoolOptions& options = expected == StatusCode::kOk ? known.options : refused;
  const Caller as = state.choose_caller(caller);
  const Status status = state.call_as(
      as, [&] { return state.allocator().retain_pool(known.device, known.id, options); });
  expect_code(state, "retain_pool", status.code(), expected);
  state.touch_pools();
}

void HoldPool::perform(State& state) const {
  UserPool& known = state.pools().at(pool);
  const bool is_held = known.use_count > 0;
  if (is_held) ++known.use_count;
  const Caller as = state.choose_caller(caller);
  const Status status =
      state.call_as(as, [&] { return state.allocator().hold_pool(known.device, known.id); });
  expect_code(state, "hold_pool", status.code(),
              is_held ? StatusCode::kOk : StatusCode::kInvalidArgument);
  state.touch_pools();
}

void ReleasePool::perform(State& state) const {
  UserPool& known = state.pools().at(pool);
  const Caller as = state.choose_caller(caller);
  const bool is_held = known.use_count > 0;
  if (is_held) {
    if (known.use_count == 1) state.graphs().end_all_of_pool(pool % state.pools().count());
    const UserStream* replay = known.replay ? state.find(*known.replay) : nullptr;
    const bool is_last = known.use_count == 1;
    state.tally.pools_released_with_blocks += is_last && known.count > 0 ? 1 : 0;
    const bool is_launched = replay != nullptr && !state.sim().is_idle(replay->ref);
    state.tally.pools_released_with_launches += is_last && is_launched ? 1 : 0;
    state.pools().release(pool % state.pools().count());
  }
  const Status status =
      state.call_as(as, [&] { return state.allocator().release_pool(known.device, known.id); });
  expect_code(state, "release_pool", status.code(),
              is_held ? StatusCode::kOk : StatusCode::kInvalidArgument);
  state.touch_pools();
}

void TrimPool::perform(State& state) const {
  UserPool& known = state.pools().at(pool);
  const Caller as = state.choose_caller(caller);
  const bool exists = find_report(state, known).has_value();
  const StatusCode code =
      state.call_as(as, [&] { return state.allocator().trim_pool(known.device, known.id); })
          .code();
  state.touch_pools();
  if (code == StatusCode::kBusy && (state.is_gate_held || as == Caller::kDriverCallback)) return;
  if (code == StatusCode::kDriverError && state.are_faults_possible) return;
  expect_code(state, "trim_pool", code, exists ? StatusCode::kOk : StatusCode::kInvalidArgument);
  if (code != StatusCode::kOk || state.are_faults_possible || known.has_unknown_segments) return;
  const auto report = find_report(state, known);
  if (!report) return;  // released, and trimmed to nothing
  if (report->stats.active_bytes.current != report->stats.allocated_bytes.current) return;
  const Bytes kept = state.pools().calculate_kept_bytes(pool % state.pools().count());
  // What was obtained for captures and not given to them stays, too.
  const auto reserved = static_cast<Bytes>(report->stats.reserved_bytes.current);
  const bool may_be_more = state.is_full(known.device) ||
                           (state.options().expandable && !known.captured_segments.empty());
  if (reserved < kept || (reserved > kept && !may_be_more)) {
    state.fail("a pool was trimmed to " + std::to_string(report->stats.reserved_bytes.current) +
               " bytes, should be " + std::to_string(kept));
  }
}

void ChangePool::perform(State& state) const {
  UserPool& known = state.pools().at(pool);
  PoolChange change;
  if (limit_mib >= 0) {
    change.limit_bytes = limit_mib == 0 ? kUnlimited : static_cast<Bytes>(limit_mib) << 20;
  }
  if (has_flags) {
    change.use_on_oom = use_on_oom;
    change.no_split = no_split;
  }
  const StatusCode code = state.allocator().change_pool(known.device, known.id, change).code();
  const bool is_held = known.use_count > 0;
  expect_code(state, "change_pool", code,
              is_held ? StatusCode::kOk : StatusCode::kInvalidArgument);
  if (!is_held) return;
  known.options.limit_bytes = change.limit_bytes.value_or(known.options.limit_bytes);
  known.options.use_on_oom = change.use_on_oom.value_or(known.options.use_on_oom);
  known.options.no_split = change.no_split.value_or(known.options.no_split);
}

// --- Routes ------------------------------------------------------------------------------------

namespace {

// True if the route is begun.
bool begin_route(State& state, Route::Kind kind, int pool, const UserStream& on, Caller as) {
  UserPool& known = state.pools().at(pool);
  Route route{kind, known.device, known.id, on.handle, {}};
  if (kind == Route::Kind::kFilter) {
    route.filter = [wanted = on.handle](StreamHandle handle) { return handle == wanted; };
  }
  const bool may_capture = kind == Route::Kind::kCapture || kind == Route::Kind::kFilter;
  known.has_idle_memory |= may_capture;
  const UserRoute own{kind, pool, known.device, on.handle, on.name, state.thread_life(as), 0};
  const StatusCode expected = state.pools().begin_route(own);
  const Status status = state.call_as(as, [&] { return state.allocator().begin_pool(route); });
  expect_code(state, "begin_pool", status.code(), expected);
  state.touch_pools();
  return expected == StatusCode::kOk;
}

}  // namespace

void BeginRoute::perform(State& state) const {
  const int number = pool % state.pools().count();
  UserStream& on = state.stream_of(state.pools().at(number).device, stream);
  const bool names_stream = kind == Route::Kind::kStream || kind == Route::Kind::kCapture;
  const std::optional<Caller> as =
      names_stream ? state.choose_caller(on, caller) : state.choose_caller(caller);
  if (as) begin_route(state, kind, number, on, *as);
}

void EndRoute::perform(State& state) const {
  const int number = pool % state.pools().count();
  const UserPool& known = state.pools().at(number);
  const Caller as = state.choose_caller(caller);
  const StatusCode expected = state.pools().end_route(number, state.thread_life(as));
  const Status status =
      state.call_as(as, [&] { return state.allocator().end_pool(known.device, known.id); });
  expect_code(state, "end_pool", status.code(), expected);
  state.touch_pools();
}

// --- Captures ----------------------------------------------------------------------------------

void CaptureInto::perform(State& state) const {
  UserStream& on = state.stream(stream);
  if (on.capturing_thread || on.handle == StreamHandle::kLegacy) return;
  const std::optional<Caller> as =
      state.choose_caller(on, caller == Caller::kDriverCallback ? Caller::kMain : caller);
  if (!as) return;
  const int number = state.pools().index_of(on.ref.device, pool);
  if (!begin_route(state, Route::Kind::kCapture, number, on, *as)) return;
  const DriverCode code =
      state.call_as(*as, [&] { return state.sim().begin_capture(on.ref, mode); });
  if (code != DriverCode::kSuccess) return state.fail("begin_capture: " + describe(code));
  state.graphs().begin(on, *as);
}

void OrderCaptured::perform(State& state) const {
  UserStream& from = state.stream(before);
  static_cast<void>(state.graphs().order(from, state.stream_of(from.ref.device, after)));
}

void UseAsInput::perform(State& state) const {
  std::optional<UserBlock>& place = state.block(slot);
  if (!place) return;
  UserStream& on = state.stream_of(place->device, stream);
  const std::optional<Caller> as = state.choose_caller(on, Caller::kMain);
  const std::uint64_t inside = state.graphs().find_unspoilt(on);
  if (!as || inside == 0 || inside == place->capture) return;
  // Memory of another capture that goes on means nothing yet.
  for (const UserCapture& capture : state.graphs().active()) {
    if (capture.number == place->capture) return;
  }
  if (is_recorded) state.record(*place, on, *as);
  state.graphs().use_as_input(on, *place);
}

void LoseCapture::perform(State& state) const {
  if (UserCapture* capture = state.graphs().find(state.stream(stream))) {
    state.graphs().lose(*capture);
  }
}

void LaunchGraph::perform(State& state) const {
  UserGraph* const known = state.graphs().find_graph(graph);
  if (known == nullptr) return;
  UserStream& on = state.stream_of(known->device, stream);
  const std::optional<Caller> as = state.choose_caller(on, Caller::kMain);
  if (as && state.graphs().may_launch(*known, on)) {
    state.graphs().launch(*known, on, *as, work_ns);
  }
}

void DestroyGraph::perform(State& state) const {
  if (UserGraph* known = state.graphs().find_graph(graph)) state.graphs().destroy(*known);
}

}  // namespace quarry::model
