// SPDX-License-Identifier: Apache-2.0
// quarry.h alone, as pedantic C++ of the oldest standard that it promises. Compiling is the test.
#include "quarry/quarry.h"

struct CUstream_st;

int quarry_header_cpp(CUstream_st* stream) {
  void* ptr = nullptr;
  return quarry_malloc(&ptr, 1, 0, stream) == QUARRY_OK &&
         quarry_record_stream(ptr, stream) == QUARRY_OK;
}
