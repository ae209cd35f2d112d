// SPDX-License-Identifier: Apache-2.0
// The interface of Quarry, a caching allocator for device memory: C99 and C++, and the only ABI
// that the library has. Exceptions and RAII are in quarry.hpp, a header over this one.
// docs/c-api.md is the guide; docs/tuning.md and docs/stats.md explain every option and figure.
//
// Rules that hold for every function, unless its own text says otherwise:
// - One allocator serves the whole process. The first call that needs it makes it from the
//   environment (QUARRY_CONF, QUARRY_DRIVER, see quarry_init).
// - Any thread may call at any time. No call throws. quarry_init and quarry_shutdown are the
//   exceptions: at quarry_shutdown no other thread may be inside a call.
// - Functions that can fail return a quarry_status. Anything but QUARRY_OK changed nothing, and
//   quarry_get_last_error tells more. Amounts are bytes; devices are CUDA's ordinals of this
//   process.
// - The calling thread's current device and context do not matter and are left as they are: a call
//   acts in the primary context of the device that it names.
// - Pointers are device addresses and are never dereferenced by the library.
// - In the child of a fork the calls that need the allocator return QUARRY_ERROR_FORKED at once:
//   the child has no device. A child that makes no call, and the parent, are not affected. If the
//   parent had not used the library before the fork, the child may use it as any process does.
// - At exit nothing is given back and no driver call is made: the driver does that. Calls from
//   static destructors and atexit functions work, in any order.
// - After quarry_shutdown the calls that need the allocator return QUARRY_ERROR_SHUT_DOWN, until
//   quarry_init makes a new one; quarry_free does nothing.
#ifndef QUARRY_QUARRY_H
#define QUARRY_QUARRY_H

#include <stddef.h>
#include <stdint.h>

#define QUARRY_VERSION_MAJOR 0
#define QUARRY_VERSION_MINOR 1
#define QUARRY_VERSION_PATCH 0

#if defined(_WIN32)
#error "Quarry is for Linux"
#endif
#define QUARRY_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

// --- Status and errors ---

// The numbers are part of the ABI.
typedef enum quarry_status {
  QUARRY_OK = 0,
  QUARRY_ERROR_INVALID_ARGUMENT = 1,
  // Nothing that could be reclaimed was enough. The text is the report of quarry_oom_report.
  QUARRY_ERROR_OUT_OF_MEMORY = 2,
  // Not a block of this allocator: foreign, interior or stale.
  QUARRY_ERROR_INVALID_POINTER = 3,
  QUARRY_ERROR_DOUBLE_FREE = 4,
  // A sized free named another size than was asked for. The block was freed.
  QUARRY_ERROR_SIZE_MISMATCH = 5,
  // The driver failed with something other than out-of-memory; its code is in the text.
  QUARRY_ERROR_DRIVER = 6,
  // The process was forked after the allocator was made, and this is the child.
  QUARRY_ERROR_FORKED = 7,
  // Not on this machine, or not in this build.
  QUARRY_ERROR_NOT_SUPPORTED = 8,
  // A capture, a guard, or the callback that the caller is in forbids it now.
  QUARRY_ERROR_BUSY = 9,
  // A fault of this library, or no host memory.
  QUARRY_ERROR_INTERNAL = 10,
  // quarry_shutdown was called, and quarry_init not since.
  QUARRY_ERROR_SHUT_DOWN = 11
} quarry_status;

// "out of memory", ...; "unknown status" for other numbers. Static storage.
QUARRY_API const char* quarry_get_status_name(quarry_status status);

// What the last failed call on the calling thread has to say; "" before the first. A call that
// succeeds leaves it. Valid until the thread's next failure; at most 4,095 bytes, cut with "...".
QUARRY_API const char* quarry_get_last_error(void);

// Of the library that runs: 10000 * major + 100 * minor + patch.
QUARRY_API int quarry_get_version(void);

// --- Streams ---

// A CUstream or cudaStream_t. NULL and 1 are the legacy default stream, 2 is the calling thread's
// per-thread default stream. In code that is compiled for per-thread default streams NULL means 2,
// as it does for the CUDA runtime; the macros at the end of this header take care. (The address of
// a function, or a symbol from dlsym, takes handles as they are.)
typedef void* quarry_stream;

