// SPDX-License-Identifier: Apache-2.0
// A real Allocator over the simulated device, driven in the words of the cases: malloc, free,
// record, busy, complete, cap. Tells the hazard oracle of every block handed out and used; at the
// end of a test everything is validated and any hazard, lost capture or misuse is a failure. Not
// thread-safe itself: threads take turns, or call allocator() directly. A handle that names a
// per-thread default stream means that of the calling thread, also in what is remembered of it.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "core/allocator.hpp"
#include "sim/sim_driver.hpp"

namespace quarry::test {

inline constexpr StreamHandle kS0 = StreamHandle::kLegacy;

// The program's option --magazines (scenario_main.cpp): its tests then run with the magazines of
// threads, which is the default of Quarry. Without it they run as PyTorch decides, which is what
// the figures of the cases are about. Where the two differ a test says why.
bool has_magazines();
void set_magazines(bool has_magazines);

// The default settings, with the magazines of this run.
Config make_config();

struct ScenarioOptions {
  sim::SimOptions sim;
  Config config = make_config();
  static ScenarioOptions with_cap(Bytes cap) {
    ScenarioOptions options;
    options.sim.physical_bytes = cap;
    return options;
  }
  // With expandable segments.
  static ScenarioOptions with_expandable(Bytes cap = sim::SimOptions{}.physical_bytes) {
    ScenarioOptions options = with_cap(cap);
    options.config.expandable_segments = true;
    return options;
  }
};

class Scenario {
 public:
  explicit Scenario(const ScenarioOptions& options = {});
  explicit Scenario(Bytes cap) : Scenario(ScenarioOptions::with_cap(cap)) {}
  // Validates, and fails the test on hazards, misuses and captures that the allocator lost.
  ~Scenario();

  SimDriver& sim() { return *sim_; }
  Allocator& allocator() { return *allocator_; }

  // A non-blocking stream, with no work on it.
  StreamHandle make_stream(DeviceId device = 0);

  // 0 on failure; `last` then says why. The block counts as used by its stream at once.
  Address malloc(Bytes bytes, StreamRef stream, Bytes alignment = 512);
  Address malloc(Bytes bytes, StreamHandle stream = kS0, Bytes alignment = 512) {
    return malloc(bytes, StreamRef{0, stream}, alignment);
  }
  // The same from a pool of the stream's device, whatever is begun.
  Address malloc_in_pool(Bytes bytes, StreamHandle stream, PoolId pool);
  sim::LifetimeId lifetime_of(Address address) const { return live_.at(address).lifetime; }
  // After a restore: stale blocks are nobody's, and what is live again has `bytes` on `stream`.
  void follow(const RestoredPool& restored, StreamHandle stream, Bytes bytes);
  // Uses the block on its stream and every recorded stream once more, then frees it.
  StatusCode free(Address address);
  // Frees every block that is left.
  void free_all();
  // The user orders `stream` (of the block's device) after every stream that used the block, then
  // frees the block onto it.
  StatusCode free_on_stream(Address address, StreamHandle stream);
  // The user orders `stream` (of the block's device) after the block's stream, records and uses it
  // there.
  StatusCode record(Address address, StreamHandle stream);
  // The user does not work with the block on that stream any more.
  void forget(Address address, StreamHandle stream) {
    live_.at(address).recorded.erase(resolve({live_.at(address).stream.device, stream}).handle);
  }
  // Endless work on the stream, until complete.
  void busy(StreamRef stream);
  void busy(StreamHandle stream) { busy(StreamRef{0, stream}); }
  void complete(StreamRef stream);
  void complete(StreamHandle stream) { complete(StreamRef{0, stream}); }
  // Nothing is queued or running on the stream.
  bool is_idle(StreamRef stream) const { return sim_->is_idle(stream); }
  bool is_idle(StreamHandle stream) const { return is_idle(StreamRef{0, stream}); }

  StatusCode empty_cache(DeviceId device = 0) {
    return keep(allocator_->empty_cache(device)).code();
  }
  DeviceStats stats(DeviceId device = 0) { return allocator_->get_stats(device).value(); }
  Bytes reserved() { return static_cast<Bytes>(stats().reserved_bytes.all.current); }
  Bytes allocated() { return static_cast<Bytes>(stats().allocated_bytes.all.current); }
  Bytes active() { return static_cast<Bytes>(stats().active_bytes.all.current); }
  std::uint64_t calls(DriverEntry entry) const { return sim_->call_count(entry); }

  // Of the last operation that failed.
  StatusCode last_code() const { return last_code_; }
  const std::string& last_message() const { return last_message_; }

  // Applies a change to the settings.
  template <class Change>
  void configure(Change change) {
    Config config = allocator_->get_config();
    change(config);
    allocator_->configure(config);
  }

 private:
  struct Live {
    sim::LifetimeId lifetime{};
    StreamRef stream;
    std::set<StreamHandle> recorded;  // of the same device
  };
  const Status& keep(const Status& status);
  Address begin_life(const Result<Address>& result, Bytes bytes, StreamRef stream);
  // The simulator's name of the stream that holds in every thread.
  StreamRef resolve(StreamRef stream);

  std::unique_ptr<SimDriver> sim_;  // outlives the allocator
  std::unique_ptr<Allocator> allocator_;
  std::map<Address, Live> live_;
  StatusCode last_code_ = StatusCode::kOk;
  std::string last_message_;
};

}  // namespace quarry::test
