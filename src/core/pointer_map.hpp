// SPDX-License-Identifier: Apache-2.0
// From the address of a block that a user holds to the block: what free(address) asks first. One
// for all devices. Lookups take no lock and write nothing; changes take a shard's lock. The shard
// is that of the 2 MiB around the address, and there are many: blocks of one segment share shards,
// blocks of different threads' segments hardly ever do, so that threads do not pass cache lines to
// and fro. Points, never owns.
//
// How a lookup without a lock can be right: an entry's block is written before its address is
// published, and its address is withdrawn before its block is overwritten; a reader that sees the
// same address before and after it read the block has read a pair. Deletions move entries, so a
// reader may miss one on the move: a miss is looked up once more under the lock, where it is rare
// (the caller's pointer is foreign or stale) and true. A table that was outgrown stays readable
// until the end; the sum of all such is less than the live one.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/bytes.hpp"
#include "base/mutex.hpp"
#include "core/block.hpp"
#include "driver/driver_types.hpp"

namespace quarry {

class PointerMap {
 public:
  static constexpr DeviceId kDeviceMax = 511;

  struct Found {
    Block* block = nullptr;  // null: no live block begins at the address
    DeviceId device = 0;
  };
  // Valid while the caller, or whoever has the block, does not free it.
  Found find(Address address) const noexcept;
  // The same, but may also miss a block that another thread's change has just moved in the map.
  Found find_quickly(Address address) const noexcept;

  // `address`, a multiple of 512, is in the map no more than once. May throw std::bad_alloc, with
  // nothing changed.
  void insert(Address address, DeviceId device, Block& block);
  void remove(Address address) noexcept;  // is in the map

 private:
  struct Entry {
    std::atomic<std::uint64_t> key{0};  // address | device; 0: empty
    std::atomic<Block*> block{nullptr};
  };
  // Entries, and how many: in one word, so that a lookup finds both with one load. The low bits
  // are what is left of a hash's 64 for a place, shifted off. At most half full. Points, does not
  // own.
  class Table {
   public:
    Table() = default;
    Table(Entry* entries, unsigned log2_capacity) noexcept
        : word_(reinterpret_cast<std::uintptr_t>(entries) | (64 - log2_capacity)) {}
    bool is_null() const noexcept { return word_ == 0; }
    std::size_t mask() const noexcept { return ~std::size_t{0} >> shift(); }
    unsigned log2_capacity() const noexcept { return 64 - shift(); }
    // Where an address belongs.
    std::size_t get_home(Address address) const noexcept { return hash(address) >> shift(); }
    Entry& at(std::size_t place) const noexcept {
      return reinterpret_cast<Entry*>(word_ & ~(kEntriesAlignment - 1))[place];
    }

   private:
    unsigned shift() const noexcept { return word_ & (kEntriesAlignment - 1); }

    std::uintptr_t word_ = 0;
  };
  static constexpr std::uintptr_t kEntriesAlignment = 64;
  struct alignas(kEntriesAlignment) EntryLine {
    Entry entries[kEntriesAlignment / sizeof(Entry)];
  };
  // Open addressing with linear probing; deletion shifts entries back, so no tombstones pile up.
  struct alignas(64) Shard {
    std::atomic<Table> table{};
    mutable SpinLock lock;
    // Of all tables; the last is in use.
    std::vector<std::unique_ptr<EntryLine[]>> memory QUARRY_GUARDED_BY(lock);
    std::size_t count QUARRY_GUARDED_BY(lock) = 0;
  };
  static constexpr int kShardBits = 11;
  static constexpr int kRegionBits = 21;  // addresses that share a shard
  static constexpr Address kAddressMask = ~Address{511};

  // The high bits are the good ones. Those of the product alone would put blocks of some sizes (72
  // KiB) beside each other.
  static std::uint64_t hash(Address address) noexcept {
    const std::uint64_t x = address * 0x9e3779b97f4a7c15ull;
    return x ^ (x << 29);
  }
  Shard& get_shard(Address address) const noexcept {
    return shards_[(address >> kRegionBits) * 0x9e3779b97f4a7c15ull >> (64 - kShardBits)];
  }
  static Found find_in(Table table, Address address) noexcept;
  static std::size_t find_place(Table table, Address address) noexcept;
  static void write(Entry& entry, std::uint64_t key, Block* block) noexcept;
  static void grow(Shard& shard);
  Found find_locked(Address address) const noexcept;

  const std::unique_ptr<Shard[]> shards_ = std::make_unique<Shard[]>(1 << kShardBits);
};

// Inline: on the path of every free.
inline PointerMap::Found PointerMap::find_in(Table table, Address address) noexcept {
  for (std::size_t place = table.get_home(address);; place = (place + 1) & table.mask()) {
    const Entry& entry = table.at(place);
    const std::uint64_t key = entry.key.load(std::memory_order_acquire);
    if (key == 0) return {};
    if ((key & kAddressMask) != address) continue;
    Block* const block = entry.block.load(std::memory_order_acquire);
    if (entry.key.load(std::memory_order_relaxed) != key) return {};
    return {block, static_cast<DeviceId>(key & ~kAddressMask)};
  }
}

// Of 0 and of an address that is no multiple of 512 there is no entry to be found.
inline PointerMap::Found PointerMap::find_quickly(Address address) const noexcept {
  const Table table = get_shard(address).table.load(std::memory_order_acquire);
  if (table.is_null()) [[unlikely]]
    return {};
  return find_in(table, address);
}

inline PointerMap::Found PointerMap::find(Address address) const noexcept {
  if (address == 0 || (address & ~kAddressMask) != 0) return {};
  const Found found = find_quickly(address);
  return found.block != nullptr ? found : find_locked(address);
}

}  // namespace quarry
