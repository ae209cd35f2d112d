// SPDX-License-Identifier: Apache-2.0
// Values that cross the Driver interface: handles, codes, properties. Plain values without
// ownership; the numbers are the CUDA driver API's, but no CUDA header is needed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/bytes.hpp"

namespace quarry {

// CUDA's ordinal of a device within this process.
using DeviceId = int;

// A CUstream. 0 and 1 name the legacy default stream, 2 the calling thread's default stream: one
// value for a different stream in each thread.
enum class StreamHandle : std::uint64_t { kLegacy = 0, kLegacyExplicit = 1, kPerThread = 2 };
// One value for each stream.
constexpr StreamHandle to_canonical(StreamHandle handle) {
  return handle == StreamHandle::kLegacyExplicit ? StreamHandle::kLegacy : handle;
}
// The driver's never reused number of a stream (cuStreamGetId).
enum class StreamId : std::uint64_t {};
enum class EventHandle : std::uint64_t { kNull = 0 };
enum class ExtentHandle : std::uint64_t { kNull = 0 };

// A stream handle means something only within a device's context.
struct StreamRef {
  DeviceId device = 0;
  StreamHandle handle = StreamHandle::kLegacy;

  friend bool operator==(const StreamRef&, const StreamRef&) = default;
};

// CUresult. Codes that Quarry does not name keep their number.
enum class DriverCode : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kDeinitialized = 4,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidContext = 201,
  kInvalidHandle = 400,
  kNotReady = 600,
  kIllegalAddress = 700,
  kContextDestroyed = 709,
  kNotPermitted = 800,
  kNotSupported = 801,
  kCaptureUnsupported = 900,  // a call that no capture survives, or not in this mode
  kCaptureInvalidated = 901,  // the capture on this stream was lost before
  kCaptureMerge = 902,
  kCaptureUnmatched = 903,
  kCaptureUnjoined = 904,
  kCaptureIsolation = 905,  // a capturing stream may not wait on an event from outside
  kCaptureImplicit = 906,   // the legacy stream while a blocking stream captures
  kCapturedEvent = 907,     // an event that was recorded inside a capture
  kCaptureWrongThread = 908,
  kUnknown = 999,
};

// "CUDA_ERROR_OUT_OF_MEMORY (2)": the driver's own name and number.
std::string describe(DriverCode code);

template <class T>
struct [[nodiscard]] DriverResult {
  DriverCode code = DriverCode::kUnknown;
  T value{};

  DriverResult(DriverCode failed) : code(failed) {}            // NOLINT
  DriverResult(T v) : code(DriverCode::kSuccess), value(v) {}  // NOLINT
  bool is_ok() const noexcept { return code == DriverCode::kSuccess; }
};

enum class CaptureMode : int { kGlobal = 0, kThreadLocal = 1, kRelaxed = 2 };
enum class CaptureStatus : int { kNone = 0, kActive = 1, kInvalidated = 2 };
// The driver's never reused number of a capture; all streams that take part in it have the same.
enum class CaptureId : std::uint64_t { kNone = 0 };

// A piece of captured work: a node of the graph that its capture makes.
enum class GraphNode : std::uint64_t {};

struct CaptureInfo {
  CaptureStatus status = CaptureStatus::kNone;
  CaptureId id = CaptureId::kNone;  // kNone unless `status` is kActive: a lost one has no number
};

// On a thread of the driver, which may make no driver call.
using GraphGoneCallback = void (*)(void* user);

struct MemoryInfo {
  Bytes free_bytes = 0;
  Bytes total_bytes = 0;
};

struct DeviceProperties {
  Bytes total_bytes = 0;
  // Multiple of every extent's size and of every mapping's address; 0 without virtual memory.
  Bytes extent_granularity = 0;
  bool has_context_events = false;  // record_context_event works
  bool has_rdma = false;            // ExtentKind::gpu_direct_rdma works
  bool has_fd_handles = false;      // ExtentKind::HandleType::kFileDescriptor works
};

// What an extent must be able to do; extents of different kinds are never exchanged.
struct ExtentKind {
  enum class HandleType : int { kNone = 0, kFileDescriptor = 1, kFabric = 8 };
  HandleType handle_type = HandleType::kNone;
  bool gpu_direct_rdma = false;

  friend bool operator==(const ExtentKind&, const ExtentKind&) = default;
};

// Every call of Driver, for counts, cost models and fault plans.
enum class DriverEntry : int {
  kGetDeviceCount,
  kGetDeviceProperties,
  kGetMemoryInfo,
  kEnablePeerAccess,
  kAllocate,
  kFree,
  kReserveAddresses,
  kFreeAddresses,
  kCreateExtent,
  kReleaseExtent,
  kMap,
  kUnmap,
  kSetAccess,
  kRevokeAccess,
  kCreateEvent,
  kDestroyEvent,
  kRecordEvent,
  kRecordContextEvent,
  kQueryEvent,
  kSynchronizeEvent,
  kWaitEvent,
  kGetCaptureStatus,
  kGetCaptureInfo,
  kCallWhenGraphIsGone,
  kGetCaptureFrontier,
  kGetPredecessors,
  kGetStreamId,
  kExchangeCaptureMode,
};
inline constexpr int kDriverEntryCount = static_cast<int>(DriverEntry::kExchangeCaptureMode) + 1;

std::string_view get_name(DriverEntry entry);  // "allocate", "query_event", ...

}  // namespace quarry
