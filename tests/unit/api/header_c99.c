// SPDX-License-Identifier: Apache-2.0
// quarry.h alone, as strict C99. Compiling is the test; the calls check that arguments convert.
#include "quarry/quarry.h"

int quarry_header_c99(void);

int quarry_header_c99(void) {
  struct CUstream_st* stream = NULL;  // CUDA's own type converts without a cast
  void* ptr = NULL;
  quarry_stats stats = {0};
  stats.struct_size = sizeof(stats);
  if (quarry_malloc(&ptr, 1, 0, stream) != QUARRY_OK) return 1;
  if (quarry_get_stats(0, &stats) != QUARRY_OK) return 2;
  return quarry_free_on_stream(ptr, stream) != QUARRY_OK;
}
