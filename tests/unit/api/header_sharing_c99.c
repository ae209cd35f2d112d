// SPDX-License-Identifier: Apache-2.0
// quarry_sharing.h alone, as strict C99. Compiling is the test; the calls check that arguments
// convert.
#include "quarry/quarry_sharing.h"

int quarry_header_sharing_c99(const float* data, size_t count);

int quarry_header_sharing_c99(const float* data, size_t count) {
  if (quarry_enable_peer_access(1, 0) != QUARRY_OK) return 1;
  if (quarry_pin(data, count * sizeof(*data)) != QUARRY_OK) return 2;
  return quarry_unpin(data, count * sizeof(*data)) != QUARRY_OK;
}