// In statistics: memory that any stream may take.
#define QUARRY_STREAM_IDLE ((quarry_stream)UINTPTR_MAX)

// --- Lifetime and configuration ---

typedef enum quarry_driver_kind {
  QUARRY_DRIVER_DEFAULT = 0,  // what QUARRY_DRIVER says, otherwise the CUDA driver
  QUARRY_DRIVER_CUDA = 1,     // libcuda.so.1 of this machine; else QUARRY_ERROR_NOT_SUPPORTED
  QUARRY_DRIVER_SIM = 2       // the simulated device: needs no GPU
} quarry_driver_kind;

// Set struct_size to sizeof, everything else to 0 (or what is wanted). So for every struct here: a
// later version may append fields, and the size says which of them the caller knows.
typedef struct quarry_init_options {
  size_t struct_size;
  const char* conf;  // NULL: QUARRY_CONF, or nothing
  quarry_driver_kind driver;
  int sim_device_count;       // 0: QUARRY_SIM_DEVICES, or 1
  uint64_t sim_memory_bytes;  // of each; 0: QUARRY_SIM_MEMORY, or an H200's 150,109,880,320
} quarry_init_options;

// Makes the allocator. NULL: all from the environment, which is what the first call of any other
// function does too. The environment:
//   QUARRY_CONF          options, see docs/tuning.md
//   QUARRY_CONF_LENIENT  1: options that this version does not know are a warning, not an error
//   QUARRY_DRIVER        sim or cuda
//   QUARRY_SIM_DEVICES   number of simulated devices
//   QUARRY_SIM_MEMORY    bytes of each, also as 512M, 16G
//   QUARRY_DISABLE       1: the kill switch. Every malloc and free goes to the driver, with its
//                        costs (a free waits for the device). All else still answers.
// A failure leaves no allocator, and the next call tries again. If there is an allocator already:
// QUARRY_OK for NULL, otherwise QUARRY_ERROR_BUSY. After quarry_shutdown it makes a new one.
QUARRY_API quarry_status quarry_init(const quarry_init_options* options);

// Gives all memory back to the driver, that of blocks still held included. May wait for the
// devices. No other thread may be inside a call, and no memory may be in use. Without an
// allocator: QUARRY_OK. QUARRY_ERROR_BUSY, with nothing done, inside a callback, between
// quarry_driver_callback_begin and _end, and while any thread holds the driver-free guard. Not
// needed before exit.
QUARRY_API quarry_status quarry_shutdown(void);

// Changes the options that `conf` names, from the next request on; the others stay as they are. An
// error names the option, the value, its place and what is allowed, and nothing is changed.
QUARRY_API quarry_status quarry_configure(const char* conf);

// Writes the options as quarry_configure takes them, with a final 0, into `buffer` of
// `buffer_bytes` bytes: every one that decides what the allocator does. Left out are PyTorch's
// expandable_segments (an alias of segments), release_lock_on_cudamalloc (and its alias
// release_lock_on_hipmalloc) and backend, which have one value.
// `*needed_bytes` (may be NULL) gets the size with the 0. If the buffer is too small:
// QUARRY_ERROR_INVALID_ARGUMENT, and as much as fits. buffer may be NULL if buffer_bytes is 0:
// then QUARRY_OK, to ask for the size.
QUARRY_API quarry_status quarry_get_conf(char* buffer, size_t buffer_bytes, size_t* needed_bytes);

QUARRY_API quarry_status quarry_get_device_count(int* count);

// --- Memory ---

// At least `bytes` bytes on `device`, aligned to 512 or more, to be used on `stream` (see
// quarry_record_stream for others). The caller owns the block until it frees it. 0 bytes: *ptr is
// NULL, QUARRY_OK. On failure *ptr is NULL. A request that no device could hold, up to 2^64 - 1,
// is an ordinary QUARRY_ERROR_OUT_OF_MEMORY. From the cache it costs no driver call; otherwise it
// may wait for the device.
QUARRY_API quarry_status quarry_malloc(void** ptr, size_t bytes, int device, quarry_stream stream);

