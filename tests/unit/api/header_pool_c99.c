// SPDX-License-Identifier: Apache-2.0
// quarry_pool.h alone, as strict C99. Compiling is the test; the calls check that arguments
// convert.
#include "quarry/quarry_pool.h"

int quarry_header_pool_c99(void);

int quarry_header_pool_c99(void) {
  struct CUstream_st* stream = NULL;  // CUDA's own type converts without a cast
  quarry_pool_options options = {0};
  quarry_pool pool = QUARRY_POOL_DEFAULT;
  void* ptr = NULL;
  options.struct_size = sizeof(options);
  options.flags = QUARRY_POOL_USE_ON_OOM | QUARRY_POOL_NO_RECYCLE;
  if (quarry_pool_create(0, &options, &pool) != QUARRY_OK) return 1;
  if (quarry_pool_begin_capture(pool, stream) != QUARRY_OK) return 2;
  return quarry_pool_malloc(pool, &ptr, 1, stream) != QUARRY_OK;
}
