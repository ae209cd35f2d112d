// SPDX-License-Identifier: Apache-2.0
// What a program can do with the allocator and its GPU: one struct an operation, shared by the
// seeded model test, the fuzzer and the fault sweep. An operation names things by number (slots of
// blocks, streams, threads) and does nothing where there is no such thing, so that any part of a
// list of operations is a list of operations: that is what makes failures shrink.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <variant>

#include "base/bytes.hpp"
#include "driver/driver_types.hpp"
#include "sim/sim_types.hpp"
#include "tests/model/graph_operations.hpp"
#include "tests/model/operation_fields.hpp"
#include "tests/model/sharing_operations.hpp"

namespace quarry::model {

// --- Blocks ------------------------------------------------------------------------------------

// Into an empty slot; then work on it that lasts `work_ns`. On a stream that captures only where a
// private pool serves it.
struct Allocate {
  int slot = 0;
  int stream = 0;
  Bytes bytes = 512;
  Bytes alignment = 512;
  std::uint64_t work_ns = 0;
  int pool = -1;  // of the stream's device, whatever is begun; -1: the one that the routes say
  Caller caller = Caller::kMain;
  void perform(State& state) const;
  static constexpr const char* kName = "Allocate";
  auto fields() const {
    return std::tuple(Field{"slot", slot}, Field{"stream", stream}, Field{"bytes", bytes},
                      Field{"alignment", alignment}, Field{"work_ns", work_ns},
                      Field{"pool", pool}, Field{"caller", caller});
  }
};

struct Free {
  int slot = 0;
  Caller caller = Caller::kMain;
  void perform(State& state) const;
  static constexpr const char* kName = "Free";
  auto fields() const { return std::tuple(Field{"slot", slot}, Field{"caller", caller}); }
};

// With the size that was asked for, plus `error_bytes`.
struct FreeSized {
  int slot = 0;
  Bytes error_bytes = 0;
  Caller caller = Caller::kMain;
  void perform(State& state) const;
  static constexpr const char* kName = "FreeSized";
  auto fields() const {
    return std::tuple(Field{"slot", slot}, Field{"error_bytes", error_bytes},
                      Field{"caller", caller});
  }
};

// After ordering all uses before this point of the stream.
struct FreeOnStream {
  int slot = 0;
  int stream = 0;
  Caller caller = Caller::kMain;
  void perform(State& state) const;
  static constexpr const char* kName = "FreeOnStream";
  auto fields() const {
    return std::tuple(Field{"slot", slot}, Field{"stream", stream}, Field{"caller", caller});
  }
};

// What the slot held before it was freed, once more: an error, and nothing else.
struct FreeAgain {
  int slot = 0;
  void perform(State& state) const;
  static constexpr const char* kName = "FreeAgain";
  auto fields() const { return std::tuple(Field{"slot", slot}); }
};

// An address inside the slot's block, or (empty slot) of nobody.
struct FreeInterior {
  int slot = 0;
  Bytes offset = 256;
  void perform(State& state) const;
  static constexpr const char* kName = "FreeInterior";
  auto fields() const { return std::tuple(Field{"slot", slot}, Field{"offset", offset}); }
};

// The user orders the stream after the block's, tells the allocator, and works there.
struct RecordStream {
  int slot = 0;
  int stream = 0;
  std::uint64_t work_ns = 0;
  Caller caller = Caller::kMain;
  void perform(State& state) const;
  static constexpr const char* kName = "RecordStream";
  auto fields() const {
    return std::tuple(Field{"slot", slot}, Field{"stream", stream}, Field{"work_ns", work_ns},
                      Field{"caller", caller});
  }
};

// More work with the block on its own stream and on each that was recorded.
struct Use {
  int slot = 0;
  std::uint64_t work_ns = 0;
  void perform(State& state) const;
  static constexpr const char* kName = "Use";
  auto fields() const { return std::tuple(Field{"slot", slot}, Field{"work_ns", work_ns}); }
};

// --- Streams and captures ----------------------------------------------------------------------

// Work that ends only by Complete or a host's wait.
struct Busy {
  int stream = 0;
  void perform(State& state) const;
  static constexpr const char* kName = "Busy";
  auto fields() const { return std::tuple(Field{"stream", stream}); }
};

struct Complete {
  int stream = 0;
  void perform(State& state) const;
  static constexpr const char* kName = "Complete";
  auto fields() const { return std::tuple(Field{"stream", stream}); }
};

struct Advance {
  std::uint64_t ns = 0;
  void perform(State& state) const;
  static constexpr const char* kName = "Advance";
  auto fields() const { return std::tuple(Field{"ns", ns}); }
};

// The user's own synchronisation, which the allocator does not see.
struct Order {
  int before = 0;
  int after = 0;
  void perform(State& state) const;
  static constexpr const char* kName = "Order";
  auto fields() const { return std::tuple(Field{"before", before}, Field{"after", after}); }
};

struct Synchronize {
  int stream = 0;
  void perform(State& state) const;
  static constexpr const char* kName = "Synchronize";
  auto fields() const { return std::tuple(Field{"stream", stream}); }
};

// Retires the stream; one that the user made is then destroyed, and a new one made in its place.
struct Retire {
  int stream = 0;
  sim::StreamKind next_kind = sim::StreamKind::kNonBlocking;
  Caller caller = Caller::kMain;
  void perform(State& state) const;
  static constexpr const char* kName = "Retire";
  auto fields() const {
    return std::tuple(Field{"stream", stream}, Field{"next_kind", next_kind},
                      Field{"caller", caller});
  }
};

struct RetireThread {
  Caller caller = Caller::kMain;
  void perform(State& state) const;
  static constexpr const char* kName = "RetireThread";
  auto fields() const { return std::tuple(Field{"caller", caller}); }
};

// The thread ends, with what it has parked, and a new one takes its place. Not the main thread.
struct EndThread {
  Caller caller = Caller::kSecond;
  void perform(State& state) const;
  static constexpr const char* kName = "EndThread";
  auto fields() const { return std::tuple(Field{"caller", caller}); }
};

struct BeginCapture {
  int stream = 0;
  CaptureMode mode = CaptureMode::kGlobal;
  Caller caller = Caller::kMain;
  void perform(State& state) const;
  static constexpr const char* kName = "BeginCapture";
  auto fields() const {
    return std::tuple(Field{"stream", stream}, Field{"mode", mode}, Field{"caller", caller});
  }
};

// On the thread that began it, after its streams are joined.
struct EndCapture {
  int stream = 0;
  void perform(State& state) const;
  static constexpr const char* kName = "EndCapture";
  auto fields() const { return std::tuple(Field{"stream", stream}); }
};

// --- The device and the settings ---------------------------------------------------------------

struct EmptyCache {
  int device = 0;
  Caller caller = Caller::kMain;
  void perform(State& state) const;
  static constexpr const char* kName = "EmptyCache";
  auto fields() const { return std::tuple(Field{"device", device}, Field{"caller", caller}); }
};

struct Configure {
  int large_segment_mib = 20;
  int max_split_mib = 0;  // 0: unlimited
  int max_non_split_rounding_mib = 20;
  int divisions = 0;
  int garbage_percent = 0;
  int fraction_percent = 100;
  bool rejects_early = false;
  bool upstream_quirks = true;
  bool thread_cache = true;
  bool graph_capture_reclaim = true;
  bool record_stream_reuse = false;  // inside captures
  int handle_types = 0;              // of extents: none, of files, fabric (which is refused)
  bool rdma = true;
  void perform(State& state) const;
  static constexpr const char* kName = "Configure";
  auto fields() const {
    return std::tuple(
        Field{"large_segment_mib", large_segment_mib}, Field{"max_split_mib", max_split_mib},
        Field{"max_non_split_rounding_mib", max_non_split_rounding_mib},
        Field{"divisions", divisions}, Field{"garbage_percent", garbage_percent},
        Field{"fraction_percent", fraction_percent}, Field{"rejects_early", rejects_early},
        Field{"upstream_quirks", upstream_quirks}, Field{"thread_cache", thread_cache},
        Field{"graph_capture_reclaim", graph_capture_reclaim},
        Field{"record_stream_reuse", record_stream_reuse}, Field{"handle_types", handle_types},
        Field{"rdma", rdma});
  }
};

struct SetLimit {
  int device = 0;
  Bytes bytes = kUnlimited;
  void perform(State& state) const;
  static constexpr const char* kName = "SetLimit";
  auto fields() const { return std::tuple(Field{"device", device}, Field{"bytes", bytes}); }
};

struct SetFraction {
  int device = 0;
  int percent = 100;
  void perform(State& state) const;
  static constexpr const char* kName = "SetFraction";
  auto fields() const { return std::tuple(Field{"device", device}, Field{"percent", percent}); }
};

// Another process takes this much of the device from now on.
struct SetExternal {
  int device = 0;
  Bytes bytes = 0;
  void perform(State& state) const;
  static constexpr const char* kName = "SetExternal";
  auto fields() const { return std::tuple(Field{"device", device}, Field{"bytes", bytes}); }
};

// The main thread takes, or gives back, the guard under which nothing is freed to the driver.
struct HoldGate {
  bool is_held = true;
  void perform(State& state) const;
  static constexpr const char* kName = "HoldGate";
  auto fields() const { return std::tuple(Field{"is_held", is_held}); }
};

// From now on a shortage frees the block in this slot; -1: no longer.
struct OfferSlot {
  int slot = -1;
  void perform(State& state) const;
  static constexpr const char* kName = "OfferSlot";
  auto fields() const { return std::tuple(Field{"slot", slot}); }
};

struct ResetStats {
  int device = 0;
  bool is_peak = true;  // else the accumulated ones
  void perform(State& state) const;
  static constexpr const char* kName = "ResetStats";
  auto fields() const { return std::tuple(Field{"device", device}, Field{"is_peak", is_peak}); }
};

// All captures end, all work ends, everything that was freed settles: every figure is exact then.
struct Quiesce {
  void perform(State& state) const;
  static constexpr const char* kName = "Quiesce";
  auto fields() const { return std::tuple(); }
};

using Operation =
    std::variant<Allocate, Free, FreeSized, FreeOnStream, FreeAgain, FreeInterior, RecordStream,
                 Use, Busy, Complete, Advance, Order, Synchronize, Retire, RetireThread, EndThread,
                 BeginCapture, EndCapture, EmptyCache, Configure, SetLimit, SetFraction,
                 SetExternal, HoldGate, OfferSlot, ResetStats, Quiesce, RetainPool, ReleasePool,
                 BeginRoute, EndRoute, TrimPool, ChangePool, CaptureInto, OrderCaptured,
                 UseAsInput, LoseCapture, LaunchGraph, DestroyGraph, HoldPool, Pin, Unpin,
                 EnablePeer, UseByPeer>;

inline void perform(const Operation& operation, State& state) {
  std::visit([&state](const auto& op) { op.perform(state); }, operation);
}

// "Allocate{.slot = 3, .stream = 1, ...}": C++ that makes the operation again.
std::string format(const Operation& operation);

}  // namespace quarry::model
