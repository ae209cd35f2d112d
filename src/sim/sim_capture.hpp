// SPDX-License-Identifier: Apache-2.0
// Captures under way: which streams take part, which calls lose them, and the graphs they become.
// The rules are those measured on an H200 (docs/simulator.md has the table). Order inside a
// capture is kept on timelines of its own, because a graph may be replayed on any stream.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "sim/sim_stream.hpp"
#include "sim/sim_types.hpp"
#include "sim/user_object.hpp"

namespace quarry::sim {

// Work of a graph on memory: the address is what a launch will use, whatever lies there then.
struct GraphUse {
  LifetimeId lifetime = LifetimeId::kNone;
  MemoryRange range;
};

struct Graph {
  CaptureNumber capture = 0;
  std::vector<GraphUse> uses;
  std::vector<UserObjectHold> objects;
  std::optional<Mark> last_launch;
};

struct Capture {
  CaptureNumber number = 0;
  CaptureMode mode{};
  ThreadId thread{};
  StreamIndex origin{};
  DeviceId device = 0;
  bool is_lost = false;
  bool has_blocking_stream = false;  // then the device's legacy stream may not be touched
  std::vector<StreamIndex> streams;
  std::vector<std::vector<GraphNode>> predecessors;  // of each node
  std::vector<GraphUse> uses;
  std::vector<UserObjectHold> objects;
};

// The call that loses a capture, for the record.
struct Culprit {
  std::optional<DriverEntry> entry;  // nothing: the user himself
  DriverCode code{};
};

class CaptureTable {
 public:
  CaptureTable(StreamTable& streams, Timelines& timelines)
      : streams_(streams), timelines_(timelines) {}

  bool is_any_active() const noexcept { return !active_.empty(); }
  bool is_any_active_on(DeviceId device) const;
  // Null if it has ended.
  Capture* find(CaptureNumber number);
  bool has_blocking_capture(DeviceId device) const;

  void begin(StreamIndex stream, CaptureMode mode, ThreadId thread);
  void add_stream(Capture& capture, StreamIndex stream);
  // One more piece of work on a stream of the capture: a node behind the stream's frontier.
  void add_node(Capture& capture, Stream& stream);
  // Null unless the node is one of an active capture.
  const std::vector<GraphNode>* find_predecessors(GraphNode node);
  // `stream` is the capture's origin. What it made, or why nothing came of it.
  DriverResult<GraphId> end(StreamIndex stream);
  void forget_device(DeviceId device);

  void lose(Capture& capture, Culprit culprit);
  void lose_all(DeviceId device, Culprit culprit);
  // Those that a touch of the legacy stream loses.
  void lose_blocking(DeviceId device, Culprit culprit);
  // Those that an unsafe call of a thread in this capture mode loses. False if there are none.
  bool lose_to_unsafe_call(ThreadId thread, CaptureMode mode, Culprit culprit);

  Graph* find_graph(GraphId graph);
  bool destroy_graph(GraphId graph) { return graphs_.erase(graph) != 0; }
  const std::vector<LostCapture>& lost() const noexcept { return lost_; }

 private:
  bool is_joined(const Capture& capture);

  StreamTable& streams_;
  Timelines& timelines_;
  std::map<CaptureNumber, Capture> active_;  // begun and not ended, lost ones included
  std::map<GraphId, Graph> graphs_;
  CaptureNumber last_number_ = 0;
  std::vector<LostCapture> lost_;
};

}  // namespace quarry::sim
