// SPDX-License-Identifier: Apache-2.0
// The streams of one device that the allocator has met. A stream is (handle, and the thread where
// the handle means the per-thread default stream); handle 1 is handle 0. Owns the Stream records;
// guarded by the device's mutex. A record lives until the stream is retired, its work is done and
// nothing refers to it; the handle is free for a new stream from the retirement on.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/bytes.hpp"
#include "core/lane.hpp"
#include "driver/driver_types.hpp"

namespace quarry {

struct Fence;

enum class StreamLife : std::uint8_t {
  kLive,
  kRetired,  // the handle is dead or about to be; its last work may still run
  kDrained,  // retired, and its last work was seen done
};

// On cache lines of its own: threads use streams of their own.
struct alignas(64) Stream {
  StreamRef ref;
  std::uint64_t thread = 0;  // token of the thread, for a per-thread default stream; else 0
  std::uint32_t index = 0;   // small and dense, for indices by stream; reused
  std::uint64_t serial = 0;  // never reused
  // Changes under the device's mutex; magazines read it under their own locks (magazine.hpp).
  std::atomic<StreamLife> life{StreamLife::kLive};
  // The lock of the stream's own memory (lane.hpp); kNoLane until it is opened. Changes once.
  std::atomic<int> lane{kNoLane};
  // The threads that may have parked blocks of it, by ThreadMagazines::get_thread_bit. Set under
  // the thread's lock before it parks the first; never cleared.
  std::atomic<std::uint64_t> parking_threads{0};
  std::uint32_t references = 0;  // blocks owned, foreign uses; pools and captured streams
  // A *captured stream* is a stream as the captures into one private pool see it: it owns what
  // captures on `base` were given there. Null for that which is not of one stream (MemPool).
  bool is_captured = false;
  Stream* base = nullptr;
  Bytes cached_bytes = 0;         // of free blocks that it owns in the default pool
  Bytes grown_beside_parked = 0;  // segments obtained although blocks were parked (reclaim.cpp)
  // Fences by age: sealed ones from the oldest to the newest, and the one not sealed yet.
  // Each has a number: what is freed now comes before the fence that will have `fence_number`, and
  // fences up to `passed_number` have passed.
  std::uint64_t fence_number = 1;
  std::uint64_t passed_number = 0;
  bool has_uncovered_frees = false;  // memory was freed since the last fence was sealed
  Fence* oldest_fence = nullptr;
  Fence* newest_fence = nullptr;
  Fence* open_fence = nullptr;

  bool is_live() const noexcept {
    return life.load(std::memory_order_relaxed) == StreamLife::kLive;
  }
  bool is_per_thread() const noexcept { return ref.handle == StreamHandle::kPerThread; }
};

class StreamTable {
 public:
  explicit StreamTable(DeviceId device);

  // The owner of free memory that no stream can still be using.
  Stream& idle() const noexcept { return *idle_; }

  // The stream that `handle` means on the calling thread. Throws std::bad_alloc.
  Stream& find_or_add(StreamHandle handle);
  // Null if it is gone.
  Stream* find_serial(std::uint64_t serial) const noexcept;
  // Null if the allocator has not met it.
  Stream* find(StreamHandle handle) const noexcept;
  // A captured stream, with one reference for the caller; it holds one on `base`. Null: the owner
  // of captured memory of no stream.
  Stream& add_captured(Stream* base);
  // From now on the handle means another stream. The record stays.
  void forget_handle(Stream& stream) noexcept;
  // Drops the record if the stream is drained and nothing refers to it.
  void drop_if_unused(Stream& stream) noexcept;

  // Every record, the idle owner included; null where an index is free.
  const std::vector<std::unique_ptr<Stream>>& get_all() const noexcept { return streams_; }
  std::vector<Stream*> get_streams_of_thread(std::uint64_t thread) const;

 private:
  struct Key {
    std::uint64_t handle;
    std::uint64_t thread;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const noexcept {
      return (key.handle * 0x9e3779b97f4a7c15ull) ^ (key.thread * 0xc2b2ae3d27d4eb4full);
    }
  };
  static Key make_key(StreamHandle handle) noexcept;
  Stream& add(StreamRef ref, std::uint64_t thread);

  const DeviceId device_;
  std::vector<std::unique_ptr<Stream>> streams_;  // at Stream::index
  std::vector<std::uint32_t> free_indices_;
  std::unordered_map<Key, Stream*, KeyHash> by_key_;
  Stream* idle_ = nullptr;
  std::uint64_t last_serial_ = 0;
  // The answer to the last lookup: most programs keep asking for one stream.
  mutable Key last_key_{~0ull, ~0ull};
  mutable Stream* last_stream_ = nullptr;
};

}  // namespace quarry
