// SPDX-License-Identifier: Apache-2.0
// The simulated device: a Driver in virtual time with the H200's restrictions and error codes, and
// an oracle that reports memory handed out while an earlier use may still run. START HERE to use
// it; docs/simulator.md says what it models and what not. The state is in sim_state.hpp.
//
// Two sides. The Driver interface is what the allocator under test calls: counted, costed, subject
// to the fault plan. The user side is what a program does with its GPU (make streams, submit work,
// capture graphs): never counted. Thread-safe; nothing sleeps: a host wait moves virtual time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "driver/driver.hpp"
#include "sim/sim_types.hpp"

namespace quarry {

struct SimState;

class SimDriver final : public Driver {
 public:
  explicit SimDriver(const sim::SimOptions& options = {});
  ~SimDriver() override;

  // --- Driver ----------------------------------------------------------------------------------
  DriverResult<int> get_device_count() noexcept override;
  DriverResult<DeviceProperties> get_device_properties(DeviceId device) noexcept override;
  DriverResult<MemoryInfo> get_memory_info(DeviceId device) noexcept override;
  DriverCode enable_peer_access(DeviceId device, DeviceId peer) noexcept override;
  DriverResult<Address> allocate(DeviceId device, Bytes bytes) noexcept override;
  DriverCode free(DeviceId device, Address address) noexcept override;
  DriverResult<Address> reserve_addresses(Bytes bytes, Bytes alignment) noexcept override;
  DriverCode free_addresses(Address address, Bytes bytes) noexcept override;
  DriverResult<ExtentHandle> create_extent(DeviceId device, Bytes bytes,
                                           ExtentKind kind) noexcept override;
  DriverCode release_extent(ExtentHandle extent) noexcept override;
  DriverCode map(Address address, Bytes bytes, ExtentHandle extent) noexcept override;
  DriverCode unmap(Address address, Bytes bytes) noexcept override;
  DriverCode set_access(Address address, Bytes bytes,
                        std::span<const DeviceId> devices) noexcept override;
  DriverCode revoke_access(Address address, Bytes bytes, DeviceId device) noexcept override;
  DriverResult<EventHandle> create_event(DeviceId device) noexcept override;
  DriverCode destroy_event(EventHandle event) noexcept override;
  DriverCode record_event(EventHandle event, StreamRef stream) noexcept override;
  DriverCode record_context_event(EventHandle event, DeviceId device) noexcept override;
  DriverCode query_event(EventHandle event) noexcept override;
  DriverCode synchronize_event(EventHandle event) noexcept override;
  DriverCode wait_event(StreamRef stream, EventHandle event) noexcept override;
  DriverResult<CaptureStatus> get_capture_status(StreamRef stream) noexcept override;
  DriverResult<CaptureInfo> get_capture_info(StreamRef stream) noexcept override;
  DriverCode call_when_graph_is_gone(StreamRef stream, GraphGoneCallback callback,
                                     void* user) noexcept override;
  DriverCode get_capture_frontier(StreamRef stream,
                                  std::vector<GraphNode>& nodes) noexcept override;
  DriverCode get_predecessors(GraphNode node, std::vector<GraphNode>& nodes) noexcept override;
  DriverResult<StreamId> get_stream_id(StreamRef stream) noexcept override;
  DriverResult<CaptureMode> exchange_capture_mode(CaptureMode mode) noexcept override;
  std::uint64_t read_clock_ns() noexcept override { return now_ns(); }

  // --- Virtual time ----------------------------------------------------------------------------
  std::uint64_t now_ns() const;
  // Time never goes back: an earlier time changes nothing.
  void advance_to_ns(std::uint64_t ns);
  void advance_to_us(std::uint64_t us) { advance_to_ns(us * sim::kNsPerUs); }
  void advance_by_ns(std::uint64_t ns);
  void advance_by_us(std::uint64_t us) { advance_by_ns(us * sim::kNsPerUs); }

