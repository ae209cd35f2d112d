// SPDX-License-Identifier: Apache-2.0
// The operations on memory that others use too: pins, as around a registration, and peers.
#pragma once

#include "base/bytes.hpp"
#include "tests/model/operation_fields.hpp"

namespace quarry::model {

// Pins a part of the slot's block, and has it used by its address from then on.
struct Pin {
  int slot = 0;
  Bytes offset = 0;  // both modulo what the block has
  Bytes bytes = 0;   // 0: to its end
  Caller caller = Caller::kMain;
  void perform(State& state) const;
  static constexpr const char* kName = "Pin";
  auto fields() const {
    return std::tuple(Field{"slot", slot}, Field{"offset", offset}, Field{"bytes", bytes},
                      Field{"caller", caller});
  }
};

// Ends that for one of the ranges that are pinned.
struct Unpin {
  int which = 0;
  Caller caller = Caller::kMain;
  void perform(State& state) const;
  static constexpr const char* kName = "Unpin";
  auto fields() const { return std::tuple(Field{"which", which}, Field{"caller", caller}); }
};

struct EnablePeer {
  int device = 1;
  int peer = 0;  // whose memory
  void perform(State& state) const;
  static constexpr const char* kName = "EnablePeer";
  auto fields() const { return std::tuple(Field{"device", device}, Field{"peer", peer}); }
};

// A stream of another device works with the block, between work of the block's own stream.
struct UseByPeer {
  int slot = 0;
  int stream = 0;
  std::uint64_t work_ns = 0;
  void perform(State& state) const;
  static constexpr const char* kName = "UseByPeer";
  auto fields() const {
    return std::tuple(Field{"slot", slot}, Field{"stream", stream}, Field{"work_ns", work_ns});
  }
};

}  // namespace quarry::model
