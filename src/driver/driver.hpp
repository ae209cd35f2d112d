// SPDX-License-Identifier: Apache-2.0
// What Quarry asks of a GPU driver, and nothing more: some 25 calls, used only off the hit path.
// Two implementations exist: src/sim (virtual time, and an oracle of memory hazards) and cuda/
// (the CUDA driver API). Both obey this contract; tests/conformance runs one suite over either.
//
// The contract, for every call:
// - It may be made from any thread, with any context current, and leaves the caller's current
//   context and device as they were. A call that names a device acts in that device's primary
//   context, which the implementation retains at the first use.
// - It never throws and returns the driver's own code. It calls nothing of Quarry's, but for what
//   call_when_graph_is_gone was given.
// - No lock of Quarry is needed; calls that wait for the device (free, synchronize_event) are made
//   with none held, because host functions on the device's streams may allocate.
// - Capture safety is the caller's business: see CaptureModeBracket, and the notes on each call.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "driver/driver_types.hpp"

namespace quarry {

class Driver {
 public:
  Driver() = default;
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;
  virtual ~Driver() = default;

  // --- Devices ---------------------------------------------------------------------------------
  virtual DriverResult<int> get_device_count() noexcept = 0;
  virtual DriverResult<DeviceProperties> get_device_properties(DeviceId device) noexcept = 0;
  virtual DriverResult<MemoryInfo> get_memory_info(DeviceId device) noexcept = 0;
  // Lets `device` reach plain memory of `peer`. Success if it could already.
  virtual DriverCode enable_peer_access(DeviceId device, DeviceId peer) noexcept = 0;

  // --- Plain memory (cuMemAlloc, cuMemFree) ----------------------------------------------------
  // Both lose a global capture of another thread, and any but a relaxed one of this thread, unless
  // made inside a relaxed bracket. `bytes` > 0; addresses are aligned to 512 at least.
  virtual DriverResult<Address> allocate(DeviceId device, Bytes bytes) noexcept = 0;
  // Waits for all work submitted to the device's context. kInvalidValue for an address that
  // `allocate` did not return, or that was freed; nothing is freed then.
  virtual DriverCode free(DeviceId device, Address address) noexcept = 0;

  // --- Virtual memory (cuMemAddressReserve and friends) ----------------------------------------
  // Sizes and addresses are multiples of DeviceProperties::extent_granularity. Capture-safe.
  virtual DriverResult<Address> reserve_addresses(Bytes bytes, Bytes alignment) noexcept = 0;
  // The whole reservation, with nothing mapped in it.
  virtual DriverCode free_addresses(Address address, Bytes bytes) noexcept = 0;
  virtual DriverResult<ExtentHandle> create_extent(DeviceId device, Bytes bytes,
                                                   ExtentKind kind) noexcept = 0;
  // The physical memory goes back when the last mapping is gone too.
  virtual DriverCode release_extent(ExtentHandle extent) noexcept = 0;
  // An extent maps whole or not at all (kNotSupported otherwise), at several addresses if wished.
  // Mapped memory is inaccessible until set_access.
  virtual DriverCode map(Address address, Bytes bytes, ExtentHandle extent) noexcept = 0;
  // Whole mappings only. Does NOT wait for kernels: the caller knows that nothing uses the range.
  virtual DriverCode unmap(Address address, Bytes bytes) noexcept = 0;
  // Whole mappings only. Read and write for each of `devices`; what others may do stays.
  virtual DriverCode set_access(Address address, Bytes bytes,
                                std::span<const DeviceId> devices) noexcept = 0;
  // Whole mappings only. No access for `device` any more.
  virtual DriverCode revoke_access(Address address, Bytes bytes, DeviceId device) noexcept = 0;

