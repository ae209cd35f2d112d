// SPDX-License-Identifier: Apache-2.0
// From the address of a block that a user holds to the block: what free(address) asks first. One
// for all devices, in shards with a lock each, so that threads rarely meet. Points, never owns.
//
// A result is a hint until the device's mutex is held: another thread may free the same block.
// Look again under the mutex; entries of a device change only under it.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/bytes.hpp"
#include "base/mutex.hpp"
#include "core/block.hpp"
#include "driver/driver_types.hpp"

namespace quarry {

class PointerMap {
 public:
  // The device of a live block, so that its mutex can be taken; -1 if there is no block.
  DeviceId find_device(Address address) const noexcept;
  Block* find(Address address) const noexcept;
  // `address` is in the map no more than once; block addresses are multiples of 512. May throw
  // std::bad_alloc, with nothing changed.
  void insert(Address address, DeviceId device, Block& block);
  void remove(Address address) noexcept;  // is in the map

 private:
  struct Entry {
    Address address = 0;  // 0: empty
    Block* block = nullptr;
    DeviceId device = 0;
  };
  // Open addressing with linear probing; deletion shifts entries back, so no tombstones pile up.
  struct alignas(64) Shard {
    mutable Mutex mutex{LockRank::kPointerMap};
    std::vector<Entry> entries QUARRY_GUARDED_BY(mutex);  // a power of two, at most half full
    std::size_t count QUARRY_GUARDED_BY(mutex) = 0;
  };
  static constexpr std::size_t kShards = 64;

  static std::uint64_t hash(Address address) noexcept {
    const std::uint64_t x = (address >> 9) * 0x9e3779b97f4a7c15ull;
    return x ^ (x >> 29);
  }
  Shard& get_shard(Address address) noexcept { return shards_[hash(address) >> 58]; }
  const Shard& get_shard(Address address) const noexcept { return shards_[hash(address) >> 58]; }
  static std::size_t find_place(const std::vector<Entry>& entries, Address address) noexcept;
  static void grow(std::vector<Entry>& entries);
  const Entry find_entry(Address address) const noexcept;

  std::array<Shard, kShards> shards_;
};

}  // namespace quarry
