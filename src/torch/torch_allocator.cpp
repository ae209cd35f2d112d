// SPDX-License-Identifier: Apache-2.0
// libquarry_torch.so: PyTorch's plug-in class with what it refuses by itself. torch.cuda.MemPool
// cannot be made with CUDAPluggableAllocator, which has no createOrIncrefPool; all else that a
// graph or a pool needs are hooks. Built against the installed PyTorch, since a class of its own
// cannot but follow that one's layout.
#include <torch/csrc/cuda/CUDAPluggableAllocator.h>

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "quarry/quarry_torch.h"

namespace {

using c10::DeviceIndex;
using c10::cuda::MempoolId_t;
using c10::cuda::CUDACachingAllocator::CUDAAllocator;
using torch::cuda::CUDAPluggableAllocator::CUDAPluggableAllocator;
using CustomAllocator = std::shared_ptr<CUDAAllocator>;
using Filter = std::function<bool(cudaStream_t)>;

quarry_torch_pool_id to_c(MempoolId_t id) {
  return {id.first, id.second};
}

// torch.cuda.MemPool(allocator): the pool's segments are that allocator's, as under PyTorch's own.
quarry_pool_options make_options(CustomAllocator* allocator) {
  quarry_pool_options options = {};
  options.struct_size = sizeof(options);
  options.user = allocator;
  options.allocate = [](size_t bytes, int, quarry_stream, void* user) {
    return (*static_cast<CustomAllocator*>(user))->raw_alloc(bytes);
  };
  options.free = [](void* ptr, size_t, int, quarry_stream, void* user) {
    (*static_cast<CustomAllocator*>(user))->raw_delete(ptr);
  };
  options.unused = [](void* user) { delete static_cast<CustomAllocator*>(user); };
  return options;
}

class QuarryAllocator final : public CUDAPluggableAllocator {
 public:
  QuarryAllocator() : CUDAPluggableAllocator(quarry_torch_malloc, quarry_torch_free) {
    set_init_fn(quarry_torch_init);
    set_reset_fn(quarry_torch_reset);
    set_memory_fraction_fn(quarry_torch_memory_fraction);
    set_base_alloc_fn(quarry_torch_base_alloc);
    set_record_stream_fn(quarry_torch_record_stream);
    set_begin_allocate_to_pool([](int device, MempoolId_t id, Filter filter) {
      quarry_torch_begin_allocate_to_pool(device, to_c(id), &filter);
    });
    set_end_allocate_to_pool_fn(
        [](int device, MempoolId_t id) { quarry_torch_end_allocate_to_pool(device, to_c(id)); });
    set_release_pool(
        [](int device, MempoolId_t id) { quarry_torch_release_pool(device, to_c(id)); });
  }

  void createOrIncrefPool(DeviceIndex device, MempoolId_t id, CustomAllocator allocator) override {
    if (allocator == nullptr || getPoolUseCount(device, id) > 0) {
      return quarry_torch_retain_pool(device, to_c(id), nullptr);
    }
    auto kept = std::make_unique<CustomAllocator>(std::move(allocator));
    const quarry_pool_options options = make_options(kept.get());
    quarry_torch_retain_pool(device, to_c(id), &options);
    static_cast<void>(kept.release());  // the pool deletes it when it is gone
  }
  int getPoolUseCount(DeviceIndex device, MempoolId_t id) override {
    return quarry_torch_get_pool_use_count(device, to_c(id));
  }
  void setUseOnOOM(DeviceIndex device, MempoolId_t id, bool use_on_oom) override {
    quarry_torch_set_pool_use_on_oom(device, to_c(id), use_on_oom ? 1 : 0);
  }
  void setNoSplit(DeviceIndex device, MempoolId_t id) override {
    quarry_torch_set_pool_no_split(device, to_c(id));
  }
  // A pool's own in the destructor of torch.cuda.MemPool; (0, 0) for torch.cuda.empty_cache().
  void emptyCache(MempoolId_t id) override {
    if (id.first == 0 && id.second == 0) return CUDAPluggableAllocator::emptyCache(id);
    quarry_torch_trim_pool(to_c(id));
  }
  // There is no history yet.
  bool isHistoryEnabled() override { return false; }
};

}  // namespace

const char* quarry_torch_change_allocator() {
  thread_local std::string failure;
  try {
    torch::cuda::CUDAPluggableAllocator::changeCurrentAllocator(
        std::make_shared<QuarryAllocator>());
    return nullptr;
  } catch (const std::exception& error) {
    failure = error.what();
    return failure.c_str();
  }
}
