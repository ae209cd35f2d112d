// SPDX-License-Identifier: Apache-2.0
#include "tests/model/sharing.hpp"

#include "core/extent_policy.hpp"
#include "tests/model/state.hpp"

namespace quarry::model {

void Sharing::pin(const UserPin& pin, Caller as) {
  UserPin made = pin;
  if (state_.options().mutant != Mutant::kDroppedPin) {
    const Status status = state_.call_as(
        as, [&] { return state_.allocator().pin(made.part.address, made.part.bytes); });
    if (!status.is_ok()) state_.fail("pin failed: " + std::string(status.message()));
  }
  made.registration = state_.sim().register_memory({made.part.address, made.part.bytes});
  pins_.push_back(made);
  ++state_.tally.pins;
}

void Sharing::unpin(int which, Caller as) {
  if (pins_.empty()) return;
  const auto at = pins_.begin() + which % static_cast<std::ptrdiff_t>(pins_.size());
  const UserPin ended = *at;
  pins_.erase(at);
  state_.sim().deregister_memory(ended.registration);
  state_.touch(ended.part.address);
  state_.touch_pools();
  if (state_.options().mutant == Mutant::kDroppedPin) return;
  const Status status = state_.call_as(
      as, [&] { return state_.allocator().unpin(ended.part.address, ended.part.bytes); });
  if (!status.is_ok()) state_.fail("unpin failed: " + std::string(status.message()));
}

void Sharing::unpin_all() {
  while (!pins_.empty())
    unpin(0, Caller::kMain);
}

void Sharing::add_kept_of_pool(int pool, std::map<Address, Bytes>& kept) {
  for (const UserPin& pin : pins_) {
    if (pin.pool == pool) add_kept_memory(pin.part, kept);
  }
}

void Sharing::add_kept_of_device(DeviceId device, std::map<Address, Bytes>& kept) {
  for (const UserPin& pin : pins_) {
    const bool is_held_pools =
        pin.pool != kDefaultPool && state_.pools().at(pin.pool).use_count > 0;
    if (pin.part.stream.device == device && !is_held_pools) add_kept_memory(pin.part, kept);
  }
}

void Sharing::enable(DeviceId device, DeviceId peer) {
  const Status status = state_.allocator().enable_peer_access(device, peer);
  const StatusCode wanted = device == peer ? StatusCode::kInvalidArgument : StatusCode::kOk;
  if (status.code() == StatusCode::kDriverError && state_.are_faults_possible) return;
  if (status.code() != wanted) {
    return state_.fail("enable_peer_access answered " + std::string(status.message()));
  }
  if (status.is_ok()) enabled_.insert({device, peer});
}

// The simulated driver refuses fabric handles, after which file descriptors come next.
void check_kind(State& state, const BlockInfo& block) {
  if (!block.is_expandable) return;
  using HandleType = ExtentKind::HandleType;
  const Config config = state.allocator().get_config();
  const bool has_handles = config.extent_handle_types != HandleType::kNone;
  const ExtentKind wanted{has_handles ? HandleType::kFileDescriptor : HandleType::kNone,
                          config.rdma};
  for (Address at = block.address; at < block.address + block.bytes;
       at = round_down(at, kExtentPage) + kExtentPage) {
    if (state.sim().find_extent_kind(at) != wanted) {
      return state.fail("a block lies on memory of another kind than is asked for");
    }
  }
}

// --- The operations ----------------------------------------------------------------------------

void Pin::perform(State& state) const {
  const std::optional<UserBlock>& place = state.block(slot);
  if (!place) return;
  auto info = state.allocator().find_block(place->address);
  if (!info.is_ok()) return state.fail("a live block is unknown");
  UserPin pin{info.value(), place->pool, {}};
  const Bytes skipped = offset % place->bytes;
  const Bytes most = place->bytes - skipped;
  pin.part.address = place->address + skipped;
  pin.part.bytes = bytes == 0 ? most : 1 + bytes % most;
  pin.part.stream.device = place->device;
  state.touch(place->address);
  state.sharing().pin(pin, state.choose_caller(caller));
}

void Unpin::perform(State& state) const {
  state.sharing().unpin(which, state.choose_caller(caller));
}

void EnablePeer::perform(State& state) const {
  state.sharing().enable(state.device(device), state.device(peer));
}

void UseByPeer::perform(State& state) const {
  const std::optional<UserBlock>& place = state.block(slot);
  if (!place || place->capture != 0) return;
  UserStream& on = state.stream(stream);
  UserStream* const owner = state.find(place->owner);
  if (!state.sharing().is_enabled(on.ref.device, place->device) || owner == nullptr) return;
  if (!state.is_usable(*owner) || !state.is_usable(on)) return;
  state.order(*owner, on);
  state.submit(on, sim::WorkTime::lasting_ns(work_ns), place->lifetime);
  state.order(on, *owner);
  ++state.tally.peer_uses;
}

}  // namespace quarry::model
