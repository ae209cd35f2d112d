// SPDX-License-Identifier: Apache-2.0
// Section "user-objects": when the callback of a user object runs that a graph retains. Quarry
// will take a graph's memory back then, so it must come after the last launch has ended.
#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "bench/driver_facts/device_objects.hpp"
#include "bench/driver_facts/gpu_work.hpp"
#include "bench/driver_facts/sections.hpp"
#include "bench/driver_facts/timing.hpp"

namespace quarry::facts {
namespace {

struct Firing {
  std::atomic<int> count = 0;
  std::atomic<std::thread::id> thread;
};

void CUDA_CB note_firing(void* firing) {
  static_cast<Firing*>(firing)->thread = std::this_thread::get_id();
  ++static_cast<Firing*>(firing)->count;
}

// A graph with one kernel that waits for the signal, and a user object moved into it.
class GraphScene {
 public:
  GraphScene() {
    CUuserObject object = nullptr;
    require(cu().user_object_create(&object, &firing_, note_firing, 1,
                                    CU_USER_OBJECT_NO_DESTRUCTOR_SYNC),
            "cuUserObjectCreate");
    require(cu().stream_begin_capture(stream_.get(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
            "cuStreamBeginCapture");
    require(signal_.hold(stream_.get()), "hold");
    require(cu().stream_end_capture(stream_.get(), &graph_), "cuStreamEndCapture");
    require(cu().graph_retain_user_object(graph_, object, 1, CU_GRAPH_USER_OBJECT_MOVE),
            "cuGraphRetainUserObject");
  }
  ~GraphScene() {
    signal_.raise();
    static_cast<void>(cu().ctx_synchronize());
    for (int i = 0; i < 2; ++i)
      destroy_executable(i);
    destroy_graph();
    // The callback writes into this object.
    static_cast<void>(has_fired());
  }
  GraphScene(const GraphScene&) = delete;
  GraphScene& operator=(const GraphScene&) = delete;

  void instantiate(int which) {
    require(cu().graph_instantiate(&executables_[which], graph_, 0), "cuGraphInstantiate");
  }
  void launch(int which) {
    require(cu().graph_launch(executables_[which], stream_.get()), "cuGraphLaunch");
  }
  void destroy_graph() {
    if (graph_ != nullptr) static_cast<void>(cu().graph_destroy(graph_));
    graph_ = nullptr;
  }
  void destroy_executable(int which) {
    if (executables_[which] != nullptr) {
      static_cast<void>(cu().graph_exec_destroy(executables_[which]));
    }
    executables_[which] = nullptr;
  }
  void end_work() {
    signal_.raise();
    require(cu().stream_synchronize(stream_.get()), "cuStreamSynchronize");
  }
  CUstream stream() const { return stream_.get(); }
  bool fired_here() const { return firing_.thread.load() == std::this_thread::get_id(); }
  int count() const { return firing_.count; }

  // Within 200 ms: the callback may come from another thread.
  bool has_fired() const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
    while (firing_.count == 0 && std::chrono::steady_clock::now() < end)
      std::this_thread::yield();
    return firing_.count != 0;
  }

 private:
  Firing firing_;
  Signal signal_;
  OwnStream stream_;
  CUgraph graph_ = nullptr;
  CUgraphExec executables_[2] = {};
};

class Story {
 public:
  Story(Recorder& recorder, std::string name) : recorder_(recorder), name_(std::move(name)) {}
  // Adds a row and returns whether the object has fired.
  bool tell(const GraphScene& scene, const char* after) {
    const bool has_fired = scene.has_fired();
    recorder_.add_row({name_, after, has_fired ? "fired" : "not fired"});
    return has_fired;
  }

