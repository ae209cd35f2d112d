// SPDX-License-Identifier: Apache-2.0
// A Driver that lies about one thing and passes everything else on. Under an allocator it stands
// for a fault of that allocator's order: whoever believes the lie hands out memory too early, and
// the oracle of the SimDriver below must say so. Borrows the driver it wraps; as thread-safe as
// it.
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <string_view>

#include "tests/support/forwarding_driver.hpp"

namespace quarry {

enum class Lie {
  kNone,
  kQueryAlwaysPassed,   // a lost fence: query_event says "passed" and does not ask
  kFreshQueryPassed,    // the same, but only of the event that was recorded last
  kRecordDropped,       // record_event and record_context_event do nothing
  kRecordOnIdleStream,  // record_event records on `idle_stream` instead
  kWaitDropped,         // wait_event does nothing
  kSynchronizeDropped,  // synchronize_event does not wait
  kGraphGoneAtOnce,     // call_when_graph_is_gone calls before it returns
  kMoveUnmapsOld,       // map unmaps what the extent was mapped to before
  kNeverCapturing,      // get_capture_info says that no stream captures
  kSameCapture,         // get_capture_info gives every capture the same number
};
std::string_view get_name(Lie lie);

class MutantDriver final : public test::ForwardingDriver {
 public:
  MutantDriver(Driver& truth, Lie lie, StreamRef idle_stream = {})
      : ForwardingDriver(truth), lie_(lie), idle_stream_(idle_stream) {}

  // How often it lied: a mutant that was never asked proves nothing.
  std::uint64_t lie_count() const noexcept { return lie_count_.load(); }

  // It lies from the beginning, but while it is told not to.
  void set_lying(bool is_lying) noexcept { is_lying_.store(is_lying); }

  DriverCode record_event(EventHandle event, StreamRef stream) noexcept override;
  DriverCode record_context_event(EventHandle event, DeviceId device) noexcept override;
  DriverCode query_event(EventHandle event) noexcept override;
  DriverCode synchronize_event(EventHandle event) noexcept override;
  DriverCode map(Address address, Bytes bytes, ExtentHandle extent) noexcept override;
  DriverCode unmap(Address address, Bytes bytes) noexcept override;
  DriverCode wait_event(StreamRef stream, EventHandle event) noexcept override;
  DriverCode call_when_graph_is_gone(StreamRef stream, GraphGoneCallback callback,
                                     void* user) noexcept override;
  DriverResult<CaptureInfo> get_capture_info(StreamRef stream) noexcept override;

 private:
  // True, and counted, if this is the lie to tell.
  bool lies(Lie lie) noexcept;

  const Lie lie_;
  const StreamRef idle_stream_;
  std::atomic<std::uint64_t> lie_count_{0};
  std::atomic<bool> is_lying_{true};
  // For kMoveUnmapsOld.
  std::mutex mappings_mutex_;
  std::map<Address, ExtentHandle> mappings_;
  std::map<Address, Bytes> gone_;  // unmapped already, which the caller has yet to ask for
  std::atomic<EventHandle> recorded_last_{EventHandle::kNull};
};

}  // namespace quarry
