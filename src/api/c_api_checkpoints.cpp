// SPDX-License-Identifier: Apache-2.0
// The C API: checkpoints of private pools. A handle is the layout itself, a plain value; what it
// names may be gone, and the core says so.
#include <string>
#include <utility>

#include "api/pool_boundary.hpp"

using namespace quarry;

Status quarry::save_pool(Allocator& allocator, PoolName name,
                         quarry_pool_checkpoint** checkpoint) {
  auto saved = allocator.save_pool(name.device, name.id);
  if (!saved.is_ok()) return std::move(saved).status();
  *checkpoint = new quarry_pool_checkpoint{std::move(saved).value()};
  return {};
}

Status quarry::restore_pool(Allocator& allocator, const quarry_pool_checkpoint& checkpoint,
                            StaleFrees frees, quarry_pool_restore_visitor visitor, void* user) {
  auto restored = allocator.restore_pool(checkpoint.saved, frees);
  if (!restored.is_ok()) return std::move(restored).status();
  if (visitor == nullptr) return {};
  const RestoredPool& blocks = restored.value();
  for (const Address address : blocks.stale)
    visitor(to_pointer(address), QUARRY_POOL_BLOCK_STALE, user);
  // Both in order of segments and addresses.
  auto kept = blocks.kept.begin();
  for (const Address address : blocks.live) {
    const bool is_kept = kept != blocks.kept.end() && *kept == address;
    if (is_kept) ++kept;
    visitor(to_pointer(address), is_kept ? QUARRY_POOL_BLOCK_KEPT : QUARRY_POOL_BLOCK_REVIVED,
            user);
  }
  return {};
}

quarry_status quarry_pool_save(quarry_pool pool, quarry_pool_checkpoint** checkpoint) {
  if (checkpoint == nullptr) {
    return run([] { return require(nullptr, "checkpoint"); });
  }
  *checkpoint = nullptr;
  return run_with_pool(pool, [checkpoint](Allocator& allocator, PoolName name) {
    return save_pool(allocator, name, checkpoint);
  });
}

quarry_status quarry_pool_restore(const quarry_pool_checkpoint* checkpoint, uint32_t flags,
                                  quarry_pool_restore_visitor visitor, void* user) {
  return run_with_pools([&](Allocator& allocator) -> Status {
    if (Status status = require(checkpoint, "checkpoint"); !status.is_ok()) return status;
    if ((flags & ~QUARRY_POOL_NO_STALE_FREES) != 0) {
      return Status(
          StatusCode::kInvalidArgument,
          "flags is " + std::to_string(flags) + "; allowed: 0 or QUARRY_POOL_NO_STALE_FREES");
    }
    return restore_pool(allocator, *checkpoint,
                        flags != 0 ? StaleFrees::kNone : StaleFrees::kToCome, visitor, user);
  });
}

quarry_status quarry_pool_forget_stale(void* ptr) {
  return run_with_pools(
      [ptr](Allocator& allocator) { return allocator.forget_stale(to_address(ptr)); });
}

void quarry_pool_checkpoint_destroy(quarry_pool_checkpoint* checkpoint) {
  delete checkpoint;
}