  // --- The user's streams ----------------------------------------------------------------------
  StreamRef create_stream(DeviceId device, sim::StreamKind kind);
  // Its work still runs to the end. Any later call with this handle is a Misuse, until the handle
  // is given to a new stream (SimOptions::reuse_stream_handles).
  DriverCode destroy_stream(StreamRef stream);
  // Another name for the default stream that `thread` reaches by handle 2, valid in every thread.
  StreamRef get_per_thread_stream(DeviceId device, sim::ThreadId thread);
  // On a capturing stream the work goes into the graph instead and runs at launch_graph.
  DriverCode submit_work(StreamRef stream, sim::WorkTime time,
                         std::span<const sim::LifetimeId> uses = {});
  DriverCode submit_work(StreamRef stream, sim::WorkTime time, sim::MemoryRange use);
  // Ends the endless work on the stream (and what that waits for), and lets time pass until all
  // that is queued on it now is done. The host has not seen that: nobody asked.
  void complete(StreamRef stream);
  bool is_idle(StreamRef stream) const;
  // Synchronisation that the user makes himself, unknown to the allocator: all work on `before` so
  // far is ordered before what is submitted to `after` from now on.
  DriverCode user_orders(StreamRef before, StreamRef after);
  // The user waits on the host for the stream.
  DriverCode user_synchronizes(StreamRef stream);

  // --- The user's captures ---------------------------------------------------------------------
  DriverCode begin_capture(StreamRef stream, CaptureMode mode);
  // kCaptureInvalidated if it was lost, kCaptureUnjoined if a forked stream was not joined.
  DriverResult<sim::GraphId> end_capture(StreamRef stream);
  DriverCode launch_graph(sim::GraphId graph, StreamRef stream, sim::WorkTime time = {});
  DriverCode destroy_graph(sim::GraphId graph);
  std::vector<sim::LostCapture> get_lost_captures() const;

  // --- The user's threads and devices ----------------------------------------------------------
  void set_current_device(DeviceId device);
  DeviceId get_current_device() const;
  // From now on the calling thread is, or is no longer, one that runs a driver callback: every
  // call of Driver on it fails with kNotPermitted and is a Misuse.
  void set_callback_thread(bool is_callback);
  // Frees all memory, streams, events and captures of the device.
  void reset_device(DeviceId device);
  void set_physical_bytes(DeviceId device, Bytes bytes);
  void set_external_bytes(DeviceId device, Bytes bytes);

  // --- The oracle (all of it does nothing if SimOptions::oracle is off) ------------------------
  // The allocator has handed out this memory of `device` to work of `stream`. Reports a hazard if
  // that is wrong. kNone with the oracle off.
  sim::LifetimeId begin_lifetime(DeviceId device, Address address, Bytes bytes, StreamRef stream);
  // The user gives the memory back: call it before the allocator's free.
  void end_lifetime(sim::LifetimeId lifetime);
  // Work that touches the memory was submitted last to the stream: what submit_work(.., uses)
  // says.
  void use(sim::LifetimeId lifetime, StreamRef stream);
  void use(sim::MemoryRange range, StreamRef stream);
  // Something that is no work of a stream (a network card) uses the memory by its address, until
  // it is told to stop: meanwhile the memory there must stay what it is. kNone if there is none.
  sim::RegistrationId register_memory(sim::MemoryRange range);
  void deregister_memory(sim::RegistrationId registration);
  std::uint64_t hazard_count() const;
  // The first 1,000.
  std::vector<sim::Hazard> get_hazards() const;
  void clear_hazards();

  // --- Faults, counts, cost --------------------------------------------------------------------
  // The k-th call of `entry` from now on (1 = the next) fails with `code` and changes nothing.
  void fail_call(DriverEntry entry, std::uint64_t k, DriverCode code);
  // The k-th call of any entry from now on.
  void fail_any_call(std::uint64_t k, DriverCode code);
  // Every call of `entry` whose size argument satisfies the predicate (0 for calls without one).
  void fail_calls_if(DriverEntry entry, std::function<bool(Bytes)> predicate, DriverCode code);
  void clear_faults();
  std::uint64_t injected_fault_count() const;
  std::uint64_t call_count(DriverEntry entry) const;
  std::uint64_t call_count() const;
  void reset_call_counts();
  std::uint64_t driver_time_ns() const;  // modelled, of all calls
  std::uint64_t driver_time_ns(DriverEntry entry) const;
  std::uint64_t misuse_count() const;
  std::vector<sim::Misuse> get_misuses() const;

  // --- What is held from the device ------------------------------------------------------------
  struct Holdings {
    Bytes physical_bytes = 0;  // without external ones
    std::uint64_t plain_allocations = 0;
    std::uint64_t extents = 0;  // created and not released, or still mapped
    std::uint64_t mappings = 0;
    std::uint64_t reservations = 0;
    std::uint64_t events = 0;
  };
  // Memory of the device; reservations are those of all devices.
  Holdings get_holdings(DeviceId device) const;
  // Of the extent that is mapped at the address; none if none is.
  std::optional<ExtentKind> find_extent_kind(Address address) const;

 private:
  std::unique_ptr<SimState> state_;
};

}  // namespace quarry
