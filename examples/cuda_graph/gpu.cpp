// SPDX-License-Identifier: Apache-2.0
#include "gpu.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <stdexcept>
#include <string>

namespace {

constexpr char kStepKernel[] = R"ptx(
.version 7.0
.target sm_70
.address_size 64

.visible .entry step(.param .u64 step_output, .param .u64 step_input, .param .u64 step_count)
{
    .reg .pred %done;
    .reg .b32 %word, %ctas, %threads, %cta, %thread;
    .reg .b64 %output, %input, %count, %i, %stride, %from, %to, %place;

    ld.param.u64 %output, [step_output];
    ld.param.u64 %input, [step_input];
    ld.param.u64 %count, [step_count];
    cvta.to.global.u64 %output, %output;
    cvta.to.global.u64 %input, %input;
    mov.u32 %cta, %ctaid.x;
    mov.u32 %ctas, %nctaid.x;
    mov.u32 %threads, %ntid.x;
    mov.u32 %thread, %tid.x;
    mul.wide.u32 %i, %cta, %threads;
    cvt.u64.u32 %stride, %thread;
    add.u64 %i, %i, %stride;
    mul.wide.u32 %stride, %ctas, %threads;
next:
    setp.ge.u64 %done, %i, %count;
    @%done bra end;
    shl.b64 %place, %i, 2;
    add.u64 %from, %input, %place;
    add.u64 %to, %output, %place;
    ld.global.u32 %word, [%from];
    mad.lo.u32 %word, %word, 3, 1;
    st.global.u32 [%to], %word;
    add.u64 %i, %i, %stride;
    bra next;
end:
    ret;
}
)ptx";

constexpr unsigned kThreads = 256;
constexpr std::size_t kMostThreadBlocks = 1056;

void check(CUresult code, const char* call) {
  if (code == CUDA_SUCCESS) return;
  throw std::runtime_error(std::string(call) + " failed with CUDA error " +
                           std::to_string(static_cast<int>(code)));
}

}  // namespace

// The member's name, and the symbol of the version that its type is of.
#define GPU_ENTRIES(X)                                                                      \
  X(Init, cuInit)                                                                           \
  X(DeviceGet, cuDeviceGet)                                                                 \
  X(Retain, cuDevicePrimaryCtxRetain) X(Release, cuDevicePrimaryCtxRelease)                 \
      X(SetCurrent, cuCtxSetCurrent) X(LoadModule, cuModuleLoadData)                        \
          X(GetFunction, cuModuleGetFunction) X(CreateStream, cuStreamCreate)               \
              X(DestroyStream, cuStreamDestroy) X(Synchronize, cuStreamSynchronize)         \
                  X(Launch, cuLaunchKernel) X(BeginCapture, cuStreamBeginCapture)           \
                      X(EndCapture, cuStreamEndCapture)                                     \
                          X(Instantiate, cuGraphInstantiateWithFlags)                       \
                              X(LaunchGraph, cuGraphLaunch) X(DestroyGraph, cuGraphDestroy) \
                                  X(DestroyExec, cuGraphExecDestroy)                        \
                                      X(ToDevice, cuMemcpyHtoDAsync) X(ToHost, cuMemcpyDtoH)

struct Gpu::Entries {
#define GPU_DECLARE(member, name) decltype(&name) member = nullptr;
  GPU_ENTRIES(GPU_DECLARE)
#undef GPU_DECLARE
};

// cuda.h names the newest version of a function by a macro; what it stands for is the symbol.
#define GPU_TEXT(name) #name
#define GPU_SYMBOL(name) GPU_TEXT(name)

std::unique_ptr<Gpu> Gpu::open() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);  // stays open
  if (library == nullptr) return nullptr;
  auto entries = std::make_unique<Entries>();
#define GPU_RESOLVE(member, name)                                                        \
  entries->member = reinterpret_cast<decltype(&name)>(dlsym(library, GPU_SYMBOL(name))); \
  if (entries->member == nullptr) throw std::runtime_error("the driver has no " GPU_SYMBOL(name));
  GPU_ENTRIES(GPU_RESOLVE)
#undef GPU_RESOLVE
  if (entries->Init(0) != CUDA_SUCCESS) return nullptr;
  std::unique_ptr<Gpu> gpu(new Gpu(std::move(entries)));
  gpu->start();
  return gpu;
}

Gpu::Gpu(std::unique_ptr<Entries> entries) : cuda_(std::move(entries)) {}

// The primary context of device 0, in which Quarry's memory is too.
void Gpu::start() {
  check(cuda_->DeviceGet(&device_, 0), "cuDeviceGet");
  check(cuda_->Retain(&context_, device_), "cuDevicePrimaryCtxRetain");
  check(cuda_->SetCurrent(context_), "cuCtxSetCurrent");
  check(cuda_->LoadModule(&module_, kStepKernel), "cuModuleLoadData");
  check(cuda_->GetFunction(&step_, module_, "step"), "cuModuleGetFunction");
  check(cuda_->CreateStream(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
}

Gpu::~Gpu() {
  if (stream_ != nullptr) static_cast<void>(cuda_->DestroyStream(stream_));
  if (context_ != nullptr) static_cast<void>(cuda_->Release(device_));
}

void Gpu::launch_step(void* output, const void* input, std::size_t count) {
  std::uint64_t words = count;
  void* parameters[] = {&output, &input, &words};
  const std::size_t blocks = std::min((count + kThreads - 1) / kThreads, kMostThreadBlocks);
  check(cuda_->Launch(step_, static_cast<unsigned>(blocks), 1, 1, kThreads, 1, 1, 0, stream_,
                      parameters, nullptr),
        "cuLaunchKernel");
}

void Gpu::begin_capture() {
  check(cuda_->BeginCapture(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL), "cuStreamBeginCapture");
}

CUgraphExec Gpu::end_capture() {
  CUgraph graph = nullptr;
  check(cuda_->EndCapture(stream_, &graph), "cuStreamEndCapture");
  CUgraphExec made = nullptr;
  const CUresult code = cuda_->Instantiate(&made, graph, 0);
  static_cast<void>(cuda_->DestroyGraph(graph));
  check(code, "cuGraphInstantiateWithFlags");
  return made;
}

void Gpu::launch(CUgraphExec graph) {
  check(cuda_->LaunchGraph(graph, stream_), "cuGraphLaunch");
}

void Gpu::destroy(CUgraphExec graph) noexcept {
  static_cast<void>(cuda_->DestroyExec(graph));
}

void Gpu::synchronize() {
  check(cuda_->Synchronize(stream_), "cuStreamSynchronize");
}

void Gpu::copy_to_device(void* to, const std::vector<std::uint32_t>& words) {
  // On the stream: cuMemcpyHtoD may return before the memory is written, and a non-blocking stream
  // does not wait for it.
  check(
      cuda_->ToDevice(reinterpret_cast<CUdeviceptr>(to), words.data(), 4 * words.size(), stream_),
      "cuMemcpyHtoDAsync");
  synchronize();  // until when `words` must stay
}

std::vector<std::uint32_t> Gpu::copy_to_host(const void* from, std::size_t count) {
  synchronize();
  std::vector<std::uint32_t> words(count);
  check(cuda_->ToHost(words.data(), reinterpret_cast<CUdeviceptr>(from), 4 * count),
        "cuMemcpyDtoH");
  return words;
}
