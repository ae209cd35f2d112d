// SPDX-License-Identifier: Apache-2.0
// The PTX text of BlockToucher, given to the Toolkit's assembler: without a GPU nothing else would
// read it before a user's driver does.
#include "cuda/touch_kernels.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>

namespace quarry::cuda {
namespace {

class TouchKernels : public testing::TestWithParam<const char*> {};

TEST_P(TouchKernels, Assemble) {
  const std::string assembler = QUARRY_PTXAS;
  if (assembler.empty()) GTEST_SKIP() << "no ptxas on this machine: the PTX was NOT assembled";
  const std::string source = testing::TempDir() + "quarry_touch_" + GetParam() + ".ptx";
  std::ofstream(source) << kTouchKernels;
  const std::string command =
      "'" + assembler + "' -arch=" + GetParam() + " '" + source + "' -o /dev/null";
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
}

INSTANTIATE_TEST_SUITE_P(Architectures, TouchKernels, testing::Values("sm_80", "sm_90"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace quarry::cuda
