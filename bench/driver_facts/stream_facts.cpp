// SPDX-License-Identifier: Apache-2.0
// Sections "machine" and "streams": the machine itself; what calls on streams, events and contexts
// cost, and what events cover.
#include <chrono>
#include <ctime>
#include <fstream>
#include <future>
#include <memory>
#include <thread>

#include "bench/driver_facts/device_objects.hpp"
#include "bench/driver_facts/gpu_work.hpp"
#include "bench/driver_facts/sections.hpp"
#include "bench/driver_facts/timing.hpp"

namespace quarry::facts {
namespace {

std::string get_driver_release() {
  std::string release;
  std::ifstream("/sys/module/nvidia/version") >> release;
  if (!release.empty()) return release;
  std::ifstream text("/proc/driver/nvidia/version");
  for (std::string word; text >> word;) {
    if (word.find_first_not_of("0123456789.") == std::string::npos &&
        word.find('.') != std::string::npos) {
      return word;
    }
  }
  return "unknown";
}

void measure_costs(Recorder& recorder) {
  const OwnStream stream;
  const OwnStream other;
  const OwnEvent event;
  CUevent made = nullptr;
  recorder.start_table("", {"call", "ns"});
  const auto add = [&](const char* name, const std::function<CUresult()>& call) {
    const CUresult code = call();
    if (code != CUDA_SUCCESS && code != CUDA_ERROR_NOT_READY) require(code, name);
    recorder.add_row({name, measure_ns([&] { static_cast<void>(call()); })});
  };
  add("cuEventCreate + cuEventDestroy", [&] {
    static_cast<void>(cu().event_create(&made, CU_EVENT_DISABLE_TIMING));
    return cu().event_destroy(made);
  });
  add("cuEventRecord", [&] { return cu().event_record(event.get(), stream.get()); });
  require(cu().stream_synchronize(stream.get()), "cuStreamSynchronize");
  add("cuEventQuery, completed", [&] { return cu().event_query(event.get()); });
  add("cuStreamWaitEvent", [&] { return cu().stream_wait_event(other.get(), event.get(), 0); });
  add("cuEventRecord + cuStreamWaitEvent", [&] {
    static_cast<void>(cu().event_record(event.get(), stream.get()));
    return cu().stream_wait_event(other.get(), event.get(), 0);
  });
  require(cu().ctx_synchronize(), "cuCtxSynchronize");
  add("cuStreamQuery, idle", [&] { return cu().stream_query(stream.get()); });
  {
    const Signal signal;
    require(signal.hold(stream.get()), "hold");
    require(cu().event_record(event.get(), stream.get()), "cuEventRecord");
    add("cuEventQuery, pending", [&] { return cu().event_query(event.get()); });
    add("cuStreamQuery, busy", [&] { return cu().stream_query(stream.get()); });
  }
  const CUcontext context = enter_context();
  add("cuCtxRecordEvent, idle context",
      [&] { return cu().ctx_record_event(context, event.get()); });
}

void measure_small_costs(Recorder& recorder) {
  const OwnStream stream;
  const PlainMemory memory(512);
  unsigned long long id = 0;
  unsigned type = 0;
  CUdevice device = 0;
  CUcontext current = nullptr;
  CUstreamCaptureStatus status{};
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  const auto add = [&](const char* name, const std::function<CUresult()>& call) {
    require(call(), name);
    recorder.add_row({name, measure_ns([&] { static_cast<void>(call()); })});
  };
  add("cuPointerGetAttribute", [&] {
    return cu().pointer_get_attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory.address());
  });
  add("cuStreamGetId", [&] { return cu().stream_get_id(stream.get(), &id); });
  add("cuStreamIsCapturing", [&] { return cu().stream_is_capturing(stream.get(), &status); });
  cuuint64_t capture = 0;
  add("cuStreamGetCaptureInfo, id only", [&] {
    return cu().stream_get_capture_info(stream.get(), &status, &capture, nullptr, nullptr, nullptr,
                                        nullptr);
  });
  add("cuCtxGetDevice", [&] { return cu().ctx_get_device(&device); });
  add("cuCtxGetCurrent", [&] { return cu().ctx_get_current(&current); });
  add("cuThreadExchangeStreamCaptureMode, there and back", [&] {
    static_cast<void>(cu().exchange_capture_mode(&mode));
    return cu().exchange_capture_mode(&mode);
  });
}

void measure_busy_context_event(Recorder& recorder) {
  constexpr int kStreams = 64;
  const CUcontext context = enter_context();
  const OwnEvent event;
  std::vector<std::unique_ptr<OwnStream>> streams;
  std::vector<double> costs;
  for (int i = 0; i < kStreams; ++i)
    streams.push_back(std::make_unique<OwnStream>());
  for (int round = 0; round < 201; ++round) {
    for (const auto& stream : streams)
      require(submit_spin(stream->get(), 200'000), "spin");
    costs.push_back(measure_once_us(
        [&] { require(cu().ctx_record_event(context, event.get()), "cuCtxRecordEvent"); }));
    require(cu().ctx_synchronize(), "cuCtxSynchronize");
  }
  recorder.add_row(
      {"cuCtxRecordEvent, 64 busy streams (single calls)", calculate_median(costs) * 1000});
}

// Runs on a thread of its own, in the context, so that the per-thread stream is another one.
template <class Function>
void run_elsewhere(Function&& function) {
  std::async(std::launch::async, [&] {
    enter_context();
    function();
  }).get();
}

struct Coverage {
  CUresult before;  // of the query while the work is held
  CUresult after;   // once it has ended
};

std::string describe(const Coverage& coverage) {
  return std::to_string(coverage.before) + ", then " + std::to_string(coverage.after);
}

// Holds one stream by work of another thread, records with `record`, and queries here.
Coverage measure_coverage(CUstream stream, const std::function<void(CUevent)>& record,
                          bool records_elsewhere) {
  Signal signal;
  const OwnEvent event;
  // The other thread lives on until the end: its per-thread stream goes with it.
  std::promise<void> submitted;
  std::promise<void> may_end;
  std::thread worker([&] {
    try {
      enter_context();
      require(signal.hold(stream), "hold");
      if (records_elsewhere) record(event.get());
      submitted.set_value();
    } catch (...) {
      submitted.set_exception(std::current_exception());
    }
    may_end.get_future().wait();
  });
  Coverage coverage{CUDA_ERROR_UNKNOWN, CUDA_ERROR_UNKNOWN};
  std::exception_ptr failure;
  try {
    submitted.get_future().get();
    if (!records_elsewhere) record(event.get());
    coverage.before = cu().event_query(event.get());
    signal.raise();
    require(cu().event_synchronize(event.get()), "cuEventSynchronize");
    coverage.after = cu().event_query(event.get());
  } catch (...) {
    failure = std::current_exception();
  }
  signal.raise();
  may_end.set_value();
  worker.join();
  if (failure) std::rethrow_exception(failure);
  return coverage;
}

bool is_covered(const Coverage& coverage) {
  return coverage.before == CUDA_ERROR_NOT_READY && coverage.after == CUDA_SUCCESS;
}

void measure_context_events(Recorder& recorder) {
  const CUcontext context = enter_context();
  const OwnStream blocking(CU_STREAM_DEFAULT);
  const OwnStream non_blocking(CU_STREAM_NON_BLOCKING);
  recorder.start_table(
      "What cuCtxRecordEvent covers (query while another thread's work is held, "
      "then after its end; 600 is pending)",
      {"held stream", "queries"});
  struct Kind {
    const char* name;
    CUstream stream;
  };
  bool covers_all = true;
  for (const Kind& kind : {Kind{"non-blocking", non_blocking.get()},
                           {"blocking", blocking.get()},
                           {"legacy", CU_STREAM_LEGACY},
                           {"per-thread, of the other thread", CU_STREAM_PER_THREAD}}) {
    const Coverage coverage = measure_coverage(
        kind.stream,
        [&](CUevent event) { require(cu().ctx_record_event(context, event), "cuCtxRecordEvent"); },
        false);
    covers_all &= is_covered(coverage);
    recorder.add_row({kind.name, describe(coverage)});
  }
  recorder.add_rule("cuCtxRecordEvent covers every stream, other threads' per-thread streams too",
                    covers_all);
}

void measure_per_thread_events(Recorder& recorder) {
  recorder.start_table("Per-thread default streams", {"attempt", "result"});
  const auto record = [](CUevent event) {
    require(cu().event_record(event, CU_STREAM_PER_THREAD), "cuEventRecord");
  };
  const Coverage recorded_there = measure_coverage(CU_STREAM_PER_THREAD, record, true);
  recorder.add_row(
      {"one thread records on its own, another queries and waits", describe(recorded_there)});
  const Coverage recorded_here = measure_coverage(CU_STREAM_PER_THREAD, record, false);
  recorder.add_row({"the other thread records on handle 2 and so on a stream of its own",
                    describe(recorded_here)});
  const OwnEvent event;
  run_elsewhere([&] { record(event.get()); });
  recorder.add_row(
      {"query after the recording thread has ended", double(cu().event_query(event.get()))});
  unsigned long long here = 0;
  unsigned long long there = 0;
  require(cu().stream_get_id(CU_STREAM_PER_THREAD, &here), "cuStreamGetId");
  run_elsewhere(
      [&] { require(cu().stream_get_id(CU_STREAM_PER_THREAD, &there), "cuStreamGetId"); });
  recorder.add_row({"cuStreamGetId differs between threads", here != there ? "yes" : "no"});
  recorder.add_rule(
      "an event recorded on a per-thread stream is good on every thread, and the "
      "handle alone does not name the stream",
      is_covered(recorded_there) && !is_covered(recorded_here) && here != there);
}

}  // namespace

void measure_machine(Recorder& recorder, const SectionOptions& options) {
  recorder.step("the machine", [&] {
    char name[128] = {};
    int driver = 0;
    std::size_t bytes = 0;
    char date[32] = {};
    const std::time_t now = std::time(nullptr);
    std::strftime(date, sizeof date, "%Y-%m-%d", std::gmtime(&now));
    require(cu().device_get_name(name, sizeof name, 0), "cuDeviceGetName");
    require(cu().driver_get_version(&driver), "cuDriverGetVersion");
    require(cu().device_total_mem(&bytes, 0), "cuDeviceTotalMem");
    recorder.start_table("", {"what", "value"});
    recorder.add_row({"date", date});
    recorder.add_row({"GPU", name});
    recorder.add_row({"its memory, MiB", double(bytes / kMiB)});
    recorder.add_row({"driver", get_driver_release()});
    recorder.add_row({"CUDA of the driver",
                      std::to_string(driver / 1000) + "." + std::to_string(driver % 1000 / 10)});
    recorder.add_row({"CUDA of the headers", std::to_string(CUDA_VERSION / 1000) + "." +
                                                 std::to_string(CUDA_VERSION % 1000 / 10)});
    recorder.add_row({"processors", double(std::thread::hardware_concurrency())});
    recorder.add_row({"rounds of each alias trial", double(options.alias_rounds)});
  });
}

void measure_streams(Recorder& recorder, const SectionOptions&) {
  recorder.step("costs of streams and events", [&] { measure_costs(recorder); });
  recorder.step("costs of small calls", [&] { measure_small_costs(recorder); });
  recorder.step("context events, busy", [&] { measure_busy_context_event(recorder); });
  recorder.step("what context events cover", [&] { measure_context_events(recorder); });
  recorder.step("per-thread streams", [&] { measure_per_thread_events(recorder); });
}

}  // namespace quarry::facts