  // --- Events (timing disabled) ----------------------------------------------------------------
  virtual DriverResult<EventHandle> create_event(DeviceId device) noexcept = 0;
  virtual DriverCode destroy_event(EventHandle event) noexcept = 0;
  // The event completes when everything submitted to `stream` before this call is done. Never on a
  // stream that captures (the event then belongs to the graph: querying it loses the capture), nor
  // on the legacy stream while a blocking stream captures: ask get_capture_status first.
  virtual DriverCode record_event(EventHandle event, StreamRef stream) noexcept = 0;
  // As record_event, for all streams of the device's context. Loses every capture in it.
  virtual DriverCode record_context_event(EventHandle event, DeviceId device) noexcept = 0;
  // kSuccess when completed (or never recorded), kNotReady when pending. Needs a relaxed bracket.
  virtual DriverCode query_event(EventHandle event) noexcept = 0;
  // Blocks the calling thread until the event completes. Needs a relaxed bracket.
  virtual DriverCode synchronize_event(EventHandle event) noexcept = 0;
  // Work submitted to `stream` from now on waits for the event, on the device.
  virtual DriverCode wait_event(StreamRef stream, EventHandle event) noexcept = 0;

  // --- Streams and captures --------------------------------------------------------------------
  // kSuccess with a status, or kCaptureImplicit for the legacy stream while a blocking stream
  // captures; harmless in both cases. On a destroyed stream the real driver crashes.
  virtual DriverResult<CaptureStatus> get_capture_status(StreamRef stream) noexcept = 0;
  // As get_capture_status, and which capture it is. In an active capture kNotSupported before CUDA
  // 11.3. Not while another thread ends that capture: the driver crashes (580.159, every second
  // run of a storm); get_capture_status may be asked at any time.
  virtual DriverResult<CaptureInfo> get_capture_info(StreamRef stream) noexcept = 0;
  // The driver's unique id of a stream: never reused, and different for each thread's per-thread
  // default stream. Loses a capture of that stream: ask get_capture_status first.
  virtual DriverResult<StreamId> get_stream_id(StreamRef stream) noexcept = 0;
  // Sets the calling thread's capture mode and returns the one before (cuThreadExchange...Mode).
  virtual DriverResult<CaptureMode> exchange_capture_mode(CaptureMode mode) noexcept = 0;

  // --- Time ------------------------------------------------------------------------------------
  // Of the host, never going back; on the simulated device virtual. No call of the driver's.
  virtual std::uint64_t read_clock_ns() noexcept;

  // --- Graphs under construction ---------------------------------------------------------------
  // They need no bracket, lose no capture and add no node. The driver does not lock a graph: call
  // them where the user could capture work himself, as in his own call that names the stream.
  // kInvalidValue if the stream does not capture, kCaptureInvalidated if its capture is lost,
  // kCaptureImplicit as get_capture_status, kNotSupported before CUDA 11.3.

  // Calls `callback(user)` once, when the graph that the stream's capture makes, all copies and
  // executables of it and all their launches are gone; also if nothing comes of the capture. It
  // comes some time after that, from no call that is made under a lock of Quarry: on a thread of
  // the driver or, on the simulated device, in a call of the user's or one that waits for the
  // device. It does not come if the process ends first, nor if this call fails.
  virtual DriverCode call_when_graph_is_gone(StreamRef stream, GraphGoneCallback callback,
                                             void* user) noexcept = 0;
  // Appends the nodes that the next work captured on the stream will come after. A node that the
  // later work waits for in part only (by a programmatic launch) is left out, here and below: that
  // it is earlier proves nothing. After a failure `nodes` is as it was.
  virtual DriverCode get_capture_frontier(StreamRef stream,
                                          std::vector<GraphNode>& nodes) noexcept = 0;
  // Appends the nodes that `node` itself depends on. Its capture must be active, which the
  // stream's frontier has just shown: anything else is undefined on the real driver.
  virtual DriverCode get_predecessors(GraphNode node, std::vector<GraphNode>& nodes) noexcept = 0;
};

// For its lifetime the calling thread may make calls that would otherwise lose a capture (see
// Driver). Restores the thread's mode at the end. Two driver calls, about 20 ns together.
class CaptureModeBracket {
 public:
  explicit CaptureModeBracket(Driver& driver) noexcept
      : driver_(driver), before_(driver.exchange_capture_mode(CaptureMode::kRelaxed)) {}
  ~CaptureModeBracket() {
    if (before_.is_ok()) static_cast<void>(driver_.exchange_capture_mode(before_.value));
  }
  CaptureModeBracket(const CaptureModeBracket&) = delete;
  CaptureModeBracket& operator=(const CaptureModeBracket&) = delete;

 private:
  Driver& driver_;
  DriverResult<CaptureMode> before_;
};

}  // namespace quarry
