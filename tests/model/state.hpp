// SPDX-License-Identifier: Apache-2.0
// The world that operations act on: a real Allocator over the simulated device, the user's blocks
// and streams by number, and beside them a ledger that says what the allocator's answers and
// figures must be. The first thing that is wrong is kept as text; nothing here ends the process
// (Allocator::validate does). One operation at a time, on any thread of the team.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/allocator.hpp"
#include "core/thread_state.hpp"
#include "sim/sim_driver.hpp"
#include "tests/model/case.hpp"
#include "tests/model/graphs.hpp"
#include "tests/model/ledger.hpp"
#include "tests/model/private_pools.hpp"
#include "tests/model/sharing.hpp"
#include "tests/model/tally.hpp"
#include "tests/model/thread_team.hpp"
#include "tests/unit/sim/mutant_driver.hpp"

namespace quarry::model {

// A stream as the user knows it. Retiring it begins a new generation.
struct UserStream {
  StreamRef ref;              // for the simulator, from any thread
  StreamHandle handle{};      // for the allocator
  std::optional<int> thread;  // of a per-thread default stream: who may name it
  sim::StreamKind kind = sim::StreamKind::kBlocking;
  bool is_made = false;  // by the user, who may destroy it
  bool has_endless_work = false;
  std::optional<int> capturing_thread;  // while it captures
  StreamName name;                      // number and generation
  std::uint64_t submissions = 0;        // work and waits of the user
};

struct UserBlock {
  DeviceId device = 0;
  Address address = 0;
  Bytes requested_bytes = 0;
  Bytes bytes = 0;  // of the whole block
  StreamName owner;
  std::vector<StreamName> recorded;
  sim::LifetimeId lifetime{};
  int pool = kDefaultPool;
  std::uint64_t capture = 0;             // that it was given to; 0: none
  std::vector<std::uint64_t> inputs_of;  // captures and graphs that work with it besides
};

inline constexpr int kSlots = 96;

// What is known just before a request.
struct Before {
  int pool = kDefaultPool;  // that must serve it
  std::uint64_t capture = 0;
  DeviceStats stats;
  Bytes pool_reserved_bytes = 0;
  std::uint64_t refusal_count = 0;  // of the pool's functions
};

// Adds what stays reserved while the block is held: its segment, or the extents that it lies on.
void add_kept_memory(const BlockInfo& block, std::map<Address, Bytes>& kept);

class State {
 public:
  explicit State(const CaseOptions& options);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // Keeps the first. Not while something is wrong on purpose: that is the oracle's to catch,
  // without the ledger's help.
  void fail(std::string what);
  bool has_failed() const { return !failure_.empty(); }
  const std::string& failure() const { return failure_; }

  const CaseOptions& options() const { return options_; }
  SimDriver& sim() { return sim_; }
  MutantDriver& driver() { return driver_; }
  const SimDriver& sim() const { return sim_; }
  Allocator& allocator() { return *allocator_; }
  Ledger& ledger() { return ledger_; }
  PrivatePools& pools() { return pools_; }
  Graphs& graphs() { return graphs_; }
  Sharing& sharing() { return sharing_; }
  DeviceLedger& ledger_of(DeviceId device) {
    return ledger_.devices[static_cast<std::size_t>(device)];
  }

  // --- Names -----------------------------------------------------------------------------------
  std::optional<UserBlock>& block(int slot) { return blocks_[index(slot, kSlots)]; }
  // What the slot held last; 0: nothing yet.
  Address& last_freed(int slot) { return last_freed_[index(slot, kSlots)]; }
  DeviceId device(int number) const { return index(number, options_.device_count); }
  UserStream& stream(int number);
  UserStream& stream_of(DeviceId device, int number);
  // Null if it was retired since.
  UserStream* find(StreamName name);
  std::vector<UserStream>& streams() { return streams_; }

