// SPDX-License-Identifier: Apache-2.0
// The trials in which the pairs of launches are captured into a graph and the graph is replayed.
#include <algorithm>

#include "bench/driver_facts/alias_coherence.hpp"

namespace quarry::facts {
namespace {

constexpr unsigned kPairs = 20;

class Graph {
 public:
  // Captures what `body` submits to the stream.
  Graph(CUstream stream, const std::function<void()>& body) {
    require(cu().stream_begin_capture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "capture");
    body();
    require(cu().stream_end_capture(stream, &graph_), "cuStreamEndCapture");
    require(cu().graph_instantiate(&executable_, graph_, 0), "cuGraphInstantiate");
  }
  ~Graph() {
    if (executable_ != nullptr) static_cast<void>(cu().graph_exec_destroy(executable_));
    static_cast<void>(cu().graph_destroy(graph_));
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void launch(CUstream stream) const {
    require(cu().graph_launch(executable_, stream), "cuGraphLaunch");
  }

 private:
  CUgraph graph_ = nullptr;
  CUgraphExec executable_ = nullptr;
};

// Every pair of the graph writes a value of its own, so that what an earlier pair left is wrong.
void submit_pairs(AliasLab& lab, Way way, bool is_programmatic) {
  const LaunchPlan plan{lab.stream(), is_programmatic};
  for (unsigned pair = 0; pair < kPairs; ++pair) {
    const std::uint32_t value = 77 + pair * 0x01000193u;
    require(launch_write(way, lab.old_view(pair), value, plan), "write");
    require(launch_read(way, lab.new_view(pair), value, 0, lab.counts(), plan), "read");
  }
}

std::uint64_t run_graph(AliasLab& lab, unsigned rounds, Way way, bool is_programmatic) {
  const Graph graph(lab.stream(), [&] { submit_pairs(lab, way, is_programmatic); });
  const unsigned launches = std::max(1u, rounds / kPairs);
  for (unsigned i = 0; i < launches; ++i)
    graph.launch(lab.stream());
  require(cu().stream_synchronize(lab.stream()), "cuStreamSynchronize");
  return std::uint64_t{launches} * kPairs * lab.words();
}

// One graph writes, another reads.
std::uint64_t run_graph_after_graph(AliasLab& lab, unsigned rounds) {
  const LaunchPlan plan{lab.stream(), false};
  const unsigned launches = std::max(1u, rounds);
  const auto make_value = [](unsigned round) { return 991 + (round % 2) * 0x9e3779b1u; };
  std::unique_ptr<Graph> writers[2];
  std::unique_ptr<Graph> readers[2];
  for (unsigned i = 0; i < 2; ++i) {
    writers[i] = std::make_unique<Graph>(lab.stream(), [&] {
      require(launch_write(Way::kPlain, lab.old_view(i), make_value(i), plan), "write");
    });
    readers[i] = std::make_unique<Graph>(lab.stream(), [&] {
      require(launch_read(Way::kPlain, lab.new_view(i), make_value(i), 0, lab.counts(), plan),
              "read");
    });
  }
  for (unsigned round = 0; round < launches; ++round) {
    writers[round % 2]->launch(lab.stream());
    readers[round % 2]->launch(lab.stream());
  }
  require(cu().stream_synchronize(lab.stream()), "cuStreamSynchronize");
  return std::uint64_t{launches} * lab.words();
}

AliasTrial make_graph_trial(std::string name, std::string what, Way way, bool is_programmatic) {
  return {std::move(name), std::move(what), true,
          [way, is_programmatic](AliasLab& lab, unsigned rounds) {
            return run_graph(lab, rounds, way, is_programmatic);
          }};
}

}  // namespace

std::vector<AliasTrial> make_graph_trials() {
  std::vector<AliasTrial> trials;
  trials.push_back(
      make_graph_trial("Graph", "20 pairs in a captured graph, replayed", Way::kPlain, false));
  trials.push_back(make_graph_trial("GraphWithProgrammaticEdges",
                                    "as before, captured from dependent launches", Way::kPlain,
                                    true));
  trials.push_back(make_graph_trial("GraphWithTensorCopies",
                                    "tensor copies of rank 2 and programmatic edges",
                                    Way::kTensor2d, true));
  trials.push_back(
      {"GraphAfterGraph", "one graph writes, the next one reads", true, run_graph_after_graph});
  return trials;
}

}  // namespace quarry::facts
