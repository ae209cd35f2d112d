// SPDX-License-Identifier: Apache-2.0
// The C API: memory that others use too, quarry_sharing.h.
#include "quarry/quarry_sharing.h"

#include "api/boundary.hpp"
#include "api/process.hpp"

using namespace quarry;

quarry_status quarry_enable_peer_access(int device, int peer) {
  return run_with_allocator(
      [&](auto& allocator) { return allocator.enable_peer_access(device, peer); });
}

quarry_status quarry_pin(const void* ptr, size_t bytes) {
  return run_with_allocator(
      [&](auto& allocator) { return allocator.pin(to_address(ptr), bytes); });
}

quarry_status quarry_unpin(const void* ptr, size_t bytes) {
  return run_with_allocator(
      [&](auto& allocator) { return allocator.unpin(to_address(ptr), bytes); });
}
