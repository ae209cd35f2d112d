// SPDX-License-Identifier: Apache-2.0
// quarry_sharing.hpp alone, as pedantic C++. Compiling is the test.
#include "quarry/quarry_sharing.hpp"

bool quarry_header_sharing_hpp(const quarry::UniqueBlock& block) {
  quarry::enable_peer_access(1, 0);
  const quarry::Pin pin(block);
  return static_cast<bool>(pin);
}
