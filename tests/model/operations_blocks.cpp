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
  UserBlock block{stream.ref.device, address, request.bytes, request.bytes, stream.name, {}, {}};
  const auto info = state.allocator().find_block(address);
  if (!info.is_ok()) {
    state.fail("a block that was handed out is unknown");
    return block;
  }
  const BlockInfo& known = info.value();
  block.bytes = known.bytes;
  if (!is_aligned(address, request.alignment)) state.fail("a block is not aligned as asked for");
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
                   const DeviceStats& before, const Status& status) {
  DeviceLedger& own = state.ledger().devices[static_cast<std::size_t>(stream.ref.device)];
  if (status.code() == StatusCode::kOutOfMemory) {
    ++own.ooms;
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

}  // namespace

void Allocate::perform(State& state) const {
  std::optional<UserBlock>& place = state.block(slot);
  UserStream& on = state.stream(stream);
  const std::optional<Caller> as = state.choose_caller(on, caller);
  if (place || on.capturing_thread || !as) return;
  const DeviceId device = on.ref.device;
  const DeviceStats before = state.stats(device);
  const StreamRef told{device, choose_told_stream(state, on).handle};
  Result<Address> result =
      state.call_as(*as, [&] { return state.allocator().allocate(told, bytes, alignment); });
  if (is_refused(state, *this, result)) return;
  if (!result.is_ok()) return check_refusal(state, *this, *as, on, before, result.status());

  ++state.tally.allocations;
  UserBlock block = check_block(state, *this, on, result.value());
  block.lifetime = state.sim().begin_lifetime(device, block.address, block.bytes, on.ref);
  state.ledger().devices[static_cast<std::size_t>(device)].add(block.bytes, bytes);
  state.submit(on, sim::WorkTime::lasting_ns(work_ns), block.lifetime);
  const auto reserved = static_cast<Bytes>(state.stats(device).reserved_bytes.all.current);
  const bool has_grown = reserved > static_cast<Bytes>(before.reserved_bytes.all.current);
  if (has_grown && reserved > state.calculate_allowed_bytes(device)) {
    state.fail("more was reserved than the limits allow");
  }
  state.touch(block.address);
  place = std::move(block);
}

void Free::perform(State& state) const {
  std::optional<UserBlock>& place = state.block(slot);
  if (!place) return;
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
  if (!place) return;
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

void FreeOnStream::perform(State& state) const {
  std::optional<UserBlock>& place = state.block(slot);
  if (!place) return;
  UserStream& to = state.stream_of(place->device, stream);
  const std::optional<Caller> as = state.choose_caller(to, caller);
  if (!as || !state.is_usable(to)) return;
  std::vector<StreamName> users = place->recorded;
  users.push_back(place->owner);
  for (const StreamName user : users) {
    const UserStream* from = state.find(user);
    if (from == nullptr || !state.is_usable(*from)) return;
  }
  for (const StreamName user : users)
    state.order(*state.find(user), to);
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
  const std::optional<Caller> as = state.choose_caller(on, Caller::kMain);
  if (!as || owner == nullptr || !state.is_usable(*owner) || !state.is_usable(on)) return;
  state.order(*owner, on);
  if (state.options().mutant != Mutant::kDroppedRecordStream) {
    const Status status = state.call_as(
        *as, [&] { return state.allocator().record_stream(place->address, on.handle); });
    check_free(state, "record_stream", status, StatusCode::kOk);
  }
  std::vector<StreamName>& recorded = place->recorded;
  const bool is_known = on.name == place->owner ||
                        std::find(recorded.begin(), recorded.end(), on.name) != recorded.end();
  if (!is_known) recorded.push_back(on.name);
  state.submit(on, sim::WorkTime::lasting_ns(work_ns), place->lifetime);
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
    state.submit(*on, sim::WorkTime::lasting_ns(work_ns), place->lifetime);
  }
}

}  // namespace quarry::model
