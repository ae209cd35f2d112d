// SPDX-License-Identifier: Apache-2.0
// The driver suite's fixture for the real driver.
#include <chrono>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

#include "cuda/cuda_driver.hpp"
#include "tests/conformance/driver/driver_fixture.hpp"
#include "tests/gpu/gpu_support.hpp"

namespace quarry {
namespace {

gpu::Stream get_handle(StreamRef stream) {
  return static_cast<gpu::Stream>(stream.handle);
}

class CudaFixture final : public DriverFixture {
 public:
  CudaFixture() {
    auto driver = cuda::open_cuda_driver();
    if (!driver.is_ok()) throw std::runtime_error(std::string(driver.status().message()));
    driver_ = std::move(driver).value();
  }

  Driver& driver() override { return *driver_; }

  StreamRef create_stream(Kind kind) override {
    return {0, StreamHandle{gpu::create_stream(kind == Kind::kBlocking)}};
  }
  void destroy_stream(StreamRef stream) override {
    if (signals_.count(stream.handle) > 0) release(stream);
    gpu::destroy_stream(get_handle(stream));
  }
  void hold(StreamRef stream) override {
    auto& signal = signals_[stream.handle];
    signal = std::make_unique<gpu::Signal>();
    signal->hold(get_handle(stream));
  }
  void release(StreamRef stream) override {
    signals_.at(stream.handle)->raise();
    gpu::synchronize(get_handle(stream));
  }
  DriverCode submit_work(StreamRef stream) override {
    return DriverCode{gpu::submit_work(get_handle(stream))};
  }
  DriverCode begin_capture(StreamRef stream, CaptureMode mode) override {
    return DriverCode{gpu::begin_capture(get_handle(stream), static_cast<int>(mode))};
  }
  DriverCode end_capture(StreamRef stream) override {
    return DriverCode{gpu::end_capture(get_handle(stream))};
  }
  Graph make_graph(StreamRef stream) override {
    auto graph = std::make_unique<gpu::Graph>(get_handle(stream));
    if (graph->code() != 0) throw std::runtime_error("no graph: " + std::to_string(graph->code()));
    graphs_.emplace(Graph{++last_graph_}, std::move(graph));
    return Graph{last_graph_};
  }
  void launch(Graph graph, StreamRef stream) override {
    graphs_.at(graph)->launch(get_handle(stream));
  }
  void destroy(Graph graph) override { graphs_.erase(graph); }
  bool await(const std::function<bool()>& has_happened) override {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!has_happened()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::yield();
    }
    return true;
  }

 private:
  std::unique_ptr<Driver> driver_;
  std::map<StreamHandle, std::unique_ptr<gpu::Signal>> signals_;
  std::map<Graph, std::unique_ptr<gpu::Graph>> graphs_;
  std::uint64_t last_graph_ = 0;
};

}  // namespace

std::unique_ptr<DriverFixture> make_driver_fixture() {
  return std::make_unique<CudaFixture>();
}

}  // namespace quarry
