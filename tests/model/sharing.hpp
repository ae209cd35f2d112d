// SPDX-License-Identifier: Apache-2.0
// What the user has told the allocator of others that use its memory: the ranges that are pinned,
// and which device may use whose memory. The simulated device knows the ranges as registered, and
// reports memory that goes from under them.
#pragma once

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "core/allocator.hpp"
#include "sim/sim_types.hpp"
#include "tests/model/operation_fields.hpp"

namespace quarry::model {

struct UserPin {
  BlockInfo part;  // what is pinned, and the segment that it lies in
  int pool = 0;
  sim::RegistrationId registration{};
};

// Whether the block lies on extents of the kind that the settings ask for.
void check_kind(State& state, const BlockInfo& block);

class Sharing {
 public:
  explicit Sharing(State& state) : state_(state) {}

  void pin(const UserPin& pin, Caller as);
  // Does nothing if there is no pin.
  void unpin(int which, Caller as);
  void unpin_all();
  // Adds what is reserved as long as its pins last: of one pool, or of the device outside of pools
  // that somebody holds.
  void add_kept_of_pool(int pool, std::map<Address, Bytes>& kept);
  void add_kept_of_device(DeviceId device, std::map<Address, Bytes>& kept);
  bool has_pins() const { return !pins_.empty(); }

  void enable(DeviceId device, DeviceId peer);
  bool is_enabled(DeviceId device, DeviceId peer) const {
    return enabled_.contains({device, peer});
  }

 private:
  State& state_;
  std::vector<UserPin> pins_;
  std::set<std::pair<DeviceId, DeviceId>> enabled_;
};

}  // namespace quarry::model
