// SPDX-License-Identifier: Apache-2.0
// quarry_pool.h alone, as strict C99. Compiling is the test; the calls check that arguments
// convert.
#include "quarry/quarry_pool.h"

int quarry_header_pool_c99(void);

static void count_revived(void* ptr, quarry_pool_restored what, void* user) {
  if (ptr != NULL && what == QUARRY_POOL_BLOCK_REVIVED) ++*(int*)user;
}

int quarry_header_pool_c99(void) {
  struct CUstream_st* stream = NULL;  // CUDA's own type converts without a cast
  quarry_pool_options options = {0};
  quarry_pool pool = QUARRY_POOL_DEFAULT;
  quarry_pool_checkpoint* checkpoint = NULL;
  int revived = 0;
  void* ptr = NULL;
  options.struct_size = sizeof(options);
  options.flags = QUARRY_POOL_USE_ON_OOM | QUARRY_POOL_NO_RECYCLE;
  if (quarry_pool_create(0, &options, &pool) != QUARRY_OK) return 1;
  if (quarry_pool_begin_capture(pool, stream) != QUARRY_OK) return 2;
  if (quarry_pool_save(pool, &checkpoint) != QUARRY_OK) return 3;
  if (quarry_pool_restore(checkpoint, QUARRY_POOL_NO_STALE_FREES, count_revived, &revived) !=
      QUARRY_OK)
    return 4;
  if (quarry_pool_forget_stale(ptr) != QUARRY_OK) return 5;
  quarry_pool_checkpoint_destroy(checkpoint);
  return quarry_pool_malloc(pool, &ptr, 1, stream) != QUARRY_OK;
}