  // --- Acting ----------------------------------------------------------------------------------
  // Runs `call` as that caller and returns its result.
  template <class Call>
  auto call_as(Caller caller, Call call);
  // That thread of the team, not the main one, ends and is replaced by a new one.
  void replace_thread(int number);
  // Who must make calls that name the stream, or who was wanted. Nobody while the main thread
  // holds the gate and the stream is another thread's.
  std::optional<Caller> choose_caller(const UserStream& stream, Caller wanted) const;
  Caller choose_caller(Caller wanted) const;
  // A name of the calling thread that no later thread has.
  std::uint64_t thread_life(Caller caller) const;
  // Whether the user may launch work there now.
  bool is_usable(const UserStream& stream) const;
  void submit(UserStream& stream, sim::WorkTime time, sim::LifetimeId use = {});
  void order(UserStream& before, UserStream& after);
  // Tells the allocator of a use on `on`.
  void record(UserBlock& block, UserStream& on, Caller as);

  // The bookkeeping around a free that succeeded or is about to; see operations_blocks.cpp.
  void end_block(std::optional<UserBlock>& place, int slot, bool may_wait);
  // The block was told to be touched: its segment is validated after the operation.
  void touch(Address address) { touched_ = address; }
  // The figures of private pools may have changed.
  void touch_pools() { are_pools_touched_ = true; }

  // --- Switches --------------------------------------------------------------------------------
  bool is_gate_held = false;
  int offered_slot = -1;
  // The next driver calls may fail on purpose: answers that say so are right.
  bool are_faults_possible = false;
  // They have failed, perhaps while a capture needed a bracket.
  bool may_captures_be_lost = false;
  // They have failed, perhaps where the driver was to take memory back: it is asked again when
  // memory is given back next.
  bool may_driver_hold_more = false;

  // What was come across.
  Tally tally;

  // --- Judging ---------------------------------------------------------------------------------
  // After each operation: figures against the ledger, the oracle, captures, misuse, the segment.
  void check();
  // Everything that should be exact once nothing is pending.
  void check_quiet();
  DeviceStats stats(DeviceId device) { return allocator_->get_stats(device).value(); }
  // The bytes of the segments in which the user holds something.
  Bytes calculate_kept_bytes(DeviceId device);
  // Without the little memory that expandable segments need to wait for the device.
  bool is_full(DeviceId device);
  // What the limits allow to be reserved.
  Bytes calculate_allowed_bytes(DeviceId device);

  // Gives everything back; what is left at the end must be nothing.
  void finish();

 private:
  static int index(int number, int count) { return ((number % count) + count) % count; }
  void make_streams();
  void add_observers();
  void check_oracle();
  void keep_failure(std::string what);
  PendingBlock make_pending(const UserBlock& block);
  void release_pools(int odd);

  const CaseOptions options_;
  SimDriver sim_;
  MutantDriver driver_;
  std::unique_ptr<Allocator> allocator_;
  ThreadTeam team_;
  std::vector<UserStream> streams_;  // device by device
  int streams_per_device_ = 0;
  std::vector<std::optional<UserBlock>> blocks_;
  std::vector<Address> last_freed_;
  Ledger ledger_;
  PrivatePools pools_{*this, options_.device_count};
  Graphs graphs_{*this};
  Sharing sharing_{*this};
  std::array<std::uint64_t, 3> thread_generations_{};
  std::uint64_t checks_ = 0;
  Address touched_ = 0;
  bool are_pools_touched_ = false;
  std::string failure_;
};

template <class Call>
auto State::call_as(Caller caller, Call call) {
  std::optional<decltype(call())> result;
  const bool is_callback = caller == Caller::kDriverCallback;
  team_.run(is_callback ? 0 : static_cast<int>(caller), [&] {
    if (!is_callback) {
      result.emplace(call());
      return;
    }
    sim_.set_callback_thread(true);
    {
      DriverCallbackScope scope;
      result.emplace(call());
    }
    sim_.set_callback_thread(false);
  });
  return std::move(*result);
}

// What must serve the request; nothing where the user would not make it. See operations_pools.cpp.
std::optional<Before> prepare_request(State& state, const Allocate& request, UserStream& on,
                                      Caller as);
// Notes which pool the new block came from.
void note_pool(State& state, const Before& before, UserBlock& block);
void give_back_at_once(State& state, const Before& before, Address address);

// Whether the answer to `caller` was true; see oom_check.cpp.
void check_out_of_memory(State& state, const Allocate& request, Caller caller,
                         const UserStream& stream, const Before& before);

}  // namespace quarry::model
