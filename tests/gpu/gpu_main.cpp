// SPDX-License-Identifier: Apache-2.0
// The main program of every GPU test: without a usable GPU it says so and exits with 77, which
// CTest shows as skipped.
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/gpu/gpu_support.hpp"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (!GTEST_FLAG_GET(list_tests) && !quarry::gpu::is_available()) {
    std::fprintf(stderr, "SKIPPED: this GPU test was NOT run\n");
    return 77;
  }
  return RUN_ALL_TESTS();
}
