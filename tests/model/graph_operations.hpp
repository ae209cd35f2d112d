// SPDX-License-Identifier: Apache-2.0
// The operations on private pools, routes to them, captures and graphs. Each keeps the promises of
// a user (graphs.hpp), so that a hazard that follows is the allocator's fault.
#pragma once

#include "core/capture_router.hpp"
#include "driver/driver_types.hpp"
#include "tests/model/operation_fields.hpp"

namespace quarry::model {

// Where a pool's segments come from: the driver; functions of the user that do as they should; or
// such that now and then have no more, or return what they must not.
enum class PoolSource { kDriver, kFunctions, kMoodyFunctions };

// Makes the pool with these wishes, or holds it once more.
struct RetainPool {
  int pool = 0;
  bool use_on_oom = false;
  bool no_split = false;
  bool no_recycle = false;
  int limit_mib = 0;  // 0: unlimited
  PoolSource source = PoolSource::kDriver;
  Caller caller = Caller::kMain;
  void perform(State& state) const;
  static constexpr const char* kName = "RetainPool";
  auto fields() const {
    return std::tuple(Field{"pool", pool}, Field{"use_on_oom", use_on_oom},
                      Field{"no_split", no_split}, Field{"no_recycle", no_recycle},
                      Field{"limit_mib", limit_mib}, Field{"source", source},
                      Field{"caller", caller});
  }
};

// Holds a pool that somebody holds once more.
struct HoldPool {
  int pool = 0;
  Caller caller = Caller::kMain;
  void perform(State& state) const;
  static constexpr const char* kName = "HoldPool";
  auto fields() const { return std::tuple(Field{"pool", pool}, Field{"caller", caller}); }
};

// Graphs that use the pool are not launched any more once it is the last release.
struct ReleasePool {
  int pool = 0;
  Caller caller = Caller::kMain;
  void perform(State& state) const;
  static constexpr const char* kName = "ReleasePool";
  auto fields() const { return std::tuple(Field{"pool", pool}, Field{"caller", caller}); }
};

struct BeginRoute {
  int pool = 0;
  Route::Kind kind = Route::Kind::kThread;
  int stream = 0;  // kThread has none; a filter accepts its handle
  Caller caller = Caller::kMain;
  void perform(State& state) const;
  static constexpr const char* kName = "BeginRoute";
  auto fields() const {
    return std::tuple(Field{"pool", pool}, Field{"kind", kind}, Field{"stream", stream},
                      Field{"caller", caller});
  }
};

struct EndRoute {
  int pool = 0;
  Caller caller = Caller::kMain;
  void perform(State& state) const;
  static constexpr const char* kName = "EndRoute";
  auto fields() const { return std::tuple(Field{"pool", pool}, Field{"caller", caller}); }
};

struct TrimPool {
  int pool = 0;
  Caller caller = Caller::kMain;
  void perform(State& state) const;
  static constexpr const char* kName = "TrimPool";
  auto fields() const { return std::tuple(Field{"pool", pool}, Field{"caller", caller}); }
};

struct ChangePool {
  int pool = 0;
  int limit_mib = -1;      // -1: as it was; 0: unlimited
  bool has_flags = false;  // the next two count
  bool use_on_oom = false;
  bool no_split = false;
  void perform(State& state) const;
  static constexpr const char* kName = "ChangePool";
  auto fields() const {
    return std::tuple(Field{"pool", pool}, Field{"limit_mib", limit_mib},
                      Field{"has_flags", has_flags}, Field{"use_on_oom", use_on_oom},
                      Field{"no_split", no_split});
  }
};

// Routes the stream's next capture to the pool of its device, and begins to capture.
struct CaptureInto {
  int stream = 0;
  int pool = 0;
  CaptureMode mode = CaptureMode::kGlobal;
  Caller caller = Caller::kMain;
  void perform(State& state) const;
  static constexpr const char* kName = "CaptureInto";
  auto fields() const {
    return std::tuple(Field{"stream", stream}, Field{"pool", pool}, Field{"mode", mode},
                      Field{"caller", caller});
  }
};

// `after` goes on where `before` is, which captures: so a stream joins, and comes back.
struct OrderCaptured {
  int before = 0;
  int after = 0;
  void perform(State& state) const;
  static constexpr const char* kName = "OrderCaptured";
  auto fields() const { return std::tuple(Field{"before", before}, Field{"after", after}); }
};

// A capture works with a block that was not given to it: the block is kept until no launch can
// follow.
struct UseAsInput {
  int slot = 0;
  int stream = 0;
  bool is_recorded = false;  // with record_stream, as a user may who does not think of captures
  void perform(State& state) const;
  static constexpr const char* kName = "UseAsInput";
  auto fields() const {
    return std::tuple(Field{"slot", slot}, Field{"stream", stream},
                      Field{"is_recorded", is_recorded});
  }
};

// The user makes a mistake that no capture survives.
struct LoseCapture {
  int stream = 0;
  void perform(State& state) const;
  static constexpr const char* kName = "LoseCapture";
  auto fields() const { return std::tuple(Field{"stream", stream}); }
};

struct LaunchGraph {
  int graph = 0;
  int stream = 0;
  std::uint64_t work_ns = 0;
  void perform(State& state) const;
  static constexpr const char* kName = "LaunchGraph";
  auto fields() const {
    return std::tuple(Field{"graph", graph}, Field{"stream", stream}, Field{"work_ns", work_ns});
  }
};

// Its launches may be under way.
struct DestroyGraph {
  int graph = 0;
  void perform(State& state) const;
  static constexpr const char* kName = "DestroyGraph";
  auto fields() const { return std::tuple(Field{"graph", graph}); }
};

}  // namespace quarry::model