// The same, aligned to `alignment`, a power of two.
QUARRY_API quarry_status quarry_malloc_aligned(void** ptr, size_t bytes, size_t alignment,
                                               int device, quarry_stream stream);

// Gives a block back. Never waits; makes no driver call except an event record for each other
// stream that used the block. The memory is reused on its own stream at once: work launched there
// before the free is ordered before the new owner's. NULL is fine. Never fails its caller: a
// pointer that is no live block is counted (invalid_frees), the first of each kind logged, and
// nothing changes.
QUARRY_API void quarry_free(void* ptr);

// As quarry_free, and says what happened: QUARRY_ERROR_INVALID_POINTER or
// QUARRY_ERROR_DOUBLE_FREE.
QUARRY_API quarry_status quarry_free_checked(void* ptr);

// As quarry_free_checked; QUARRY_ERROR_SIZE_MISMATCH if `bytes` is not what was asked for. The
// block is freed all the same, with the size that the library recorded.
QUARRY_API quarry_status quarry_free_sized(void* ptr, size_t bytes);

// As quarry_free_checked, but from now on the memory belongs to `stream` of the same device. The
// caller has ordered all uses of the block before this point of `stream`.
QUARRY_API quarry_status quarry_free_on_stream(void* ptr, quarry_stream stream);

// The block is also used on `stream`: once freed, its memory is reused only when what had been
// submitted to `stream` before the free is done. For the block's own stream it does nothing, and
// for NULL neither. Anything else that is no live block, a freed one included, is
// QUARRY_ERROR_INVALID_POINTER; the text says which. It is no free, so invalid_frees stays.
QUARRY_API quarry_status quarry_record_stream(void* ptr, quarry_stream stream);

// `stream` of `device` is about to be destroyed. Must be called for every stream that was ever
// passed in, before its destruction: the driver crashes on a dead handle. Does not wait. Memory
// cached for the stream becomes usable by all streams once its work is done. QUARRY_ERROR_BUSY
// while the stream captures. Per-thread default streams are retired at thread exit without a call;
// the legacy default stream never ends: QUARRY_ERROR_INVALID_ARGUMENT.
QUARRY_API quarry_status quarry_stream_retire(int device, quarry_stream stream);

// Waits for freed blocks that other streams still use, then returns all cached memory that is not
// a part of a block in use to the driver. Waits for the device; slow.
QUARRY_API quarry_status quarry_empty_cache(int device);

typedef struct quarry_block_info {
  size_t struct_size;
  void* address;   // start of the block
  uint64_t bytes;  // of the whole block, after rounding
  uint64_t requested_bytes;
  void* segment_address;  // the driver allocation that the block is a part of
  uint64_t segment_bytes;
  int device;
  quarry_stream stream;  // the one that the block belongs to
} quarry_block_info;

// About the block around `ptr`, which may point inside it. QUARRY_ERROR_INVALID_POINTER if no
// block that is held by a user is there.
QUARRY_API quarry_status quarry_get_block_info(const void* ptr, quarry_block_info* info);

// --- Limits ---

#define QUARRY_UNLIMITED UINT64_MAX

// How much this process may hold from the driver on `device`: a part of the device's memory, in
// [0, 1], and an amount in bytes (QUARRY_UNLIMITED for none). The smaller one holds. Neither gives
// back what is held already: see quarry_empty_cache.
QUARRY_API quarry_status quarry_set_memory_fraction(int device, double fraction);
QUARRY_API quarry_status quarry_get_memory_fraction(int device, double* fraction);
QUARRY_API quarry_status quarry_set_limit(int device, uint64_t bytes);
QUARRY_API quarry_status quarry_get_limit(int device, uint64_t* bytes);

// --- Statistics ---

