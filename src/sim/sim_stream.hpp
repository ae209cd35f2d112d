// SPDX-License-Identifier: Apache-2.0
// Streams as in-order queues in virtual time: handles and their reuse, default streams and their
// implicit order, work with a known end and endless work, and points that events name. Captures
// are sim_capture's; here a stream only says which one it is part of.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <queue>
#include <span>
#include <vector>

#include "sim/sim_types.hpp"
#include "sim/timeline.hpp"
#include "sim/virtual_clock.hpp"

namespace quarry::sim {

enum class StreamIndex : std::uint32_t {};
// 0: no capture.
using CaptureNumber = std::uint32_t;

// "Everything submitted to the stream so far."
struct Mark {
  StreamIndex stream{};
  Position position;
  std::uint64_t end_ns = 0;  // kNever: not known when the mark was made, ask end_of
};

// A piece of a stream's queue whose end is, or was until lately, unknown.
struct OpenWork {
  std::uint64_t sequence = 0;
  WorkTime time;
  std::vector<Mark> needs;          // of other streams
  std::uint64_t not_before_ns = 0;  // the end of what was queued before `open` had anything
  std::uint64_t end_ns = kNever;
  bool is_released = false;  // SimDriver::complete has gone through it
};

struct Stream {
  StreamIndex index{};
  StreamRef ref;
  StreamId id{};
  StreamKind kind = StreamKind::kBlocking;
  bool is_legacy = false;
  bool is_destroyed = false;
  bool is_listed_busy = false;      // in Device::busy
  bool is_listed_open = false;      // in StreamTable::open_streams_
  bool is_listed_blocking = false;  // in Device::blocking_since_legacy
  TimelineIndex timeline{};
  std::uint64_t end_ns = 0;       // of all submitted work; kNever: unknown
  std::deque<OpenWork> open;      // the queue from the first piece of unknown end on
  std::uint64_t legacy_seen = 0;  // the legacy work that this blocking stream is behind
  CaptureNumber capture = 0;
  TimelineIndex capture_timeline{};  // meaningful while capture != 0, as what follows
  std::vector<GraphNode> frontier;   // what the next captured work comes after
};

class StreamTable {
 public:
  StreamTable(const SimOptions& options, VirtualClock& clock, Timelines& timelines);

  StreamIndex create(DeviceId device, StreamKind kind);
  void destroy(StreamIndex stream);
  // Marks all streams of the device destroyed and makes new default streams.
  void reset_device(DeviceId device);

  enum class Found { kOk, kUnknown, kDestroyed };
  // The stream that the handle names for `thread`.
  Found find(StreamRef ref, ThreadId thread, StreamIndex& stream);
  StreamIndex per_thread(DeviceId device, ThreadId thread);
  StreamIndex legacy(DeviceId device) const { return devices_[device].legacy; }
  Stream& at(StreamIndex index) { return streams_[static_cast<std::uint32_t>(index)]; }

  // Each of these is an action on the stream and brings in the legacy stream's implicit order.
  std::uint64_t submit(StreamIndex stream, WorkTime time);
  Mark mark(StreamIndex stream);
  void wait(StreamIndex stream, std::span<const Mark> marks);

  // Marks of all streams of the device that are, or for all the host knows may be, busy.
  void mark_device(DeviceId device, std::vector<Mark>& marks);
  // The host learns that all work of the device is done: after wait_for_device.
  void host_sees_device(DeviceId device);

  std::uint64_t end_of(const Mark& mark);
  bool has_passed(const Mark& mark) { return end_of(mark) <= clock_.now_ns(); }
  // Lets virtual time pass until the mark's end. False if it has none and may not be given one.
  bool wait_for(const Mark& mark);
  bool wait_for_device(DeviceId device);
  // Ends endless work on the stream and on what it waits for, then waits for the stream.
  void complete(StreamIndex stream);
  std::size_t busy_count(DeviceId device);

 private:
  struct Device {
    StreamIndex legacy{};
    std::map<ThreadId, StreamIndex> per_thread;
    std::vector<StreamIndex> busy;                   // superset of the streams that may be busy
    std::vector<StreamIndex> blocking_since_legacy;  // blocking streams that legacy is not behind
    Mark legacy_work;                                // the last that blocking streams wait for
  };

  StreamIndex add(DeviceId device, StreamKind kind, StreamHandle handle);
  StreamHandle take_handle(StreamIndex stream);
  void enter(Stream& stream);
  void enter_legacy(Stream& legacy);
  void list(Stream& stream);
  void join(Stream& stream, const Mark& mark, std::vector<Mark>& needs);
  void push_open(Stream& stream, std::uint64_t sequence, WorkTime time, std::vector<Mark> needs);
  void release(Stream& stream, std::uint64_t sequence);
  void resolve_all();
  void drop_ended(Stream& stream);
  bool resolve(Stream& stream);
  std::uint64_t end_after(std::uint64_t start_ns, WorkTime time) const;
  void publish_legacy_work(Stream& stream);
  void drop_finished(DeviceId device);

  const SimOptions& options_;
  VirtualClock& clock_;
  Timelines& timelines_;
  std::deque<Stream> streams_;          // never shrinks: indices are never reused
  std::vector<StreamIndex> by_handle_;  // slot of a handle -> the stream it names, or named last
  std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, std::greater<>> free_slots_;
  std::vector<Device> devices_;
  std::vector<StreamIndex> open_streams_;  // those with open work
};

}  // namespace quarry::sim
