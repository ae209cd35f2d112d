// SPDX-License-Identifier: Apache-2.0
// Private pools for C++17 and later, inline over the C interface of quarry_pool.h, which states
// the rules. A part of quarry.hpp, which includes it; docs/pools.md is the guide.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "quarry/quarry.hpp"
#include "quarry/quarry_pool.h"

namespace quarry {
#if defined(QUARRY_PER_THREAD_DEFAULT_STREAM)
inline namespace cpp_per_thread {
#else
inline namespace cpp {
#endif

// One hold on a private pool. Empty if moved from, or made so.
class Pool {
 public:
  // See quarry_pool_options.
  struct Options {
    bool use_on_oom = false;
    bool no_split = false;
    bool no_recycle = false;
    std::uint64_t limit_bytes = QUARRY_UNLIMITED;
    // Where segments come from and go to, instead of the driver: both, or neither. Threads may
    // call them at once. They live until the last segment has gone back, which may be after the
    // last Pool.
    std::function<void*(std::size_t bytes, int device, quarry_stream stream)> allocate;
    std::function<void(void* ptr, std::size_t bytes, int device, quarry_stream stream)> free;
    std::function<void()> on_unused;
  };

  Pool() noexcept = default;
  // A new pool. Throws Error, here and below.
  explicit Pool(int device) : Pool(device, Options()) {}
  Pool(int device, Options options) {
    auto functions = std::make_unique<Options>(std::move(options));
    quarry_pool_options given = {};
    given.struct_size = sizeof(given);
    given.flags = (functions->use_on_oom ? QUARRY_POOL_USE_ON_OOM : 0u) |
                  (functions->no_split ? QUARRY_POOL_NO_SPLIT : 0u) |
                  (functions->no_recycle ? QUARRY_POOL_NO_RECYCLE : 0u);
    given.limit_bytes = functions->limit_bytes;
    given.allocate = functions->allocate ? &call_allocate : nullptr;
    given.free = functions->free ? &call_free : nullptr;
    given.unused = &call_unused;
    given.user = functions.get();
    check(quarry_pool_create(device, &given, &handle_));
    static_cast<void>(functions.release());  // call_unused deletes them
  }
  // One more hold on a pool that there is.
  static Pool retain(quarry_pool handle) {
    check(quarry_pool_retain(handle));
    Pool held;
    held.handle_ = handle;
    return held;
  }
  ~Pool() { reset(); }
  Pool(Pool&& other) noexcept : handle_(std::exchange(other.handle_, QUARRY_POOL_DEFAULT)) {}
  Pool& operator=(Pool&& other) noexcept {
    if (this == &other) return *this;
    reset();
    handle_ = std::exchange(other.handle_, QUARRY_POOL_DEFAULT);
    return *this;
  }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  quarry_pool get() const noexcept { return handle_; }
  explicit operator bool() const noexcept { return handle_ != QUARRY_POOL_DEFAULT; }

  // From this pool, whatever is begun. Throws OutOfMemory or Error.
  UniqueBlock allocate(std::size_t bytes, quarry_stream stream,
                       std::size_t alignment = 512) const {
    void* data = nullptr;
    check(quarry_pool_malloc_aligned(handle_, &data, bytes, alignment, stream));
    return UniqueBlock::adopt(data, bytes);
  }
  void trim() const { check(quarry_pool_trim(handle_)); }
  void set_limit(std::uint64_t bytes) const { check(quarry_pool_set_limit(handle_, bytes)); }
  quarry_pool_stats get_stats() const {
    quarry_pool_stats stats = {};
    stats.struct_size = sizeof(stats);
    check(quarry_pool_get_stats(handle_, &stats));
    return stats;
  }

  // Releases now. Empty afterwards.
  void reset() noexcept {
    if (*this) static_cast<void>(quarry_pool_release(std::exchange(handle_, QUARRY_POOL_DEFAULT)));
  }

 private:
  static void* call_allocate(std::size_t bytes, int device, quarry_stream stream, void* user) {
    return static_cast<Options*>(user)->allocate(bytes, device, stream);
  }
  static void call_free(void* ptr, std::size_t bytes, int device, quarry_stream stream,
                        void* user) {
    static_cast<Options*>(user)->free(ptr, bytes, device, stream);
  }
  static void call_unused(void* user) {
    const std::unique_ptr<Options> functions(static_cast<Options*>(user));
    if (functions->on_unused) functions->on_unused();
  }

  quarry_pool handle_ = QUARRY_POOL_DEFAULT;
};

// The layout of a pool, to which it can be brought back: see quarry_pool_save. Outlives the pool.
class Checkpoint {
 public:
  // What a restore did. A UniqueBlock that is stale frees itself as ever, which does nothing.
  struct Restored {
    std::vector<void*> stale;
    std::vector<void*> kept;
    std::vector<UniqueBlock> revived;  // the caller's now
  };

  // Throws Error, here and below.
  explicit Checkpoint(const Pool& pool) {
    quarry_pool_checkpoint* saved = nullptr;
    check(quarry_pool_save(pool.get(), &saved));
    checkpoint_.reset(saved);
  }
  // flags: 0 or QUARRY_POOL_NO_STALE_FREES.
  Restored restore(std::uint32_t flags = 0) const {
    std::pair<Restored, std::exception_ptr> seen;
    check(quarry_pool_restore(checkpoint_.get(), flags, &visit, &seen));
    if (seen.second != nullptr) std::rethrow_exception(seen.second);
    return std::move(seen.first);
  }
  const quarry_pool_checkpoint* get() const noexcept { return checkpoint_.get(); }

 private:
  struct Destroy {
    void operator()(quarry_pool_checkpoint* checkpoint) const noexcept {
      quarry_pool_checkpoint_destroy(checkpoint);
    }
  };
  static void visit(void* ptr, quarry_pool_restored what, void* user) {
    auto& [blocks, failure] = *static_cast<std::pair<Restored, std::exception_ptr>*>(user);
    try {
      if (what == QUARRY_POOL_BLOCK_STALE) blocks.stale.push_back(ptr);
      if (what == QUARRY_POOL_BLOCK_KEPT) blocks.kept.push_back(ptr);
      if (what != QUARRY_POOL_BLOCK_REVIVED) return;
      auto block = UniqueBlock::adopt(ptr, get_block_info(ptr).requested_bytes);
      blocks.revived.push_back(std::move(block));
    } catch (...) {
      failure = std::current_exception();
    }
  }

  std::unique_ptr<quarry_pool_checkpoint, Destroy> checkpoint_;
};

// From here to the end of the scope, also by an exception, requests are served from the pool: see
// quarry_pool_begin_thread and its like. The pool must be held as long. A thread's scope ends on
// the thread that made it.
class [[nodiscard]] PoolScope {
 public:
  static PoolScope for_thread(const Pool& pool) {
    return PoolScope(quarry_pool_begin_thread(pool.get()), pool.get());
  }
  static PoolScope for_stream(const Pool& pool, quarry_stream stream) {
    return PoolScope(quarry_pool_begin_stream(pool.get(), stream), pool.get());
  }
  static PoolScope for_capture(const Pool& pool, quarry_stream stream) {
    return PoolScope(quarry_pool_begin_capture(pool.get(), stream), pool.get());
  }
  static PoolScope for_filter(const Pool& pool, std::function<bool(quarry_stream)> filter) {
    auto kept = std::make_unique<Filter>(std::move(filter));
    const quarry_status status = quarry_pool_begin_filter(pool.get(), &call_filter, kept.get());
    return PoolScope(status, pool.get(), std::move(kept));
  }
  ~PoolScope() { static_cast<void>(quarry_pool_end(pool_)); }
  PoolScope(const PoolScope&) = delete;
  PoolScope& operator=(const PoolScope&) = delete;

 private:
  using Filter = std::function<bool(quarry_stream)>;

  PoolScope(quarry_status begun, quarry_pool pool, std::unique_ptr<Filter> filter = nullptr)
      : pool_(pool), filter_(std::move(filter)) {
    check(begun);
  }
  static int call_filter(quarry_stream stream, void* user) {
    return (*static_cast<Filter*>(user))(stream) ? 1 : 0;
  }

  quarry_pool pool_;
  std::unique_ptr<Filter> filter_;
};

}  // namespace cpp or cpp_per_thread
}  // namespace quarry