 private:
  Recorder& recorder_;
  const std::string name_;
};

void measure_launch_in_flight(Recorder& recorder) {
  Story story(recorder, "a launch in flight");
  GraphScene scene;
  scene.instantiate(0);
  scene.destroy_graph();
  bool is_early = story.tell(scene, "graph destroyed, its executable alive");
  scene.launch(0);
  is_early |= story.tell(scene, "executable launched, its kernel runs");
  scene.destroy_executable(0);
  is_early |= story.tell(scene, "executable destroyed, the kernel still runs");
  scene.end_work();
  const bool has_fired = story.tell(scene, "kernel ended, stream synchronised");
  recorder.add_row({"a launch in flight", "thread of the callback",
                    !has_fired           ? "none"
                    : scene.fired_here() ? "the caller's"
                                         : "the driver's"});
  recorder.add_rule(
      "a graph's user object fires only after its last executable is destroyed and "
      "the last launch has ended",
      !is_early && has_fired);
}

void measure_orders(Recorder& recorder) {
  {
    Story story(recorder, "executable first");
    GraphScene scene;
    scene.instantiate(0);
    scene.destroy_executable(0);
    static_cast<void>(story.tell(scene, "executable destroyed, the graph alive"));
    scene.destroy_graph();
    static_cast<void>(story.tell(scene, "graph destroyed"));
  }
  {
    Story story(recorder, "never instantiated");
    GraphScene scene;
    scene.destroy_graph();
    static_cast<void>(story.tell(scene, "graph destroyed"));
  }
  {
    Story story(recorder, "two executables");
    GraphScene scene;
    scene.instantiate(0);
    scene.instantiate(1);
    scene.destroy_graph();
    scene.destroy_executable(0);
    static_cast<void>(story.tell(scene, "graph and one executable destroyed"));
    scene.destroy_executable(1);
    static_cast<void>(story.tell(scene, "the other destroyed too"));
    recorder.add_row({"two executables", "times that the callback ran", double(scene.count())});
  }
  {
    Story story(recorder, "a launch that ended");
    GraphScene scene;
    scene.instantiate(0);
    scene.destroy_graph();
    scene.launch(0);
    scene.end_work();
    static_cast<void>(story.tell(scene, "launch ended, the executable alive"));
    scene.destroy_executable(0);
    static_cast<void>(story.tell(scene, "executable destroyed"));
  }
}

// What a private pool will do: retain during the capture, on the graph that is being made.
void measure_abandoned_capture(Recorder& recorder) {
  Firing firing;
  const OwnStream stream;
  CUuserObject object = nullptr;
  require(
      cu().user_object_create(&object, &firing, note_firing, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC),
      "cuUserObjectCreate");
  require(cu().stream_begin_capture(stream.get(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "begin");
  CUstreamCaptureStatus status{};
  CUgraph graph = nullptr;
  const CUresult asked = cu().stream_get_capture_info(stream.get(), &status, nullptr, &graph,
                                                      nullptr, nullptr, nullptr);
  const CUresult retained =
      asked != CUDA_SUCCESS
          ? asked
          : cu().graph_retain_user_object(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE);
  // A query in a thread-local capture loses it (section "captures").
  static_cast<void>(cu().stream_query(stream.get()));
  CUgraph ended = nullptr;
  const CUresult code = cu().stream_end_capture(stream.get(), &ended);
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
  while (firing.count == 0 && std::chrono::steady_clock::now() < end)
    std::this_thread::yield();
  recorder.add_row({"lost capture", "retained while capturing", double(retained)});
  recorder.add_row({"lost capture", "capture ended with error " + std::to_string(code),
                    firing.count != 0 ? "fired" : "not fired"});
  if (ended != nullptr) static_cast<void>(cu().graph_destroy(ended));
  if (retained != CUDA_SUCCESS) static_cast<void>(cu().user_object_release(object, 1));
}

void CUDA_CB do_nothing(void*) {}

void measure_costs(Recorder& recorder) {
  recorder.start_table("Costs while a stream captures", {"call", "ns"});
  const OwnStream stream;
  require(cu().stream_begin_capture(stream.get(), CU_STREAM_CAPTURE_MODE_RELAXED), "begin");
  for (int i = 0; i < 2; ++i)
    require(submit_nothing(stream.get()), "kernel in the capture");
  CUstreamCaptureStatus status{};
  cuuint64_t id = 0;
  CUgraph graph = nullptr;
  const CUgraphNode* nodes = nullptr;
  const CUgraphEdgeData* edges = nullptr;
  std::size_t count = 0;
  const auto add = [&](const char* name, const std::function<CUresult()>& call) {
    require(call(), name);
    recorder.add_row({name, measure_ns([&] { static_cast<void>(call()); })});
  };
  add("cuStreamGetCaptureInfo, id only", [&] {
    return cu().stream_get_capture_info(stream.get(), &status, &id, nullptr, nullptr, nullptr,
                                        nullptr);
  });
  add("cuStreamGetCaptureInfo, all", [&] {
    return cu().stream_get_capture_info(stream.get(), &status, &id, &graph, &nodes, &edges,
                                        &count);
  });
  add("cuGraphNodeGetDependencies", [&] {
    CUgraphNode earlier[4] = {};
    CUgraphEdgeData data[4] = {};
    std::size_t room = 4;
    return cu().graph_node_get_dependencies(nodes[0], earlier, data, &room);
  });
  add("cuUserObjectCreate + cuGraphRetainUserObject", [&] {
    CUuserObject object = nullptr;
    const CUresult code = cu().user_object_create(&object, nullptr, do_nothing, 1,
                                                  CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
    if (code != CUDA_SUCCESS) return code;
    return cu().graph_retain_user_object(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE);
  });
  CUgraph ended = nullptr;
  require(cu().stream_end_capture(stream.get(), &ended), "cuStreamEndCapture");
  require(cu().graph_destroy(ended), "cuGraphDestroy");
}

}  // namespace

void measure_user_objects(Recorder& recorder, const SectionOptions&) {
  recorder.start_table("", {"case", "after", "the user object"});
  recorder.step("a launch in flight", [&] { measure_launch_in_flight(recorder); });
  recorder.step("orders of destruction", [&] { measure_orders(recorder); });
  recorder.step("a lost capture", [&] { measure_abandoned_capture(recorder); });
  recorder.step("costs", [&] { measure_costs(recorder); });
}

}  // namespace quarry::facts
