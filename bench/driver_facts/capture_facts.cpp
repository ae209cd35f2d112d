// SPDX-License-Identifier: Apache-2.0
// Section "captures": runs every cell of the capture matrix and tells it, calls that behave alike
// in one row; and what happens to calls on a destroyed stream. The races are those of
// capture_race_facts.cpp.
#include <map>

#include "bench/driver_facts/capture_scene.hpp"
#include "bench/driver_facts/child_process.hpp"
#include "bench/driver_facts/sections.hpp"

namespace quarry::facts {
namespace {

struct CallResults {
  std::string name;
  Target target = Target::kNone;
  bool is_relied_on = false;
  std::array<CellResult, kCellCount> cells;
};

std::string format_cell(const CellResult& result) {
  if (result.is_fine()) return "R";
  const std::string code = std::to_string(result.code);
  return result.has_survived ? code : "**X** " + code;
}

// The three modes of one circumstance; once where they agree.
std::string format_modes(const CallResults& results, std::size_t first) {
  const std::string global = format_cell(results.cells[first]);
  const std::string local = format_cell(results.cells[first + 1]);
  const std::string relaxed = format_cell(results.cells[first + 2]);
  if (global == local && local == relaxed) return global;
  return global + " / " + local + " / " + relaxed;
}

std::vector<Target> get_targets(const CaptureCall& call) {
  if (!call.takes_stream) return {Target::kNone};
  if (call.only_on_capturing) return {Target::kCapturing};
  return {Target::kOther, Target::kLegacy, Target::kPerThread, Target::kCapturing};
}

CallResults measure_call(const CaptureCall& call, Target target, OtherThread& other_thread) {
  CallResults results{call.name, target, call.is_relied_on, {}};
  const auto cells = make_cells();
  for (std::size_t i = 0; i < kCellCount; ++i)
    results.cells[i] = run_capture_cell(call, target, cells[i], other_thread);
  return results;
}

// Rows of equal results become one, in the order of the first of them.
void tell_matrix(Recorder& recorder, const std::vector<CallResults>& all, bool is_blocking) {
  recorder.start_table(
      is_blocking ? "A blocking stream captures" : "A non-blocking stream captures",
      {"call", "on", "same thread", "same thread, bracket", "other thread",
       "other thread, bracket"});
  std::vector<std::vector<Cell>> rows;
  std::map<std::string, std::size_t> places;
  for (const CallResults& results : all) {
    std::vector<Cell> row = {results.name, describe(results.target)};
    std::string key = row[1].text;
    for (std::size_t circumstance = 0; circumstance < 4; ++circumstance) {
      row.push_back(format_modes(results, (is_blocking ? 12 : 0) + circumstance * 3));
      key += "|" + row.back().text;
    }
    const auto [place, is_new] = places.try_emplace(key, rows.size());
    if (is_new) {
      rows.push_back(std::move(row));
    } else {
      rows[place->second][0].text += ", " + results.name;
    }
  }
  for (auto& row : rows)
    recorder.add_row(std::move(row));
}

bool holds_for_all(const std::vector<CallResults>& all,
                   const std::function<bool(const CallResults&)>& concerns,
                   const std::function<bool(const CaptureCell&, const CellResult&)>& holds) {
  const auto cells = make_cells();
  bool is_met = false;
  for (const CallResults& results : all) {
    if (!concerns(results)) continue;
    for (std::size_t i = 0; i < kCellCount; ++i) {
      if (!holds(cells[i], results.cells[i])) return false;
      is_met = true;
    }
  }
  return is_met;
}

void tell_rules(Recorder& recorder, const std::vector<CallResults>& all) {
  recorder.add_rule(
      "in a relaxed bracket, what Quarry calls during a capture succeeds and leaves it whole "
      "(events only on streams that do not capture)",
      holds_for_all(
          all,
          [](const CallResults& results) {
            return results.is_relied_on &&
                   (results.target == Target::kNone || results.target == Target::kOther);
          },
          [](const CaptureCell& cell, const CellResult& result) {
            return !cell.is_bracketed || result.is_fine();
          }));
  const auto is_extent_call = [](const CallResults& results) {
    for (const char* name : {"cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap",
                             "cuMemRelease", "cuMemAddressReserve", "cuMemAddressFree"}) {
      if (results.name == name) return true;
    }
    return false;
  };
  recorder.add_rule(
      "expandable segments grow and shrink in every capture mode, without a bracket",
      holds_for_all(all, is_extent_call, [](const CaptureCell&, const CellResult& result) {
        return result.is_fine();
      }));
  const auto concerns_graph = [](const CallResults& results) {
    return results.name == "cuUserObjectCreate" ||
           (results.target == Target::kCapturing &&
            (results.name.find("cuGraph") == 0 || results.name == "cuStreamGetCaptureInfo"));
  };
  recorder.add_rule(
      "the graph that is being captured takes user objects and tells its nodes in every mode, "
      "without a bracket",
      holds_for_all(all, concerns_graph, [](const CaptureCell&, const CellResult& result) {
        return result.is_fine();
      }));
  const auto asks_status = [](const CallResults& results) {
    return results.name == "cuStreamIsCapturing" || results.name == "cuStreamGetCaptureInfo";
  };
  recorder.add_rule(
      "cuStreamIsCapturing and cuStreamGetCaptureInfo harm no capture, whatever the stream",
      holds_for_all(all, asks_status, [](const CaptureCell&, const CellResult& result) {
        return result.has_survived;
      }));
  recorder.add_rule(
      "they answer 906 for the legacy stream while a blocking stream captures, and else succeed",
      holds_for_all(all, asks_status, [&](const CaptureCell& cell, const CellResult& result) {
        return result.code == CUDA_SUCCESS ||
               (cell.is_blocking && result.code == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
      }));
}

void measure_matrix(Recorder& recorder) {
  warm_up_thread();
  OtherThread other_thread;
  std::vector<CallResults> all;
  for (const CaptureCall& call : make_capture_calls()) {
    for (Target target : get_targets(call)) {
      const std::string step = call.name + " " + describe(target);
      recorder.step(step, [&] { all.push_back(measure_call(call, target, other_thread)); });
    }
  }
  recorder.step("telling the matrix", [&] {
    tell_matrix(recorder, all, false);
    tell_matrix(recorder, all, true);
    tell_rules(recorder, all);
  });
}

// Each in a process of its own, which may not live to tell.
void measure_destroyed_streams(Recorder& recorder) {
  recorder.start_table("On a stream that was destroyed", {"call", "result"});
  for (const std::string& name : get_destroyed_stream_cells()) {
    recorder.step(name + " on a destroyed stream", [&] {
      const AnswerFile answer;
      const ChildResult child = run_child({"--cell", name, "--json", answer.path()}, 50);
      recorder.add_row({name, child.is_ok() ? answer.read() : child.describe()});
    });
  }
}

using StreamCall = CUresult (*)(CUstream, CUevent);

const std::map<std::string, StreamCall>& get_stream_calls() {
  static const std::map<std::string, StreamCall> calls = {
      {"cuStreamIsCapturing",
       [](CUstream stream, CUevent) {
         CUstreamCaptureStatus status{};
         return cu().stream_is_capturing(stream, &status);
       }},
      {"cuStreamQuery", [](CUstream stream, CUevent) { return cu().stream_query(stream); }},
      {"cuStreamGetId",
       [](CUstream stream, CUevent) {
         unsigned long long id = 0;
         return cu().stream_get_id(stream, &id);
       }},
      {"cuEventRecord",
       [](CUstream stream, CUevent event) { return cu().event_record(event, stream); }},
      {"cuStreamWaitEvent",
       [](CUstream stream, CUevent event) { return cu().stream_wait_event(stream, event, 0); }},
  };
  return calls;
}

}  // namespace

const std::vector<std::string>& get_destroyed_stream_cells() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const auto& [name, call] : get_stream_calls())
      all.push_back(name);
    return all;
  }();
  return names;
}

int run_destroyed_stream_cell(const std::string& name) {
  enter_context();
  const StreamCall call = get_stream_calls().at(name);
  const OwnEvent event;
  CUstream stream = nullptr;
  require(cu().stream_create(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  require(call(stream, event.get()), "the call while the stream lives");
  require(cu().stream_synchronize(stream), "cuStreamSynchronize");
  require(cu().stream_destroy(stream), "cuStreamDestroy");
  return call(stream, event.get());
}

void measure_captures(Recorder& recorder, const SectionOptions& options) {
  if (!options.only_capture_races) {
    measure_matrix(recorder);
    measure_destroyed_streams(recorder);
  }
  measure_capture_races(recorder);
}

}  // namespace quarry::facts
