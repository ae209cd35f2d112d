// SPDX-License-Identifier: Apache-2.0
#include "bench/driver_facts/capture_scene.hpp"

#include <unistd.h>

#include "bench/driver_facts/gpu_work.hpp"

namespace quarry::facts {
namespace {

constexpr std::uint64_t kBytes = 2 * kMiB;

CUstream get_stream(const CaptureScene& scene, Target target) {
  switch (target) {
    case Target::kLegacy:
      return CU_STREAM_LEGACY;
    case Target::kPerThread:
      return CU_STREAM_PER_THREAD;
    case Target::kCapturing:
      return scene.capturing.get();
    default:
      return scene.other.get();
  }
}

}  // namespace

const char* describe(Target target) {
  switch (target) {
    case Target::kOther:
      return "another stream";
    case Target::kLegacy:
      return "legacy stream";
    case Target::kPerThread:
      return "per-thread stream";
    case Target::kCapturing:
      return "the capturing stream";
    default:
      return "";
  }
}

std::array<CaptureCell, kCellCount> make_cells() {
  std::array<CaptureCell, kCellCount> cells;
  for (std::size_t i = 0; i < kCellCount; ++i) {
    cells[i] = {static_cast<CUstreamCaptureMode>(i % 3), i / 12 % 2 == 1, i / 6 % 2 == 1,
                i / 3 % 2 == 1};
  }
  return cells;
}

CaptureScene::CaptureScene(bool is_blocking)
    : context(enter_context()),
      capturing(is_blocking ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING),
      other(CU_STREAM_NON_BLOCKING) {
  require(cu().event_record(passed_event.get(), other.get()), "cuEventRecord");
  require(cu().event_synchronize(passed_event.get()), "cuEventSynchronize");
}

CaptureScene::~CaptureScene() {
  static_cast<void>(cu().ctx_synchronize());
  if (object != nullptr) static_cast<void>(cu().user_object_release(object, 1));
  if (graph != nullptr) static_cast<void>(cu().graph_destroy(graph));
  if (event != nullptr) static_cast<void>(cu().event_destroy(event));
  if (stream != nullptr) static_cast<void>(cu().stream_destroy(stream));
  if (plain != 0) static_cast<void>(cu().mem_free(plain));
  if (ordered != 0) static_cast<void>(cu().mem_free(ordered));
  if (is_mapped) static_cast<void>(cu().mem_unmap(range, kBytes));
  if (extent != 0) static_cast<void>(cu().mem_release(extent));
  if (range != 0) static_cast<void>(cu().mem_address_free(range, kBytes));
  if (file >= 0) close(file);
}

void warm_up_thread() {
  enter_context();
  require(submit_nothing(CU_STREAM_PER_THREAD), "kernel on the per-thread stream");
  require(submit_nothing(CU_STREAM_LEGACY), "kernel on the legacy stream");
  require(cu().ctx_synchronize(), "cuCtxSynchronize");
}

OtherThread::OtherThread() : thread_([this] { serve(); }) {}

OtherThread::~OtherThread() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void OtherThread::run(const std::function<void()>& body) {
  std::unique_lock lock(mutex_);
  body_ = &body;
  changed_.notify_all();
  changed_.wait(lock, [&] { return body_ == nullptr; });
}

void OtherThread::serve() {
  warm_up_thread();
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return is_ending_ || body_ != nullptr; });
    if (is_ending_) return;
    (*body_)();
    body_ = nullptr;
    changed_.notify_all();
  }
}

CellResult run_capture_cell(const CaptureCall& call, Target target, const CaptureCell& cell,
                            OtherThread& other_thread) {
  CaptureScene scene(cell.is_blocking);
  if (call.prepare) call.prepare(scene);
  require(cu().ctx_synchronize(), "cuCtxSynchronize");
  CellResult result;
  const CUstream stream = get_stream(scene, target);
  const std::function<void()> make = [&] {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    if (cell.is_bracketed) static_cast<void>(cu().exchange_capture_mode(&mode));
    result.code = call.make(scene, stream);
    if (cell.is_bracketed) static_cast<void>(cu().exchange_capture_mode(&mode));
  };
  require(cu().stream_begin_capture(scene.capturing.get(), cell.mode), "cuStreamBeginCapture");
  // A failure from here on is a result: the capture must be ended in any case.
  const int launched = submit_nothing(scene.capturing.get());
  if (cell.is_other_thread) {
    other_thread.run(make);
  } else {
    make();
  }
  CUgraph graph = nullptr;
  const CUresult ended = cu().stream_end_capture(scene.capturing.get(), &graph);
  result.has_survived = ended == CUDA_SUCCESS && graph != nullptr;
  if (graph != nullptr) static_cast<void>(cu().graph_destroy(graph));
  require(launched, "kernel in the capture");
  return result;
}

}  // namespace quarry::facts