// The figures that matter most, of one device at one moment. docs/stats.md explains each.
typedef struct quarry_stats {
  size_t struct_size;
  int64_t requested_bytes;  // as users asked for
  int64_t allocated_bytes;  // of whole blocks that users hold
  int64_t allocated_peak_bytes;
  int64_t active_bytes;  // those and the pending ones
  int64_t active_peak_bytes;
  int64_t reserved_bytes;  // held from the driver
  int64_t reserved_peak_bytes;
  int64_t pending_bytes;       // freed by the user, another stream may still use them
  int64_t cached_bytes;        // free blocks
  int64_t idle_bytes;          // of those, usable by any stream
  int64_t largest_free_block;  // bytes
  int64_t allocator_slack;     // allocated minus requested bytes, of held blocks
  int64_t external_bytes;      // in use on the device, not reserved by this allocator
  int64_t allocated_blocks;
  int64_t segments;
  int64_t fences_outstanding;
  int64_t num_alloc_retries;
  int64_t num_ooms;
  int64_t num_device_alloc;  // driver allocations that succeeded
  int64_t num_device_free;
  int64_t invalid_frees;
  int64_t pinned_bytes;  // kept in place by quarry_pin, whole allocations and extents
} quarry_stats;

// Fills the fields that stats->struct_size covers. Fields that this library does not know, because
// the caller is newer, stay as they are.
QUARRY_API quarry_status quarry_get_stats(int device, quarry_stats* stats);

// One figure by its key: those of torch.cuda.memory_stats() ("allocated_bytes.all.peak") and
// Quarry's own. QUARRY_ERROR_INVALID_ARGUMENT for a key that there is not.
QUARRY_API quarry_status quarry_get_stat(int device, const char* key, int64_t* value);

// Called for every key, in order of the alphabet, with figures of one moment. `key` is valid
// during the call. May call the library; must not throw or jump out.
typedef void (*quarry_stat_visitor)(const char* key, int64_t value, void* user);
QUARRY_API quarry_status quarry_for_each_stat(int device, quarry_stat_visitor visitor, void* user);

// Bytes cached for one stream, which no other stream may take.
typedef struct quarry_stream_cache {
  size_t struct_size;
  quarry_stream stream;  // QUARRY_STREAM_IDLE: for any stream
  uint64_t cached_bytes;
  uint64_t largest_free_block;
} quarry_stream_cache;

// Called for every stream with cached memory, the largest amount first. As quarry_stat_visitor.
typedef void (*quarry_stream_cache_visitor)(const quarry_stream_cache* cache, void* user);
QUARRY_API quarry_status quarry_for_each_stream_cache(int device,
                                                      quarry_stream_cache_visitor visitor,
                                                      void* user);

// Peaks become the current figures; totals and counters become 0. Neither touches what is current.
QUARRY_API quarry_status quarry_reset_peak_stats(int device);
QUARRY_API quarry_status quarry_reset_accumulated_stats(int device);

// --- Callbacks ---

// They run on the thread whose request is short, with no lock held, and may call anything here
// but quarry_shutdown (QUARRY_ERROR_BUSY). A request that a callback makes calls no callbacks, not
// even when it fails. They must not throw or jump out; what a C++ callback throws is caught,
// logged and dropped. `user` is passed through.

typedef enum quarry_oom_reason {
  QUARRY_OOM_DEVICE_FULL = 0,     // the driver (or a pool's own functions) has no more, and too
                                  // little is cached that this request may have
  QUARRY_OOM_FRAGMENTATION = 1,   // enough is cached, but no free block is large enough
  QUARRY_OOM_STRANDED = 2,        // a large enough block is cached, but for another stream
  QUARRY_OOM_LIMIT = 3,           // the limit or fraction of this process
  QUARRY_OOM_FREE_FORBIDDEN = 4,  // the caller holds the driver-free guard
  QUARRY_OOM_IMPOSSIBLE = 5       // larger than the device
} quarry_oom_reason;

// Why a request was not served, in three ledgers. All of it is valid during the callback only.
typedef struct quarry_oom_report {
  size_t struct_size;
  int device;
  quarry_stream stream;
  quarry_oom_reason reason;
  // Asked for.
  uint64_t requested_bytes;
  uint64_t rounded_bytes;
  uint64_t segment_bytes;  // what the driver would have been asked for
  // Held by the allocator.
  uint64_t reserved_bytes;
  uint64_t allocated_bytes;
  uint64_t pending_bytes;
  uint64_t cached_bytes;
  uint64_t largest_free_block;  // that the stream could have used
  uint64_t limit_bytes;         // QUARRY_UNLIMITED without one
  // Held by the driver.
  uint64_t device_total_bytes;
  uint64_t device_free_bytes;
  uint64_t external_bytes;
  // What each stream strands, largest first: cache_count pointers.
  const quarry_stream_cache* const* caches;
  size_t cache_count;
  // PyTorch's sentence, then what it lacks and what to try next.
  const char* text;
} quarry_oom_report;

