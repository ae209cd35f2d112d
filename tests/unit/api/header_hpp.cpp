// SPDX-License-Identifier: Apache-2.0
// quarry.hpp alone, as pedantic C++. Compiling is the test.
#include "quarry/quarry.hpp"

std::size_t quarry_header_hpp() {
  return quarry::UniqueBlock(16, 0, nullptr).bytes();
}
