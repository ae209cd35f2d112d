// SPDX-License-Identifier: Apache-2.0
// Of the section "captures": what may be asked about a stream while another thread begins and ends
// its captures. Each call in a process of its own, which may crash.
#include <dlfcn.h>

#include <array>
#include <chrono>
#include <functional>
#include <latch>
#include <map>
#include <thread>

#include "bench/driver_facts/capture_scene.hpp"
#include "bench/driver_facts/child_process.hpp"
#include "bench/driver_facts/gpu_work.hpp"
#include "bench/driver_facts/race_counts.hpp"
#include "bench/driver_facts/sections.hpp"

namespace quarry::facts {
namespace {

constexpr int kCaptures = 20000;
constexpr std::chrono::seconds kDuration{3};
constexpr std::size_t kAskers = 2;
// Of the process: the captures, and the start of a context before them.
constexpr int kLimitS = 30;

// Any thread.
using Ask = std::function<CUresult(CUstream, CUstreamCaptureStatus&)>;

// The entry that Quarry itself calls (cuda/driver_entries.hpp); newer headers do not declare it.
using InfoEntry = CUresult(CUDAAPI*)(CUstream, CUstreamCaptureStatus*, cuuint64_t*, CUgraph*,
                                     const CUgraphNode**, std::size_t*);

InfoEntry find_second_info_entry() {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  void* const entry = library == nullptr ? nullptr : dlsym(library, "cuStreamGetCaptureInfo_v2");
  if (entry == nullptr) throw DriverError("no cuStreamGetCaptureInfo_v2");
  return reinterpret_cast<InfoEntry>(entry);
}

CUresult ask_whether(CUstream stream, CUstreamCaptureStatus& status) {
  return cu().stream_is_capturing(stream, &status);
}

CUresult ask_which(CUstream stream, CUstreamCaptureStatus& status) {
  cuuint64_t id = 0;
  return cu().stream_get_capture_info(stream, &status, &id, nullptr, nullptr, nullptr, nullptr);
}

Ask make_ask_by_second_entry() {
  return [entry = find_second_info_entry()](CUstream stream, CUstreamCaptureStatus& status) {
    cuuint64_t id = 0;
    return entry(stream, &status, &id, nullptr, nullptr, nullptr);
  };
}

constexpr const char* kIsCapturing = "cuStreamIsCapturing";

const std::map<std::string, Ask (*)()>& get_asks() {
  static const std::map<std::string, Ask (*)()> asks = {
      {kIsCapturing, [] { return Ask(ask_whether); }},
      {"cuStreamGetCaptureInfo", [] { return Ask(ask_which); }},
      {"cuStreamGetCaptureInfo_v2", make_ask_by_second_entry},
  };
  return asks;
}

void keep_asking(const Ask& ask, CUstream stream, const std::atomic<bool>& is_over,
                 SharedRaceCounts::Counters& counts) {
  while (!is_over) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    const CUresult code = ask(stream, status);
    ++counts.answers;
    if (code != CUDA_SUCCESS) {
      counts.last_error = code;
      ++counts.errors;
    } else if (status == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
      ++counts.in_capture;
    }
  }
}

// One kernel; true if the capture gave its graph.
bool capture_once(CUstream stream, CUstreamCaptureMode mode) {
  if (cu().stream_begin_capture(stream, mode) != CUDA_SUCCESS) return false;
  const int launched = submit_nothing(stream);
  CUgraph graph = nullptr;
  const CUresult ended = cu().stream_end_capture(stream, &graph);
  if (graph != nullptr) static_cast<void>(cu().graph_destroy(graph));
  return launched == 0 && ended == CUDA_SUCCESS && graph != nullptr;
}

// The modes take turns.
void keep_capturing(CUstream stream, SharedRaceCounts::Counters& counts) {
  const auto end = std::chrono::steady_clock::now() + kDuration;
  for (int i = 0; i < kCaptures && std::chrono::steady_clock::now() < end; ++i) {
    if (!capture_once(stream, static_cast<CUstreamCaptureMode>(i % 3))) ++counts.lost;
    ++counts.captures;
  }
}

struct RaceResult {
  ChildResult child;
  RaceCounts counts;
};

RaceResult run_race_in_child(const std::string& name) {
  const AnswerFile answer;
  const ChildResult child = run_child({"--race", name, "--json", answer.path()}, kLimitS);
  return {child, parse_race_counts(answer.read())};
}

}  // namespace

const std::vector<std::string>& get_capture_races() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const auto& [name, ask] : get_asks())
      all.push_back(name);
    return all;
  }();
  return names;
}

void run_capture_race(const std::string& name, const std::string& counts_path) {
  warm_up_thread();
  const Ask ask = get_asks().at(name)();
  const SharedRaceCounts counts(counts_path);
  const OwnStream stream;
  require(submit_nothing(stream.get()), "kernel on the stream");
  require(cu().stream_synchronize(stream.get()), "cuStreamSynchronize");
  std::atomic<bool> is_over{false};
  std::latch ready(kAskers + 1);
  std::array<std::thread, kAskers> askers;
  for (std::thread& asker : askers) {
    asker = std::thread([&] {
      enter_context();
      ready.arrive_and_wait();
      keep_asking(ask, stream.get(), is_over, counts.get());
    });
  }
  ready.arrive_and_wait();
  keep_capturing(stream.get(), counts.get());
  is_over = true;
  for (std::thread& asker : askers)
    asker.join();
}

void measure_capture_races(Recorder& recorder) {
  recorder.start_table("Asked by two other threads while captures of the stream begin and end, " +
                           std::to_string(kCaptures) + " captures or " +
                           std::to_string(kDuration.count()) + " s",
                       {"call", "captures ended", "answers", "of these, in a capture", "result"});
  for (const std::string& name : get_capture_races()) {
    recorder.step(name + " while captures begin and end", [&] {
      const auto [child, counts] = run_race_in_child(name);
      recorder.add_row({name, static_cast<double>(counts.captures),
                        static_cast<double>(counts.answers),
                        static_cast<double>(counts.in_capture), describe_race(child, counts)});
      if (name != kIsCapturing) return;
      recorder.add_rule(
          "cuStreamIsCapturing may be asked of a stream whose captures another thread begins and "
          "ends",
          is_harmless(child, counts));
    });
  }
}

}  // namespace quarry::facts
