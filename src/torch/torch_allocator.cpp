// SPDX-License-Identifier: Apache-2.0
// libquarry_torch.so: PyTorch's plug-in class with what it refuses by itself. torch.cuda.MemPool
// cannot be made with CUDAPluggableAllocator, which has no createOrIncrefPool, nor can the graph
// trees of torch.compile save and restore their pool; all else that a graph or a pool needs are
// hooks. Built against the installed PyTorch, since a class of its own
// cannot but follow that one's layout.
#include <torch/csrc/cuda/CUDAPluggableAllocator.h>

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "quarry/quarry_torch.h"

namespace {

using c10::DeviceIndex;
using c10::cuda::getCurrentCUDAStream;
using c10::cuda::MempoolId_t;
using c10::cuda::CUDACachingAllocator::AllocatorState;
using c10::cuda::CUDACachingAllocator::CheckpointDelta;
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

// The layout of a pool, in PyTorch's hands.
class PoolState final : public AllocatorState {
 public:
  explicit PoolState(quarry_pool_checkpoint* saved) : saved_(saved) {}
  ~PoolState() override { quarry_pool_checkpoint_destroy(saved_); }
  PoolState(const PoolState&) = delete;
  PoolState& operator=(const PoolState&) = delete;

  const quarry_pool_checkpoint* get() const { return saved_; }

 private:
  quarry_pool_checkpoint* const saved_;
};

// Addresses that were allocated before a restore, and those that are so after it. What stays is
// in both.
struct Restored {
  std::vector<void*> before;
  std::vector<void*> after;

  static void visit(void* ptr, quarry_pool_restored what, void* user) {
    auto& [before, after] = *static_cast<Restored*>(user);
    if (what != QUARRY_POOL_BLOCK_REVIVED) before.push_back(ptr);
    if (what != QUARRY_POOL_BLOCK_STALE) after.push_back(ptr);
  }
};

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

  // PyTorch's class notes every address in a map under one mutex, and frees no other. Quarry knows
  // its blocks by itself, also those that a restore revived.
  c10::DataPtr allocate(size_t bytes) override {
    const DeviceIndex device = get_current_device();
    void* const ptr = quarry_torch_malloc(bytes, device, getCurrentCUDAStream(device));
    return {ptr, ptr, raw_deleter(), c10::Device(c10::DeviceType::CUDA, device)};
  }
  void* raw_alloc(size_t bytes) override {
    return raw_alloc_with_stream(bytes, getCurrentCUDAStream());
  }
  void* raw_alloc_with_stream(size_t bytes, cudaStream_t stream) override {
    return quarry_torch_malloc(bytes, get_current_device(), stream);
  }
  void raw_delete(void* ptr) override { quarry_torch_free(ptr, 0, 0, nullptr); }

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

  std::shared_ptr<AllocatorState> getCheckpointState(DeviceIndex device, MempoolId_t id) override {
    return std::make_shared<PoolState>(quarry_torch_save_pool(device, to_c(id)));
  }
  // What PyTorch's binding does with the answer: it takes the deleters of stale storages away, all
  // of which it wants to find in ptrs_freed, and moves those of dataptrs_allocd to the storages
  // that it was told to. A tensor that is not passed to it keeps the deleter that it has.
  CheckpointDelta setCheckpointPoolState(DeviceIndex device,
                                         std::shared_ptr<AllocatorState> state) override {
    const auto* const saved = dynamic_cast<const PoolState*>(state.get());
    TORCH_CHECK(saved != nullptr, "the state of a pool is not one that Quarry saved");
    Restored restored;
    quarry_torch_restore_pool(device, saved->get(), &Restored::visit, &restored);
    CheckpointDelta delta;
    delta.ptrs_freed = std::move(restored.before);
    delta.dataptrs_allocd.reserve(restored.after.size());
    for (void* ptr : restored.after) {
      delta.dataptrs_allocd.emplace_back(ptr, ptr, raw_deleter(),
                                         c10::Device(c10::DeviceType::CUDA, device));
    }
    return delta;
  }
  bool checkPoolLiveAllocations(DeviceIndex device, MempoolId_t id,
                                const std::unordered_set<void*>& expected) override {
    const std::vector<const void*> blocks(expected.begin(), expected.end());
    return quarry_torch_pool_has_exactly(device, to_c(id), blocks.data(), blocks.size()) != 0;
  }
  // There is no history yet.
  bool isHistoryEnabled() override { return false; }

 private:
  static DeviceIndex get_current_device() {
    DeviceIndex device = -1;
    C10_CUDA_CHECK(c10::cuda::GetDevice(&device));
    return device;
  }
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
