// SPDX-License-Identifier: Apache-2.0
// One cell of the capture matrix: a fresh capture, one driver call during it in given
// circumstances, and whether the capture still gives its graph. Knows which calls there are
// (capture_calls.cpp), and nothing of how they are told (capture_facts.cpp).
#pragma once

#include <array>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "bench/driver_facts/device_objects.hpp"

namespace quarry::facts {

// The stream that a call names: none, one of those beside the capture, or the capturing one.
enum class Target { kNone, kOther, kLegacy, kPerThread, kCapturing };
const char* describe(Target target);

struct CaptureCell {
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  bool is_blocking = false;      // the capturing stream
  bool is_other_thread = false;  // the call
  bool is_bracketed = false;     // the calling thread is in relaxed mode around the call
};

// By blocking, thread, bracket, mode, the mode varying fastest.
constexpr std::size_t kCellCount = 24;
std::array<CaptureCell, kCellCount> make_cells();

struct CellResult {
  CUresult code = CUDA_SUCCESS;
  bool has_survived = false;
  bool is_fine() const { return code == CUDA_SUCCESS && has_survived; }
};

// What the call needs, made before the capture begins and removed after its end.
struct CaptureScene {
  explicit CaptureScene(bool is_blocking);
  ~CaptureScene();
  CaptureScene(const CaptureScene&) = delete;
  CaptureScene& operator=(const CaptureScene&) = delete;

  CUcontext context;
  OwnStream capturing;
  OwnStream other;
  OwnEvent fresh_event;
  OwnEvent passed_event;  // recorded outside the capture, and completed
  // Each is 0 unless a call's `prepare` makes it; a call that takes it away sets it to 0.
  CUdeviceptr plain = 0;
  CUdeviceptr ordered = 0;  // of cuMemAllocAsync
  CUmemGenericAllocationHandle extent = 0;
  CUdeviceptr range = 0;
  bool is_mapped = false;
  int file = -1;
  CUevent event = nullptr;
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  CUuserObject object = nullptr;
};

struct CaptureCall {
  std::string name;
  bool takes_stream = false;
  std::function<CUresult(CaptureScene&, CUstream)> make;
  std::function<void(CaptureScene&)> prepare;  // may be empty
  bool only_on_capturing = false;              // makes no sense on another stream
  // Quarry makes it inside a relaxed bracket and counts on it there (driver/driver.hpp).
  bool is_relied_on = false;
};
std::vector<CaptureCall> make_capture_calls();

// Makes the calling thread's first uses (of the context, its per-thread stream, a kernel) before
// any capture can meet them.
void warm_up_thread();

// A thread, in the context, that runs what it is given; the caller waits.
class OtherThread {
 public:
  OtherThread();
  ~OtherThread();
  OtherThread(const OtherThread&) = delete;
  OtherThread& operator=(const OtherThread&) = delete;
  void run(const std::function<void()>& body);

 private:
  void serve();

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  const std::function<void()>* body_ = nullptr;
  bool is_ending_ = false;
  std::thread thread_;
};

CellResult run_capture_cell(const CaptureCall& call, Target target, const CaptureCell& cell,
                            OtherThread& other_thread);

}  // namespace quarry::facts
