// SPDX-License-Identifier: Apache-2.0
// BlockToucher on the real driver. The entries that it needs beside the allocator's own are looked
// up here, so that the library never depends on them.
#include "block_toucher.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "context_scope.hpp"
#include "cuda_driver_class.hpp"
#include "driver_entries.hpp"
#include "touch_kernels.hpp"

namespace quarry::cuda {
namespace {

#define QUARRY_TOUCH_ENTRIES(X)                                            \
  X(module_load_data, cuModuleLoadData, 2000, "cuModuleLoadData")          \
  X(module_unload, cuModuleUnload, 2000, "cuModuleUnload")                 \
  X(module_get_function, cuModuleGetFunction, 2000, "cuModuleGetFunction") \
  X(module_get_global, cuModuleGetGlobal, 3020, "cuModuleGetGlobal_v2")    \
  X(launch_kernel, cuLaunchKernel, 4000, "cuLaunchKernel")                 \
  X(stream_create, cuStreamCreate, 2000, "cuStreamCreate")                 \
  X(stream_destroy, cuStreamDestroy, 4000, "cuStreamDestroy_v2")           \
  X(stream_synchronize, cuStreamSynchronize, 2000, "cuStreamSynchronize")  \
  X(ctx_synchronize, cuCtxSynchronize, 2000, "cuCtxSynchronize")           \
  X(memcpy_to_host, cuMemcpyDtoH, 3020, "cuMemcpyDtoH_v2")

struct TouchEntries {
#define QUARRY_DECLARE(member, name, version, symbol) PFN_##name##_v##version member = nullptr;
  QUARRY_TOUCH_ENTRIES(QUARRY_DECLARE)
#undef QUARRY_DECLARE
};

Status find_touch_entries(const DriverLibrary& library, TouchEntries& entries) {
#define QUARRY_RESOLVE(member, name, version, symbol)                                  \
  entries.member =                                                                     \
      reinterpret_cast<PFN_##name##_v##version>(library.find(#name, version, symbol)); \
  if (entries.member == nullptr) {                                                     \
    return Status(StatusCode::kNotSupported, "the CUDA driver has no " #name);         \
  }
  QUARRY_TOUCH_ENTRIES(QUARRY_RESOLVE)
#undef QUARRY_RESOLVE
  return Status::ok();
}

constexpr unsigned kThreads = 256;
constexpr Bytes kWordBytes = 4;
constexpr Bytes kWordsPerThread = 8;
// Enough to fill every device of today a few times over.
constexpr Bytes kMaxThreadBlocks = 1056;

class CudaBlockToucher final : public BlockToucher {
 public:
  CudaBlockToucher(const DriverEntries& driver, const TouchEntries& touch, DeviceId device)
      : driver_(driver), touch_(touch), device_(device) {}

  ~CudaBlockToucher() override {
    if (context_ == nullptr) return;
    const ContextScope scope(driver_, context_);
    if (event_ != nullptr) static_cast<void>(driver_.event_destroy(event_));
    for (const CUstream stream : streams_)
      static_cast<void>(touch_.stream_destroy(stream));
    if (module_ != nullptr) static_cast<void>(touch_.module_unload(module_));
  }

  // The primary context is retained for good, as by CudaDriver.
  CUresult open() {
    CUdevice device = 0;
    if (CUresult code = driver_.device_get(&device, device_); code != CUDA_SUCCESS) return code;
    CUresult code = driver_.primary_ctx_retain(&context_, device);
    if (code != CUDA_SUCCESS) return code;
    const ContextScope scope(driver_, context_);
    code = scope.code();
    if (code == CUDA_SUCCESS) code = touch_.module_load_data(&module_, kTouchKernels);
    if (code == CUDA_SUCCESS) code = touch_.module_get_function(&fill_, module_, "fill_words");
    if (code == CUDA_SUCCESS) code = touch_.module_get_function(&check_, module_, "check_words");
    std::size_t bytes = 0;
    if (code == CUDA_SUCCESS) {
      code = touch_.module_get_global(&wrong_words_, &bytes, module_, "wrong_words");
    }
    if (code == CUDA_SUCCESS) code = driver_.event_create(&event_, CU_EVENT_DISABLE_TIMING);
    return code;
  }

  DriverResult<StreamRef> create_stream() noexcept override {
    const ContextScope scope(driver_, context_);
    CUstream stream = nullptr;
    CUresult code = scope.code();
    if (code == CUDA_SUCCESS) code = touch_.stream_create(&stream, CU_STREAM_NON_BLOCKING);
    if (code != CUDA_SUCCESS) return to_code(code);
    streams_.push_back(stream);
    return StreamRef{device_, StreamHandle{reinterpret_cast<std::uintptr_t>(stream)}};
  }

  DriverCode fill(const TouchedBlock& block, StreamRef stream) noexcept override {
    return launch(fill_, block, stream);
  }
  DriverCode check(const TouchedBlock& block, StreamRef stream) noexcept override {
    return launch(check_, block, stream);
  }

  // One event serves all: a wait keeps to the record that came before it.
  DriverCode order(StreamRef before, StreamRef after) noexcept override {
    const ContextScope scope(driver_, context_);
    CUresult code = scope.code();
    if (code == CUDA_SUCCESS) code = driver_.event_record(event_, to_stream(before.handle));
    if (code == CUDA_SUCCESS) {
      code = driver_.stream_wait_event(to_stream(after.handle), event_, 0);
    }
    return to_code(code);
  }

  DriverCode synchronize(StreamRef stream) noexcept override {
    const ContextScope scope(driver_, context_);
    if (scope.code() != CUDA_SUCCESS) return to_code(scope.code());
    return to_code(touch_.stream_synchronize(to_stream(stream.handle)));
  }

  DriverResult<WrongWords> count_wrong_words() noexcept override {
    const ContextScope scope(driver_, context_);
    std::array<std::uint64_t, 2> found{};
    CUresult code = scope.code();
    if (code == CUDA_SUCCESS) code = touch_.ctx_synchronize();
    if (code == CUDA_SUCCESS) {
      code = touch_.memcpy_to_host(found.data(), wrong_words_, sizeof found);
    }
    if (code != CUDA_SUCCESS) return to_code(code);
    return WrongWords{found[0], found[0] != 0 ? found[1] - 1 : 0};
  }

 private:
  DriverCode launch(CUfunction kernel, TouchedBlock block, StreamRef stream) noexcept {
    const ContextScope scope(driver_, context_);
    if (scope.code() != CUDA_SUCCESS) return to_code(scope.code());
    Bytes words = (block.bytes + kWordBytes - 1) / kWordBytes;
    void* parameters[] = {&block.address, &words, &block.number};
    constexpr Bytes kWordsPerBlock = kThreads * kWordsPerThread;
    const Bytes blocks =
        std::clamp<Bytes>((words + kWordsPerBlock - 1) / kWordsPerBlock, 1, kMaxThreadBlocks);
    return to_code(touch_.launch_kernel(kernel, static_cast<unsigned>(blocks), 1, 1, kThreads, 1,
                                        1, 0, to_stream(stream.handle), parameters, nullptr));
  }

  const DriverEntries driver_;
  const TouchEntries touch_;
  const DeviceId device_;
  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;
  CUfunction fill_ = nullptr;
  CUfunction check_ = nullptr;
  CUdeviceptr wrong_words_ = 0;
  CUevent event_ = nullptr;
  std::vector<CUstream> streams_;
};

}  // namespace

Result<std::unique_ptr<BlockToucher>> make_block_toucher(DeviceId device) {
  const Result<DriverLibrary> library = DriverLibrary::open();
  if (!library.is_ok()) return Status(library.code(), std::string(library.status().message()));
  const DriverEntries driver = find_driver_entries(library.value());
  if (Status status = check_entries(driver); !status.is_ok()) return status;
  TouchEntries touch;
  if (Status status = find_touch_entries(library.value(), touch); !status.is_ok()) return status;
  CUresult code = driver.init(0);
  auto toucher = std::make_unique<CudaBlockToucher>(driver, touch, device);
  if (code == CUDA_SUCCESS) code = toucher->open();
  if (code == CUDA_SUCCESS) return std::unique_ptr<BlockToucher>(std::move(toucher));
  return Status(StatusCode::kNotSupported,
                "device " + std::to_string(device) +
                    " cannot run the kernels that touch blocks: " + describe(to_code(code)));
}

}  // namespace quarry::cuda
