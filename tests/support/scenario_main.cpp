// SPDX-License-Identifier: Apache-2.0
// The main program of tests that run in both settings of thread_cache: without an option as
// PyTorch decides, with --magazines with the magazines of threads (see scenario.hpp).
#include <gtest/gtest.h>

#include <cstdio>
#include <string_view>

#include "tests/support/scenario.hpp"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) != "--magazines") {
      std::fprintf(stderr, "unknown option %s; there is --magazines\n", argv[i]);
      return 2;
    }
    quarry::test::set_magazines(true);
  }
  return RUN_ALL_TESTS();
}
