// SPDX-License-Identifier: Apache-2.0
// quarry_pool.hpp alone, as pedantic C++. Compiling is the test.
#include "quarry/quarry_pool.hpp"

std::size_t quarry_header_pool_hpp(const quarry::Pool& pool) {
  const auto scope = quarry::PoolScope::for_thread(pool);
  const quarry::Checkpoint checkpoint(pool);
  if (!checkpoint.restore().stale.empty()) return 0;
  return pool.allocate(16, nullptr).bytes();
}
