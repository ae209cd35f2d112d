// SPDX-License-Identifier: Apache-2.0
// Captures under way and the graphs that came of them, with the promises that a user keeps:
//
// - Graphs that share a pool are launched one after the other: on one stream, or on streams that
//   are ordered for it. Before a capture is given memory of a pool the host has seen those
//   launches done, and none begins while the capture lasts, nor while one works with blocks of the
//   pool. A launch comes after what was done outside with memory that graphs of its pools were
//   given: they may write there.
// - A graph is launched only while all its pools are held as they were when it was captured. A
//   capture is given up before its pool is released.
// - Streams that took part are joined before the end.
// - A block that a capture works with but was not given is not freed while the graph may be
//   launched, and each stream that launches is recorded.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "driver/driver_types.hpp"
#include "sim/sim_types.hpp"
#include "tests/model/ledger.hpp"
#include "tests/model/operation_fields.hpp"

namespace quarry::model {

class State;
struct UserBlock;
struct UserStream;

struct UserCapture {
  std::uint64_t number = 0;  // never reused; its graph goes on with it
  int origin = 0;            // numbers of streams
  std::vector<int> streams;
  Caller thread = Caller::kMain;
  DeviceId device = 0;
  bool is_spoilt = false;
  std::map<int, int> pools;   // that gave it memory, and the incarnation of each
  std::set<Address> freed;    // starts of blocks that were given back inside
  std::set<int> input_pools;  // of the other blocks that it works with
};

struct UserGraph {
  std::uint64_t number = 0;
  sim::GraphId id{};
  DeviceId device = 0;
  std::vector<std::pair<int, int>> pools;  // and the incarnation of each
};

class Graphs {
 public:
  explicit Graphs(State& state) : state_(state) {}

  // The capture that a stream is in, lost or not; null: none.
  UserCapture* find(const UserStream& stream);
  // Its number unless it was lost; 0: none.
  std::uint64_t find_unspoilt(const UserStream& stream);
  const std::vector<UserCapture>& active() const { return active_; }

  void begin(UserStream& origin, Caller thread);
  // `stream` takes part from now on; an order on a stream that does already. False: not possible.
  bool order(UserStream& before, UserStream& after);
  // Joins, ends, and keeps the graph if it has anything in it.
  void end(std::uint64_t number);
  void end_all_of_pool(int pool);
  void lose(UserCapture& capture);
  // Captures that calls of the allocator lost, which is right while faults are planted.
  void note_losses();
  // Whether the allocator may believe that a capture goes on to which it gave memory: of another
  // thread's default stream it cannot tell the end.
  bool may_seem_active() const;

  // Before the capture is given memory of the pool.
  void enter_pool(UserCapture& capture, int pool);
  void use(UserStream& stream, const UserBlock& block);
  // Work outside of captures with the block.
  void note_outside_use(const UserStream& stream, const UserBlock& block);
  void use_as_input(UserStream& stream, UserBlock& block);
  // The block is given back.
  void note_free(const UserBlock& block);
  // Whether a launch may still follow that works with the block as its input.
  bool is_pinned(const UserBlock& block) const;

  UserGraph* find_graph(int number);
  bool may_launch(const UserGraph& graph, const UserStream& on);
  void launch(UserGraph& graph, UserStream& on, Caller as, std::uint64_t work_ns);
  void destroy(UserGraph& graph);
  void destroy_all();

 private:
  const UserCapture* find_user_of(int pool) const;

  State& state_;
  std::uint64_t last_number_ = 0;
  std::vector<UserCapture> active_;
  std::vector<UserGraph> graphs_;
  std::size_t noted_losses_ = 0;
  bool has_captured_thread_streams_ = false;
};

}  // namespace quarry::model
