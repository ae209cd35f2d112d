// SPDX-License-Identifier: Apache-2.0
// The driver suite's view of the simulated device.
#include <map>

#include "sim/sim_driver.hpp"
#include "tests/conformance/driver/driver_fixture.hpp"

namespace quarry {
namespace {

class SimFixture final : public DriverFixture {
 public:
  Driver& driver() override { return sim_; }

  StreamRef create_stream(Kind kind) override {
    return sim_.create_stream(
        0, kind == Kind::kBlocking ? sim::StreamKind::kBlocking : sim::StreamKind::kNonBlocking);
  }
  void destroy_stream(StreamRef stream) override {
    sim_.complete(stream);
    sim_.destroy_stream(stream);
  }
  void hold(StreamRef stream) override {
    // Remembers whose stream handle 2 was, so that any thread can end the work.
    held_[stream.handle] = stream.handle == StreamHandle::kPerThread
                               ? sim_.get_per_thread_stream(0, sim::get_this_thread())
                               : stream;
    sim_.submit_work(stream, sim::WorkTime::endless());
  }
  void release(StreamRef stream) override { sim_.complete(held_.at(stream.handle)); }
  DriverCode submit_work(StreamRef stream) override {
    return sim_.submit_work(stream, sim::WorkTime::lasting_ns(0));
  }
  DriverCode begin_capture(StreamRef stream, CaptureMode mode) override {
    return sim_.begin_capture(stream, mode);
  }
  DriverCode end_capture(StreamRef stream) override {
    const auto graph = sim_.end_capture(stream);
    if (graph.is_ok()) sim_.destroy_graph(graph.value);
    return graph.code;
  }
  Graph make_graph(StreamRef stream) override { return Graph(sim_.end_capture(stream).value); }
  void launch(Graph graph, StreamRef stream) override {
    sim_.launch_graph(sim::GraphId(graph), stream);
  }
  void destroy(Graph graph) override { sim_.destroy_graph(sim::GraphId(graph)); }
  bool await(const std::function<bool()>& has_happened) override { return has_happened(); }

 private:
  SimDriver sim_;
  std::map<StreamHandle, StreamRef> held_;
};

}  // namespace

std::unique_ptr<DriverFixture> make_driver_fixture() {
  return std::make_unique<SimFixture>();
}

}  // namespace quarry
