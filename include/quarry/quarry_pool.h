// SPDX-License-Identifier: Apache-2.0
// Private pools: memory of its own for a CUDA graph, for graphs that never run at once, for
// communication that registers addresses, or from functions of the caller's. C99 and C++;
// quarry_pool.hpp has RAII. docs/pools.md is the guide.
//
// The rules of quarry.h hold here: any thread, any time, no throw, a failure changes nothing.
// Blocks of a pool are freed, recorded and asked about by the functions of quarry.h, and count in
// the device's statistics. Errors that every function here has:
// - QUARRY_ERROR_INVALID_ARGUMENT for QUARRY_POOL_DEFAULT and for a pool that is no more, or was
//   released by its last holder.
// - QUARRY_ERROR_NOT_SUPPORTED under the kill switch (QUARRY_DISABLE=1), where a free gives memory
//   to the driver although a graph may still use it.
//
// What the caller promises: graphs that share a pool do not run at the same time, and a pool is
// held until the last launch of its graphs is done.
#ifndef QUARRY_QUARRY_POOL_H
#define QUARRY_QUARRY_POOL_H

#include "quarry/quarry.h"

#ifdef __cplusplus
extern "C" {
#endif

// Names a pool and its device; a plain number, valid in all threads, never used again.
typedef uint64_t quarry_pool;

// No private pool: memory of quarry_malloc while nothing is begun.
#define QUARRY_POOL_DEFAULT ((quarry_pool)0)

// --- Making and holding ---

// When memory is short, quarry_malloc may take free blocks from here that no capture was given.
#define QUARRY_POOL_USE_ON_OOM 1u
// Blocks are whole segments.
#define QUARRY_POOL_NO_SPLIT 2u
// Free memory goes back at quarry_pool_trim and after the last release only, never because memory
// is short elsewhere: for addresses that others have registered.
#define QUARRY_POOL_NO_RECYCLE 4u

typedef struct quarry_pool_options {
  size_t struct_size;
  uint32_t flags;        // QUARRY_POOL_...
  uint64_t limit_bytes;  // of reserved bytes; 0 or QUARRY_UNLIMITED for none

  // Where segments come from and go to instead of the driver: both, or neither. They run with no
  // lock held, on the thread whose call needs them (in several threads at once), with the stream
  // of the request, and may call this library for anything but memory of their own pool and
  // quarry_shutdown. They must leave captures alone (the calling thread is in relaxed capture
  // mode). What a C++ function throws is caught and logged.
  //
  // allocate: at least `bytes` bytes at a multiple of 512 that are not this library's own memory;
  // NULL, or a throw, for no more.
  // free: once for each address that allocate returned, on any thread, at any time until `unused`.
  // Work that was queued before may still use the memory: as cudaFree does, wait for the device
  // before it serves another.
  // unused (may be NULL): once, when neither will be called again: what they need may go. Inside
  // quarry_shutdown it and free may call quarry_free alone.
  void* (*allocate)(size_t bytes, int device, quarry_stream stream, void* user);
  void (*free)(void* ptr, size_t bytes, int device, quarry_stream stream, void* user);
  void (*unused)(void* user);
  void* user;  // passed through
} quarry_pool_options;

// A new pool of `device`, held once. Reserves nothing yet. options may be NULL. If it fails, none
// of the functions is called.
QUARRY_API quarry_status quarry_pool_create(int device, const quarry_pool_options* options,
                                            quarry_pool* pool);

// Holds the pool once more: for each graph that is captured into it.
QUARRY_API quarry_status quarry_pool_retain(quarry_pool pool);

// The last release ends what is begun on the pool, and serves nobody any more; from then on its
// memory may be given to others. Blocks that are held stay valid until they are freed, but what a
// graph used and nobody holds is gone: destroy the graphs first, when their launches are done.
// Free memory goes back to the driver when memory is short or at quarry_empty_cache, that of own
// functions at once.
QUARRY_API quarry_status quarry_pool_release(quarry_pool pool);

// --- Whose requests it serves ---

// From begin to end the pool serves quarry_malloc on its device: of the calling thread; on
// `stream`, from any thread; on `stream` and the streams that join its capture by events, while it
// captures; or on streams that `filter` accepts (not 0). Of several pools that would, the one
// begun last serves. Whether a stream captures, the driver is asked at each request.
//
// begin_capture: before or after the driver's begin, with the stream that captures. It serves the
// first capture that it sees on the stream and no other, also when that one is lost.
// filter: on the thread of the request, with no lock held. It must not call this library. A throw
// is logged and counts as accepted: memory of a pool is right for every stream.
//
// QUARRY_ERROR_BUSY if the pool is begun already: begin_thread by the calling thread or in another
// way, the others at all.
QUARRY_API quarry_status quarry_pool_begin_thread(quarry_pool pool);
QUARRY_API quarry_status quarry_pool_begin_stream(quarry_pool pool, quarry_stream stream);
QUARRY_API quarry_status quarry_pool_begin_capture(quarry_pool pool, quarry_stream stream);
typedef int (*quarry_pool_filter)(quarry_stream stream, void* user);
QUARRY_API quarry_status quarry_pool_begin_filter(quarry_pool pool, quarry_pool_filter filter,
                                                  void* user);

// Ends what the calling thread began by begin_thread, in the opposite order of several; else what
// anybody began. After the driver's end of the capture. Waits for calls of the filter in other
// threads, after which `user` may go. QUARRY_ERROR_INVALID_ARGUMENT if nothing is begun. Without a
// call: the end of a thread ends what it began by begin_thread, quarry_stream_retire what names
// the stream.
QUARRY_API quarry_status quarry_pool_end(quarry_pool pool);

// As quarry_malloc and quarry_malloc_aligned, from this pool whatever is begun.
QUARRY_API quarry_status quarry_pool_malloc(quarry_pool pool, void** ptr, size_t bytes,
                                            quarry_stream stream);
QUARRY_API quarry_status quarry_pool_malloc_aligned(quarry_pool pool, void** ptr, size_t bytes,
                                                    size_t alignment, quarry_stream stream);

// --- Checkpoints: back to an earlier layout ---

// Which blocks of a pool were allocated, and where, at one moment: for engines that replay graphs
// in an order of their own and capture more of them later. Nothing of the memory's contents.
// Belongs to the caller, and outlives its pool and quarry_shutdown: it is of no use then, but can
// be destroyed. Any number of them, each restored any number of times.
typedef struct quarry_pool_checkpoint quarry_pool_checkpoint;

// Waits for freed blocks of the pool that other streams still use. *checkpoint is NULL on failure.
// QUARRY_ERROR_BUSY while a capture into the pool is under way, and in a driver callback.
QUARRY_API quarry_status quarry_pool_save(quarry_pool pool, quarry_pool_checkpoint** checkpoint);

// What a restore did to a block that was allocated when it began, or is allocated now.
typedef enum quarry_pool_restored {
  // It is not allocated any more. Its holder must not use it, and frees it as ever, once; or
  // quarry_pool_forget_stale is called for it, or the flag below given. That free does nothing,
  // also when the address is a block again.
  QUARRY_POOL_BLOCK_STALE = 0,
  // It is allocated as before, and its holder's.
  QUARRY_POOL_BLOCK_KEPT = 1,
  // It was free, and is allocated now: to be freed by whoever called quarry_pool_restore.
  QUARRY_POOL_BLOCK_REVIVED = 2
} quarry_pool_restored;

// Called for each such block when all is done, on the calling thread, with no lock held. An
// address may be told twice: stale, and with another size revived. May call the library; must not
// throw or jump out.
typedef void (*quarry_pool_restore_visitor)(void* ptr, quarry_pool_restored what, void* user);

// Nobody will free a stale block: their frees are not waited for. One that comes all the same
// frees whatever block has the address by then.
#define QUARRY_POOL_NO_STALE_FREES 1u

// Brings the pool to the layout of the checkpoint: allocated are the blocks that were so then.
// flags: 0 or the above. visitor may be NULL. Waits for work on streams that used what goes. What
// the caller promises: no other thread uses the pool meanwhile, and launches of its graphs are
// done. Segments that the pool got since stay, free; those with stale blocks stay until these are
// freed or forgotten, whatever is trimmed or released.
//
// QUARRY_ERROR_INVALID_ARGUMENT if the pool is gone or was released, a segment of then was given
// back (hold the pool, and do not trim it), or quarry_shutdown was called since.
// QUARRY_ERROR_BUSY as for quarry_pool_save. QUARRY_ERROR_DRIVER if the device failed on the way,
// or another thread used the pool: the only failure that changes something, and tells no visitor.
// What is not in the checkpoint is stale then, without the flag; what stays is as it was, and
// nothing is revived.
QUARRY_API quarry_status quarry_pool_restore(const quarry_pool_checkpoint* checkpoint,
                                             uint32_t flags, quarry_pool_restore_visitor visitor,
                                             void* user);

// The holder of the stale block will not free it. QUARRY_ERROR_INVALID_POINTER if no stale block
// begins at ptr; one that is allocated again is untouched.
QUARRY_API quarry_status quarry_pool_forget_stale(void* ptr);

// Never fails; NULL is fine. Changes nothing of the pool.
QUARRY_API void quarry_pool_checkpoint_destroy(quarry_pool_checkpoint* checkpoint);

// --- Amounts ---

// Waits for blocks of the device that other streams still use, and gives the free memory back that
// no capture was ever given; of a released pool, all. QUARRY_ERROR_BUSY in a driver callback, and
// while the calling thread holds the driver-free guard.
QUARRY_API quarry_status quarry_pool_trim(quarry_pool pool);

// Of reserved bytes; QUARRY_UNLIMITED for none. Gives nothing back.
QUARRY_API quarry_status quarry_pool_set_limit(quarry_pool pool, uint64_t bytes);

// The figures of one pool at one moment. Amounts are bytes of whole blocks.
typedef struct quarry_pool_stats {
  size_t struct_size;
  quarry_pool pool;  // QUARRY_POOL_DEFAULT: one that quarry_pool_create did not make
  // The name of such a pool: PyTorch's MempoolId_t, or (2^62, the number of the capture) of
  // graph_pools:automatic. 0 and 0 for others.
  uint64_t id_first;
  uint64_t id_second;
  int device;
  int use_count;            // holders; 0: released, and there until its last block is freed
  int has_active_capture;   // 1 while a capture that it served may be under way
  int64_t allocated_bytes;  // held by users
  int64_t allocated_peak_bytes;
  int64_t active_bytes;  // those and the pending ones
  int64_t active_peak_bytes;
  int64_t reserved_bytes;  // segments
  int64_t reserved_peak_bytes;
  int64_t allocated_blocks;
  int64_t segments;
  int64_t num_ooms;      // requests to the pool that failed for lack of memory
  uint64_t limit_bytes;  // QUARRY_UNLIMITED without one
} quarry_pool_stats;

// Fills the fields that stats->struct_size covers. A released pool can be asked as long as it has
// memory.
QUARRY_API quarry_status quarry_pool_get_stats(quarry_pool pool, quarry_pool_stats* stats);

// Called for every private pool of the device, those of PyTorch and of graph_pools:automatic too,
// with no lock held. `stats` is valid during the call. May call the library; must not throw or
// jump out.
typedef void (*quarry_pool_visitor)(const quarry_pool_stats* stats, void* user);
QUARRY_API quarry_status quarry_for_each_pool(int device, quarry_pool_visitor visitor, void* user);

// --- Per-thread default streams: see the end of quarry.h ---

#if defined(QUARRY_PER_THREAD_DEFAULT_STREAM)
#define quarry_pool_begin_stream(pool, stream) \
  quarry_pool_begin_stream(pool, quarry_per_thread_stream(stream))
#define quarry_pool_begin_capture(pool, stream) \
  quarry_pool_begin_capture(pool, quarry_per_thread_stream(stream))
#define quarry_pool_malloc(pool, ptr, bytes, stream) \
  quarry_pool_malloc(pool, ptr, bytes, quarry_per_thread_stream(stream))
#define quarry_pool_malloc_aligned(pool, ptr, bytes, alignment, stream) \
  quarry_pool_malloc_aligned(pool, ptr, bytes, alignment, quarry_per_thread_stream(stream))
#endif

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // QUARRY_QUARRY_POOL_H
