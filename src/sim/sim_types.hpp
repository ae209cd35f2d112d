// SPDX-License-Identifier: Apache-2.0
// Values of the simulated device that its users see: options, work, lifetimes, hazards, misuse.
// Plain values; the state behind them is SimDriver's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "driver/driver_types.hpp"

namespace quarry::sim {

inline constexpr std::uint64_t kNsPerUs = 1000;

struct SimOptions {
  int device_count = 1;
  // Of each device. What plain memory, extents and `external_bytes` together may take.
  Bytes physical_bytes = 150'109'880'320;  // an H200
  // Memory in use that came from no call of this driver: the context, other libraries.
  Bytes external_bytes = 0;
  // Addresses that reserve_addresses may hand out, all reservations together.
  Bytes address_space_bytes = (125ull << 40) + (512ull << 30);
  Bytes extent_granularity = 2ull << 20;  // 0: a device without virtual memory
  bool has_context_events = true;
  bool has_rdma = true;
  bool has_fd_handles = true;
  bool has_fabric_handles = false;
  // Track the use of physical bytes and report hazards. Off: no cost.
  bool oracle = true;
  // Driver calls take their modelled time of the virtual clock, too (they are counted always).
  bool calls_take_time = false;
  // Freed addresses come back, lowest first. Off: addresses rise until the space is used up.
  bool reuse_addresses = false;
  // A destroyed stream's handle names the next stream made, lowest first.
  bool reuse_stream_handles = false;
  // Handle 0 names the calling thread's default stream, as in code built for that.
  bool per_thread_default_streams = false;
  // A host wait ends endless work that it waits for. Off: such a wait is a Misuse (kDeadlock).
  bool waits_end_endless_work = true;
};

enum class StreamKind { kBlocking, kNonBlocking };

// The never reused number of a thread of this process.
enum class ThreadId : std::uint64_t {};
ThreadId get_this_thread() noexcept;

// When work ends. Work of a stream starts when all before it, and what it waits for, has ended.
struct WorkTime {
  enum class Kind { kLasting, kUntil, kEndless };
  Kind kind = Kind::kLasting;
  std::uint64_t ns = 0;

  static constexpr WorkTime lasting_ns(std::uint64_t ns) { return {Kind::kLasting, ns}; }
  static constexpr WorkTime lasting_us(std::uint64_t us) {
    return {Kind::kLasting, us * kNsPerUs};
  }
  // Ends at this virtual time, or when what is before it has ended, if that is later.
  static constexpr WorkTime until_ns(std::uint64_t ns) { return {Kind::kUntil, ns}; }
  // Runs until SimDriver::complete.
  static constexpr WorkTime endless() { return {Kind::kEndless, 0}; }
};

struct MemoryRange {
  Address address = 0;
  Bytes bytes = 0;
};

// Memory in the hands of a user, from the moment that it was handed out until it is given back.
enum class LifetimeId : std::uint64_t { kNone = 0 };
// Memory that something outside of all streams (a network card) uses by its address.
enum class RegistrationId : std::uint64_t { kNone = 0 };
// What a capture made. kNone: the capture was lost.
enum class GraphId : std::uint64_t { kNone = 0 };

// Work on memory, as a report names it.
struct MemoryUse {
  StreamRef stream;
  StreamId stream_id{};
  std::uint64_t sequence = 0;  // position in the stream; 0: before all of its work
  LifetimeId lifetime = LifetimeId::kNone;
  MemoryRange range;          // of the lifetime, or what was used outside of any
  std::uint64_t time_ns = 0;  // when it was submitted
};

enum class HazardKind {
  kHandedOutTwice,    // the memory is in the hands of another
  kUnordered,         // an earlier use is not ordered before the new user's work
  kNotBacked,         // handed out, but freed, unmapped, inaccessible or on another device
  kAccessUnmapped,    // work through an address without (accessible) memory
  kUnmappedUnderUse,  // unmapped while the host did not know that the last use was done
  kFreedWhileLive,    // plain memory freed while somebody holds it
  kUseAfterEnd,       // work submitted on a lifetime that has ended: the user's fault
  kGraphMemory,       // a graph was launched that uses memory which is now another's
  kRegisteredMemory,  // unmapped or freed while it was registered by its address
};
std::string_view get_name(HazardKind kind);

struct Hazard {
  HazardKind kind{};
  MemoryUse earlier;
  MemoryUse later;
  std::string text;  // one line that names both uses
};

enum class MisuseKind {
  kDestroyedStream,  // the real driver crashes
  kDestroyedEvent,   // undefined in the real driver
  kUnknownNode,      // a node whose capture is lost or over: undefined in the real driver
  kCallbackThread,   // a call from within a driver callback
  kDeadlock,         // a host wait for work that nothing ends
};
std::string_view get_name(MisuseKind kind);

struct Misuse {
  MisuseKind kind{};
  DriverEntry entry{};
  std::string text;
};

// A capture that a call of the Driver interface (or the user) has invalidated.
struct LostCapture {
  StreamRef origin;
  CaptureMode mode{};
  DriverCode code{};
  DriverEntry entry{};  // meaningful if by_user is false
  bool by_user = false;
};

}  // namespace quarry::sim
