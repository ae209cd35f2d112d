// SPDX-License-Identifier: Apache-2.0
// quarry_torch.h alone, as strict C99. Compiling is the test.
#include "quarry/quarry_torch.h"

void* quarry_header_torch_c99(void);

void* quarry_header_torch_c99(void) {
  quarry_torch_pool_id pool = {0, 1};
  size_t bytes = 0;
  quarry_torch_end_allocate_to_pool(0, pool);
  quarry_torch_restore_pool(0, quarry_torch_save_pool(0, pool), NULL, NULL);
  if (quarry_torch_pool_has_exactly(0, pool, NULL, 0)) return NULL;
  return quarry_torch_base_alloc(quarry_torch_malloc(1, 0, NULL), &bytes);
}