typedef void (*quarry_oom_callback)(const quarry_oom_report* report, void* user);
// Asked to free memory of the device before the driver is asked for more. Returns whether it did
// anything (not 0); then the cache is searched again.
typedef int (*quarry_free_memory_callback)(int device, uint64_t needed_bytes, void* user);
typedef uint64_t quarry_callback_id;  // never 0

// `*id` (may be NULL) names the callback for quarry_remove_callback. `user` must live until then.
QUARRY_API quarry_status quarry_add_oom_callback(quarry_oom_callback callback, void* user,
                                                 quarry_callback_id* id);
QUARRY_API quarry_status quarry_add_free_memory_callback(quarry_free_memory_callback callback,
                                                         void* user, quarry_callback_id* id);
// After QUARRY_OK the callback is not called any more, and `user` may go: calls under way in other
// threads are waited for, so hold no lock, and not the driver-free guard, that they may need. May
// be called from inside a callback, which may remove itself; two callbacks that remove each other
// at once, in two threads, wait for ever. QUARRY_ERROR_INVALID_ARGUMENT for an id that is not, or
// no longer, there.
QUARRY_API quarry_status quarry_remove_callback(quarry_callback_id id);

// --- Guards ---

// A driver free waits for the devices: between two launches of a collective it can deadlock them.
// From lock to unlock no driver free begins in any thread. lock waits for those under way;
// requests of other threads that need one wait, those of the holder fail with
// QUARRY_OOM_FREE_FORBIDDEN. Threads may hold it together, and a thread several times. A thread
// that ends without unlock gives it up, with a warning in the log. lock: QUARRY_ERROR_BUSY between
// quarry_driver_callback_begin and _end, where a driver free under way may wait for the caller.
// unlock: QUARRY_ERROR_INVALID_ARGUMENT if the calling thread does not hold it.
QUARRY_API quarry_status quarry_driver_free_guard_lock(void);
QUARRY_API quarry_status quarry_driver_free_guard_unlock(void);

// Between these the calling thread is one that the driver calls (a host function of a stream, a
// destructor of a user object), from which the driver allows no calls: frees are queued for the
// next ordinary call of any thread, requests are served from the cache or refused. They nest. end:
// QUARRY_ERROR_INVALID_ARGUMENT without a begin.
QUARRY_API quarry_status quarry_driver_callback_begin(void);
QUARRY_API quarry_status quarry_driver_callback_end(void);

// --- Per-thread default streams ---

#if defined(__CUDA_API_PER_THREAD_DEFAULT_STREAM) || defined(CUDA_API_PER_THREAD_DEFAULT_STREAM)
#define QUARRY_PER_THREAD_DEFAULT_STREAM 1
static inline quarry_stream quarry_per_thread_stream(quarry_stream stream) {
  return stream == NULL ? (quarry_stream)(uintptr_t)2 : stream;
}
#define quarry_malloc(ptr, bytes, device, stream) \
  quarry_malloc(ptr, bytes, device, quarry_per_thread_stream(stream))
#define quarry_malloc_aligned(ptr, bytes, alignment, device, stream) \
  quarry_malloc_aligned(ptr, bytes, alignment, device, quarry_per_thread_stream(stream))
#define quarry_free_on_stream(ptr, stream) \
  quarry_free_on_stream(ptr, quarry_per_thread_stream(stream))
#define quarry_record_stream(ptr, stream) \
  quarry_record_stream(ptr, quarry_per_thread_stream(stream))
#define quarry_stream_retire(device, stream) \
  quarry_stream_retire(device, quarry_per_thread_stream(stream))
#endif

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // QUARRY_QUARRY_H
