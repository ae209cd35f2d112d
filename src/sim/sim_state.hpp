// SPDX-License-Identifier: Apache-2.0
// All state of a SimDriver under its one lock, and what every call shares: counting, faults,
// finding a stream, misuse. Only sim_driver.cpp and sim_user.cpp include it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/mutex.hpp"
#include "sim/cost_model.hpp"
#include "sim/fault_plan.hpp"
#include "sim/hazard_oracle.hpp"
#include "sim/memory_map.hpp"
#include "sim/sim_capture.hpp"
#include "sim/sim_event.hpp"
#include "sim/sim_stream.hpp"
#include "sim/user_object.hpp"

namespace quarry {

struct SimState {
  explicit SimState(const sim::SimOptions& wanted)
      : options(wanted),
        timelines(wanted.oracle),
        streams(options, clock, timelines),
        objects(streams, timelines),
        captures(streams, timelines),
        memory(options),
        oracle(memory, timelines, clock) {}

  struct Thread {
    CaptureMode mode = CaptureMode::kGlobal;
    bool is_callback = false;
    DeviceId current_device = 0;
  };

  Mutex mutex{LockRank::kSimulator};
  const sim::SimOptions options;
  sim::VirtualClock clock QUARRY_GUARDED_BY(mutex);
  sim::Timelines timelines QUARRY_GUARDED_BY(mutex);
  sim::StreamTable streams QUARRY_GUARDED_BY(mutex);
  sim::EventTable events QUARRY_GUARDED_BY(mutex);
  sim::UserObjects objects QUARRY_GUARDED_BY(mutex);  // outlives the captures that hold them
  sim::CaptureTable captures QUARRY_GUARDED_BY(mutex);
  sim::MemoryMap memory QUARRY_GUARDED_BY(mutex);
  sim::HazardOracle oracle QUARRY_GUARDED_BY(mutex);
  sim::FaultPlan faults QUARRY_GUARDED_BY(mutex);
  sim::CallLedger ledger QUARRY_GUARDED_BY(mutex);
  std::uint64_t last_registration QUARRY_GUARDED_BY(mutex) = 0;
  std::vector<sim::Misuse> misuses QUARRY_GUARDED_BY(mutex);
  std::vector<Thread> threads QUARRY_GUARDED_BY(mutex);         // by ThreadId
  std::vector<sim::PhysicalId> freed QUARRY_GUARDED_BY(mutex);  // scratch of one call

  Thread& this_thread() QUARRY_REQUIRES(mutex);
  bool is_device(DeviceId device) const { return device >= 0 && device < options.device_count; }

  // Every call of Driver begins here. Anything but kSuccess is to be returned at once.
  DriverCode enter(DriverEntry entry, Bytes size = 0) QUARRY_REQUIRES(mutex);
  void charge(DriverEntry entry, const sim::CallSize& size = {}) QUARRY_REQUIRES(mutex);
  void note_misuse(sim::MisuseKind kind, std::optional<DriverEntry> entry, std::string what)
      QUARRY_REQUIRES(mutex);

  // `entry` is nothing for calls of the user's side.
  DriverCode find_stream(StreamRef ref, std::optional<DriverEntry> entry, sim::StreamIndex& stream)
      QUARRY_REQUIRES(mutex);
  sim::Event* find_event(EventHandle handle, DriverEntry entry) QUARRY_REQUIRES(mutex);

  // The codes with which a call is refused because of a capture, which is lost by it.
  DriverCode check_unsafe(DriverEntry entry) QUARRY_REQUIRES(mutex);
  // What either question about a stream's capture answers; it loses none.
  DriverResult<CaptureInfo> get_capture_info(StreamRef ref, DriverEntry entry)
      QUARRY_REQUIRES(mutex);
  // The same for a call that is about the capture: an error unless there is one, and it is whole.
  DriverCode find_active_capture(StreamRef ref, DriverEntry entry, sim::Capture*& capture)
      QUARRY_REQUIRES(mutex);
  // For an action on a stream: 901 if its capture is lost, 906 on a poisoned legacy stream.
  DriverCode check_capture_of(sim::Stream& stream, std::optional<DriverEntry> entry)
      QUARRY_REQUIRES(mutex);
  // For a query of an event: 907 if it belongs to a capture.
  DriverCode check_event(const sim::Event& event, DriverEntry entry) QUARRY_REQUIRES(mutex);

  // A wait that a capture has a part in: inside one, or on an event that belongs to one.
  DriverCode wait_in_capture(sim::Stream& stream, const sim::Event& event, DriverEntry entry)
      QUARRY_REQUIRES(mutex);
  // Tells the oracle of the physical memory in `freed`.
  void drop_freed() QUARRY_REQUIRES(mutex);

  sim::Actor actor_of(const sim::Stream& stream) const QUARRY_REQUIRES(mutex);
  // One piece of work on the stream, captured or not; its uses are to be told to the oracle next.
  DriverCode submit(StreamRef ref, sim::WorkTime time, sim::StreamIndex& stream)
      QUARRY_REQUIRES(mutex);
  DriverCode launch(sim::Graph& graph, StreamRef ref, sim::WorkTime time) QUARRY_REQUIRES(mutex);
  void note_use(sim::Stream& stream, const sim::GraphUse& use) QUARRY_REQUIRES(mutex);
  // Waits for the marks in virtual time; then the host has seen them.
  bool wait_on_host(const std::vector<sim::Mark>& marks) QUARRY_REQUIRES(mutex);
  // On this thread, which counts as one of the driver's meanwhile.
  void run_callback(const sim::DueCallback& due) QUARRY_EXCLUDES(mutex);
};

// MutexLock for calls that are made with no lock of the caller's held: those of the user, and the
// driver's waits. In the end, with nothing locked, it runs the callbacks that have come due.
class QUARRY_SCOPED_CAPABILITY FiringLock {
 public:
  explicit FiringLock(SimState& state) QUARRY_ACQUIRE(state.mutex) : state_(state) {
    state_.mutex.lock();
  }
  ~FiringLock() QUARRY_RELEASE() QUARRY_NO_THREAD_SAFETY_ANALYSIS {
    const std::vector<sim::DueCallback> due = state_.objects.take_due();
    state_.mutex.unlock();
    for (const sim::DueCallback& callback : due)
      state_.run_callback(callback);
  }
  FiringLock(const FiringLock&) = delete;
  FiringLock& operator=(const FiringLock&) = delete;

 private:
  SimState& state_;
};

}  // namespace quarry
