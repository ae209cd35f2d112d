// SPDX-License-Identifier: Apache-2.0
// The functions that PyTorch's CUDAPluggableAllocator calls: its allocation, its free and its
// hooks, in the signatures of PyTorch 2.11. Whoever calls Quarry directly uses quarry.h instead.
// docs/integrations.md wires them; examples/pytorch/quarry_allocator.py does it in one call.
//
// Unlike those of quarry.h, these functions throw: PyTorch does not look at a null pointer but
// makes a tensor of it, and passes exceptions on to Python. A request that cannot be met throws
// quarry::OutOfMemory of quarry.hpp with the report as its text, which Python sees as RuntimeError
// ("CUDA out of memory. ..."), or what the function of quarry_torch_set_oom_thrower throws
// instead. Any other failure throws quarry::Error. The state is then as before the call. All else
// is as in quarry.h: threads, streams, forks, the first call.
#ifndef QUARRY_QUARRY_TORCH_H
#define QUARRY_QUARRY_TORCH_H

#include "quarry/quarry_pool.h"

#ifdef __cplusplus
extern "C" {
#endif

// --- Allocation and free ---

// As quarry_malloc. 0 bytes: NULL.
QUARRY_API void* quarry_torch_malloc(size_t bytes, int device, quarry_stream stream);

// As quarry_free: never throws, since PyTorch calls it in destructors. The block goes back to the
// stream that it came from; `bytes`, `device` and `stream` are what PyTorch remembers of it, and
// are not needed.
QUARRY_API void quarry_torch_free(void* ptr, size_t bytes, int device, quarry_stream stream);

// --- Hooks ---

// Makes the allocator if there is none yet. Throws if it has fewer devices than PyTorch.
QUARRY_API void quarry_torch_init(int device_count);

// torch.cuda.empty_cache(): quarry_empty_cache of every device.
QUARRY_API void quarry_torch_reset(void);

// torch.cuda.set_per_process_memory_fraction(): quarry_set_memory_fraction.
QUARRY_API void quarry_torch_memory_fraction(double fraction, int device);

// The segment that `ptr` is inside of, and its size: what a legacy IPC handle is made of. `bytes`
// may be NULL.
QUARRY_API void* quarry_torch_base_alloc(void* ptr, size_t* bytes);

// Tensor.record_stream(): quarry_record_stream. Memory that is not Quarry's (imported by DLPack or
// from another process) is not an error, as in PyTorch; the first one is logged.
QUARRY_API void quarry_torch_record_stream(void* ptr, quarry_stream stream);

// --- Pools ---

// PyTorch's MempoolId_t, a std::pair of two 64-bit numbers, which is passed as this struct is.
typedef struct quarry_torch_pool_id {
  uint64_t first;
  uint64_t second;
} quarry_torch_pool_id;

// Graph captures, and torch.cuda.use_mem_pool: from begin to end the pool serves requests on the
// streams that `filter` accepts, the std::function<bool(cudaStream_t)> that PyTorch passes by
// value. (By the C++ ABI that is the address of the caller's own copy; it is copied.) Begin makes
// the pool if there is none yet, and holds it once more: each begin has its release. A filter that
// throws counts as accepted. Throw if the pool is begun already, and if it is not.
QUARRY_API void quarry_torch_begin_allocate_to_pool(int device, quarry_torch_pool_id pool,
                                                    void* filter);
QUARRY_API void quarry_torch_end_allocate_to_pool(int device, quarry_torch_pool_id pool);

// quarry_pool_release. Does not throw, since PyTorch calls it in destructors; logs a failure.
QUARRY_API void quarry_torch_release_pool(int device, quarry_torch_pool_id pool);

// Pools of PyTorch keep what they have while they are held (QUARRY_POOL_NO_RECYCLE), as under its
// own allocator.
//
// What torch.cuda.MemPool needs beyond the hooks, for libquarry_torch.so. retain makes the pool,
// with the options, or holds it once more and leaves it as it is. One that was released and has
// memory still becomes as the options say; if they, or those of before, have functions, both
// retain and begin throw until that memory is gone. use_count: 0 if there is none.
// set_use_on_oom and set_no_split: see the flags of quarry_pool.h. trim: quarry_pool_trim of that
// pool on every device that has it, and like set_use_on_oom to 0 in destructors: both log a
// failure.
QUARRY_API void quarry_torch_retain_pool(int device, quarry_torch_pool_id pool,
                                         const quarry_pool_options* options);
QUARRY_API int quarry_torch_get_pool_use_count(int device, quarry_torch_pool_id pool);
QUARRY_API void quarry_torch_set_pool_use_on_oom(int device, quarry_torch_pool_id pool,
                                                 int use_on_oom);
QUARRY_API void quarry_torch_set_pool_no_split(int device, quarry_torch_pool_id pool);
QUARRY_API void quarry_torch_trim_pool(quarry_torch_pool_id pool);

// Graph trees (torch.compile with mode="reduce-overhead") return to an earlier layout of their
// pool, for libquarry_torch.so. save_pool: quarry_pool_save; destroy it by
// quarry_pool_checkpoint_destroy. restore_pool: quarry_pool_restore with
// QUARRY_POOL_NO_STALE_FREES, as PyTorch takes the deleters of stale tensors away; throws if the
// checkpoint is of another device. has_exactly: 1 if the pool's allocated blocks are those `count`
// different ones at `blocks`, else 0.
QUARRY_API quarry_pool_checkpoint* quarry_torch_save_pool(int device, quarry_torch_pool_id pool);
QUARRY_API void quarry_torch_restore_pool(int device, const quarry_pool_checkpoint* checkpoint,
                                          quarry_pool_restore_visitor visitor, void* user);
QUARRY_API int quarry_torch_pool_has_exactly(int device, quarry_torch_pool_id pool,
                                             const void* const* blocks, size_t count);

// --- libquarry_torch.so ---

// Only that library has this function, and only where it was built against a PyTorch with CUDA:
// makes Quarry PyTorch's current allocator, with all of the above, and with what PyTorch's own
// plug-in class refuses. Before the first use of CUDA. NULL, or what PyTorch says against it,
// valid until the next call.
QUARRY_API const char* quarry_torch_change_allocator(void);

// --- torch.OutOfMemoryError ---

// Throws a C++ exception that says `text`. If it returns, quarry::OutOfMemory is thrown.
typedef void (*quarry_torch_oom_thrower)(const char* text);

// From now on a request that cannot be met calls `thrower`; NULL: quarry::OutOfMemory again. Only
// an exception of a class inside PyTorch becomes torch.OutOfMemoryError, and this library knows
// none: libquarry_torch.so, built against the installed PyTorch, passes its own when it is loaded.
QUARRY_API void quarry_torch_set_oom_thrower(quarry_torch_oom_thrower thrower);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // QUARRY_QUARRY_TORCH_H
