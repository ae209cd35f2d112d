// SPDX-License-Identifier: Apache-2.0
// The operations on blocks, and what each answer must be.
#include <algorithm>
#include <utility>

#include "core/size_policy.hpp"
#include "tests/model/state.hpp"

namespace quarry::model {
namespace {

constexpr Bytes kAlignmentMax = 1_GiB;

std::string describe(const char* call, const Status& status) {
  return std::string(call) + " answered " + std::string(get_name(status.code())) + ": " +
         std::string(status.message());
}

// What the new block must be; the block for the ledger.
UserBlock check_block(State& state, const Allocate& request, const UserStream& stream,
                      Address address) {
  UserBlock block{
      .device = stream.ref.device,
      .address = address,
      .requested_bytes = request.bytes,
      .bytes = request.bytes,
      .owner = stream.name,
      .recorded = {},
      .inputs_of = {},
  };
  const auto info = state.allocator().find_block(address);
  if (!info.is_ok()) {
    state.fail("a block that was handed out is unknown");
    return block;
  }
  const BlockInfo& known = info.value();
  block.bytes = known.bytes;
  if (!is_aligned(address, request.alignment)) state.fail("a block is not aligned as asked for");
  check_kind(state, known);
  if (known.address != address) state.fail("a block begins elsewhere than was said");
  if (known.bytes < request.bytes) state.fail("a block is smaller than the request");
  if (known.requested_bytes != request.bytes) state.fail("a block forgot its request");
  if (address < known.segment_address ||
      address + known.bytes > known.segment_address + known.segment_bytes) {
    state.fail("a block is not inside its segment");
  }
  for (int slot = 0; slot < kSlots; ++slot) {
    const std::optional<UserBlock>& other = state.block(slot);
    if (!other || other->device != block.device) continue;
    if (address < other->address + other->bytes && other->address < address + known.bytes) {
      state.fail("two live blocks overlap");
    }
  }
  return block;
}

// A request that the caller got wrong, or that is too large for any device.
bool is_refused(State& state, const Allocate& request, const Result<Address>& result) {
  StatusCode expected = StatusCode::kOk;
  if (request.bytes >= kRequestMax) expected = StatusCode::kOutOfMemory;
  if (request.bytes == 0) expected = StatusCode::kOk;
  if (!is_power_of_two(request.alignment) || request.alignment > kAlignmentMax) {
    expected = StatusCode::kInvalidArgument;
  }
  if (expected == StatusCode::kOk && request.bytes != 0) return false;
  if (result.code() != expected || (result.is_ok() && result.value() != 0)) {
    state.fail(describe("a request that cannot be served", result.status()));
  }
  return true;
}

void check_refusal(State& state, const Allocate& request, Caller caller, const UserStream& stream,
                   const Before& before, const Status& status) {
  if (before.pool != kDefaultPool && state.pools().at(before.pool).use_count == 0) {
    if (status.code() == StatusCode::kInvalidArgument) return;
  }
  if (status.code() == StatusCode::kOutOfMemory) {
    ++state.ledger_of(stream.ref.device).ooms;
    if (before.capture != state.graphs().find_unspoilt(stream)) {
      return state.pools().take_over_ooms(stream.ref.device);
    }
    if (before.pool != kDefaultPool) ++state.pools().at(before.pool).ooms;
    ++state.tally.ooms;
    if (!state.are_faults_possible) check_out_of_memory(state, request, caller, stream, before);
    return;
  }
  if (status.code() == StatusCode::kBusy && caller == Caller::kDriverCallback) return;
  if (status.code() == StatusCode::kDriverError && state.are_faults_possible) return;
  state.fail(describe("allocate", status));
}

// The stream whose name the allocator hears.
UserStream& choose_told_stream(State& state, UserStream& stream) {
  const bool is_lie = state.options().mutant == Mutant::kWrongStream && stream.is_made;
  return is_lie ? state.stream_of(stream.ref.device, 0) : stream;
}

void check_free(State& state, const char* call, const Status& status, StatusCode expected) {
  if (status.code() != expected) state.fail(describe(call, status));
}

void check_growth(State& state, DeviceId device, const Before& before) {
  const auto reserved = static_cast<Bytes>(state.stats(device).reserved_bytes.all.current);
  const bool has_grown = reserved > static_cast<Bytes>(before.stats.reserved_bytes.all.current);
  if (has_grown && reserved > state.calculate_allowed_bytes(device)) {
    state.fail("more was reserved than the limits allow");
  }
}

}  // namespace

void Allocate::perform(State& state) const {
  std::optional<UserBlock>& place = state.block(slot);
  UserStream& on = state.stream(stream);
  const std::optional<Caller> as = state.choose_caller(on, caller);
  if (place || !as) return;
  const std::optional<Before> before = prepare_request(state, *this, on, *as);
  if (!before) return;
  const DeviceId device = on.ref.device;
  const StreamRef told{device, choose_told_stream(state, on).handle};
  const bool may_lie = state.options().mutant == Mutant::kPendingCaptured;
  if (may_lie) state.driver().set_lying(before->capture != 0);
  Result<Address> result = state.call_as(*as, [&] {
    if (pool < 0) return state.allocator().allocate(told, bytes, alignment);
    return state.allocator().allocate_in_pool(told, bytes, alignment,
                                              state.pools().at(before->pool).id);
  });
  if (may_lie) state.driver().set_lying(false);
  if (is_refused(state, *this, result)) return;
  if (pool < 0) state.pools().find(on, state.thread_life(*as), true);
  if (!result.is_ok()) return check_refusal(state, *this, *as, on, *before, result.status());
  if (before->capture != state.graphs().find_unspoilt(on)) {
    return give_back_at_once(state, *before, result.value());
  }
  ++state.tally.allocations;
  UserBlock block = check_block(state, *this, on, result.value());
  block.lifetime = state.sim().begin_lifetime(device, block.address, block.bytes, on.ref);
  state.ledger_of(device).add(block.bytes, bytes);
  note_pool(state, *before, block);
  if (on.capturing_thread) {
    state.graphs().use(on, block);
  } else {
    state.submit(on, sim::WorkTime::lasting_ns(work_ns), block.lifetime);
  }
  check_growth(state, device, *before);
  state.touch(block.address);
  place = std::move(block);
}

void Free::perform(State& state) const {
  std::optional<UserBlock>& place = state.block(slot);
  if (!place || state.graphs().is_pinned(*place)) return;
  const Address address = place->address;
  const DeviceId device = place->device;
  const Caller as = state.choose_caller(caller);
  state.end_block(place, slot, as == Caller::kDriverCallback);
  const std::int64_t parked = state.stats(device).parked_bytes;
  const Status status = state.call_as(as, [&] { return state.allocator().free(address); });
  check_free(state, "free", status, StatusCode::kOk);
  if (state.stats(device).parked_bytes == parked) return;
  ++state.tally.parked_blocks;
  state.tally.parked_by_others += as == Caller::kSecond || as == Caller::kThird ? 1 : 0;
}

void FreeSized::perform(State& state) const {
  std::optional<UserBlock>& place = state.block(slot);
  if (!place || state.graphs().is_pinned(*place)) return;
  const Address address = place->address;
  const Bytes bytes = place->requested_bytes + error_bytes;
  const DeviceId device = place->device;
  const Caller as = state.choose_caller(caller);
  state.end_block(place, slot, as == Caller::kDriverCallback);
  const Status status =
      state.call_as(as, [&] { return state.allocator().free_sized(address, bytes); });
  const bool is_right = error_bytes == 0;
  state.ledger().devices[static_cast<std::size_t>(device)].size_mismatches += is_right ? 0 : 1;
  check_free(state, "free_sized", status, is_right ? StatusCode::kOk : StatusCode::kSizeMismatch);
}

namespace {

// The user orders the stream after all uses, outside of captures or inside the block's own. False:
// not possible.
bool order_users(State& state, const UserBlock& block, UserStream& to) {
  const std::uint64_t inside = state.graphs().find_unspoilt(to);
  const auto is_fit = [&](const UserStream* stream) {
    if (stream == nullptr) return false;
    if (!to.capturing_thread) return state.is_usable(*stream);
    return inside != 0 && inside == block.capture &&
           state.graphs().find_unspoilt(*stream) == inside;
  };
  std::vector<StreamName> users = block.recorded;
  users.push_back(block.owner);
  const bool is_possible = is_fit(&to) && std::all_of(users.begin(), users.end(), [&](auto user) {
                             return is_fit(state.find(user));
                           });
  if (!is_possible) return false;
  for (const StreamName user : users) {
    UserStream& from = *state.find(user);
    if (&from == &to) continue;
    if (!to.capturing_thread) {
      state.order(from, to);
    } else if (!state.graphs().order(from, to)) {
      return false;
    }
  }
  return true;
}

}  // namespace

void FreeOnStream::perform(State& state) const {
  std::optional<UserBlock>& place = state.block(slot);
  if (!place || state.graphs().is_pinned(*place)) return;
  UserStream& to = state.stream_of(place->device, stream);
  const std::optional<Caller> as = state.choose_caller(to, caller);
  if (!as || !order_users(state, *place, to)) return;
  const Address address = place->address;
  place->owner = to.name;
  state.end_block(place, slot, *as == Caller::kDriverCallback);
  const StreamHandle told = to.handle;
  const Status status =
      state.call_as(*as, [&] { return state.allocator().free_on_stream(address, told); });
  check_free(state, "free_on_stream", status, StatusCode::kOk);
}

void FreeAgain::perform(State& state) const {
  const Address address = state.last_freed(slot);
  if (address == 0) return;
  for (int other = 0; other < kSlots; ++other) {
    if (state.block(other) && state.block(other)->address == address) return;
  }
  const StatusCode code = state.allocator().free(address).code();
  ++state.ledger().invalid_frees;
  if (code == StatusCode::kDoubleFree || code == StatusCode::kInvalidPointer) return;
  state.fail("a double free was answered with " + std::string(get_name(code)));
}

void FreeInterior::perform(State& state) const {
  const std::optional<UserBlock>& place = state.block(slot);
  const Bytes inside = place ? 1 + offset % (place->bytes - 1) : 1 + offset % 4095;
  const Address address = (place ? place->address : 0) + inside;
  ++state.ledger().invalid_frees;
  check_free(state, "free of an interior pointer", state.allocator().free(address),
             StatusCode::kInvalidPointer);
  check_free(state, "record_stream of an interior pointer",
             state.allocator().record_stream(address, StreamHandle::kLegacy),
             StatusCode::kInvalidPointer);
}

void RecordStream::perform(State& state) const {
  std::optional<UserBlock>& place = state.block(slot);
  if (!place) return;
  UserStream& on = state.stream_of(place->device, stream);
  UserStream* const owner = state.find(place->owner);
  const std::optional<Caller> as = state.choose_caller(on, caller);
  if (!as || owner == nullptr) return;
  if (on.capturing_thread) {
    const std::uint64_t inside = state.graphs().find_unspoilt(on);
    const bool is_inside =
        inside != 0 && inside == place->capture && state.graphs().find_unspoilt(*owner) == inside;
    if (!is_inside || (owner != &on && !state.graphs().order(*owner, on))) return;
    state.record(*place, on, *as);
    state.graphs().use(on, *place);
  } else {
    if (!state.is_usable(*owner) || !state.is_usable(on)) return;
    state.order(*owner, on);
    state.record(*place, on, *as);
    state.submit(on, sim::WorkTime::lasting_ns(work_ns), place->lifetime);
    state.graphs().note_outside_use(on, *place);
  }
  state.touch(place->address);
}

void Use::perform(State& state) const {
  const std::optional<UserBlock>& place = state.block(slot);
  if (!place) return;
  std::vector<StreamName> users = place->recorded;
  users.push_back(place->owner);
  for (const StreamName user : users) {
    UserStream* const on = state.find(user);
    if (on == nullptr) continue;
    state.graphs().use(*on, *place);
    if (state.is_usable(*on)) state.graphs().note_outside_use(*on, *place);
    state.submit(*on, sim::WorkTime::lasting_ns(work_ns), place->lifetime);
  }
}

}  // namespace quarry::model
