// SPDX-License-Identifier: Apache-2.0
// Functions of the user from which a private pool gets its segments: over the simulated device,
// with a ledger of their own. The moody kind now and then has no more, or returns what it must
// not. What the allocator does wrong with them is told to the State.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "core/pool_options.hpp"
#include "driver/driver_types.hpp"

namespace quarry::model {

class State;

class SegmentFunctions : public std::enable_shared_from_this<SegmentFunctions> {
 public:
  SegmentFunctions(State& state, DeviceId device, bool is_moody)
      : state_(state), device_(device), is_moody_(is_moody) {}

  // They share this object.
  SegmentBackend make_backend();
  Bytes held_bytes() const { return held_bytes_; }
  bool is_unused() const { return is_unused_; }
  // How often they had nothing that could be used.
  std::uint64_t refusal_count() const { return refusals_; }

 private:
  struct Segment {
    Bytes bytes = 0;
    StreamRef stream;
    Address address = 0;  // as the device gave it
  };
  Address allocate(Bytes bytes, StreamRef stream);
  Address refuse(Address with);
  void free(Address address, Bytes bytes, StreamRef stream);
  void end();

  State& state_;
  const DeviceId device_;
  const bool is_moody_;
  std::map<Address, Segment> held_;
  Bytes held_bytes_ = 0;
  std::uint64_t calls_ = 0;
  std::uint64_t refusals_ = 0;
  bool is_unused_ = false;
};

}  // namespace quarry::model
