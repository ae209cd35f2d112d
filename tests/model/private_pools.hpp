// SPDX-License-Identifier: Apache-2.0
// Private pools as the user knows them: who holds them, what they were wished to be, which routes
// lead there, and the sums that their reports must show. Pools are numbered, device by device in
// turn.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/allocator.hpp"
#include "tests/model/graph_operations.hpp"
#include "tests/model/ledger.hpp"
#include "tests/model/segment_functions.hpp"

namespace quarry::model {

class State;
struct UserBlock;
struct UserStream;

inline constexpr int kPoolsPerDevice = 3;
inline constexpr int kDefaultPool = -1;

struct UserPool {
  DeviceId device = 0;
  PoolId id;
  int use_count = 0;
  int incarnation = 0;  // the last release of one makes its graphs unlaunchable
  // Captures may have been given more than is known: of a pool that was held again before the last
  // of it had gone, or when a planted fault lost a capture.
  bool has_unknown_segments = false;
  PoolOptions options;
  std::shared_ptr<SegmentFunctions> functions;  // null: the driver's

  bool has_idle_memory = false;  // so that free neighbours may not be joined
  // What its report must say, since it was made.
  std::int64_t count = 0, bytes = 0, peak_bytes = 0, risen_bytes = 0, fallen_bytes = 0;
  std::int64_t ooms = 0;
  // Segments, or extents, that a capture was given memory of: they stay until the pool is
  // released.
  std::map<Address, Bytes> captured_segments;
  // Where its graphs are launched, one after the other.
  std::optional<StreamName> replay;
  // Streams that worked since with memory of its captures.
  std::vector<StreamName> outside_users;
};

struct UserRoute {
  Route::Kind kind{};
  int pool = 0;
  DeviceId device = 0;
  StreamHandle handle{};
  StreamName origin;          // the stream that had the handle
  std::uint64_t thread = 0;   // that began it
  std::uint64_t capture = 0;  // of kCapture, once it has one
};

class PrivatePools {
 public:
  explicit PrivatePools(State& state, int device_count);

  int index_of(DeviceId device, int number) const;
  UserPool& at(int number);
  int count() const { return static_cast<int>(pools_.size()); }
  // Whether any of them is held or may be there still.
  bool has_any() const { return has_any_; }

  // What the allocator must answer.
  StatusCode retain(UserPool& pool, const RetainPool& wishes, bool exists);
  void release(int pool);
  void add(int pool, const UserBlock& block, const BlockInfo& info);
  void remove(const UserBlock& block);

  // A planted fault made it unclear from which pool memory was asked.
  void take_over_ooms(DeviceId device);

  // As the allocator must answer.
  StatusCode begin_route(const UserRoute& route);
  StatusCode end_route(int pool, std::uint64_t thread);
  // The stream, of which that thread may name it, is gone, and so are routes that name it.
  void forget_stream(const UserStream& stream, std::uint64_t thread);
  // Those that the thread has begun for itself; how many.
  std::size_t end_routes_of_thread(std::uint64_t thread);
  // Whose pool a request is, by the routes. A route for captures learns which one it serves when
  // it is asked; `is_asked` false only looks.
  int find(const UserStream& stream, std::uint64_t thread, bool is_asked);

  // What is wrong with the reports; empty: nothing.
  std::string check(DeviceId device);
  // Bytes of a pool that nothing gives back while it is held: of captures, and of held blocks.
  Bytes calculate_kept_bytes(int pool);
  // Reserved by pools that somebody holds.
  Bytes calculate_held_pools_bytes(DeviceId device);
  // The stream goes: what comes after its launches, or its work with captured memory, comes after
  // that of another one instead.
  void move_replays(UserStream& from);

 private:
  bool accepts(UserRoute& route, const UserStream& stream, std::uint64_t thread, bool is_asked);
  std::string compare(const UserPool& pool, const PoolReport& report);

  State& state_;
  const int device_count_;
  std::vector<UserPool> pools_;
  std::vector<UserRoute> routes_;  // in order of beginning
  bool has_any_ = false;
};

}  // namespace quarry::model
