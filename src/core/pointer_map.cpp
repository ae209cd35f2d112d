// SPDX-License-Identifier: Apache-2.0
#include "core/pointer_map.hpp"

#include <utility>

namespace quarry {

// Where `address` is, or the empty place where it belongs. For writers.
std::size_t PointerMap::find_place(const Table& table, Address address) noexcept {
  std::size_t place = hash(address) & table.mask;
  for (;; place = (place + 1) & table.mask) {
    const std::uint64_t key = table.entries[place].key.load(std::memory_order_relaxed);
    if (key == 0 || (key & kAddressMask) == address) return place;
  }
}

// The order that lookups rely on: withdraw, overwrite, publish.
void PointerMap::write(Entry& entry, std::uint64_t key, Block* block) noexcept {
  entry.key.store(0, std::memory_order_relaxed);
  entry.block.store(block, std::memory_order_release);
  entry.key.store(key, std::memory_order_release);
}

void PointerMap::grow(Shard& shard) QUARRY_NO_THREAD_SAFETY_ANALYSIS {
  const Table* const old = shard.table.load(std::memory_order_relaxed);
  auto larger = std::make_unique<Table>(old == nullptr ? 16 : (old->mask + 1) * 2);
  for (std::size_t i = 0; old != nullptr && i <= old->mask; ++i) {
    const std::uint64_t key = old->entries[i].key.load(std::memory_order_relaxed);
    if (key == 0) continue;
    Entry& place = larger->entries[find_place(*larger, key & kAddressMask)];
    write(place, key, old->entries[i].block.load(std::memory_order_relaxed));
  }
  const Table* const published = larger.get();
  shard.tables.push_back(std::move(larger));
  shard.table.store(published, std::memory_order_release);
}

PointerMap::Found PointerMap::find_locked(Address address) const noexcept {
  const Shard& shard = get_shard(address);
  const SpinLockHold hold(shard.lock);
  const Table* const table = shard.table.load(std::memory_order_relaxed);
  return table == nullptr ? Found{} : find_in(*table, address);
}

void PointerMap::insert(Address address, DeviceId device, Block& block) {
  QUARRY_ASSERT(address != 0 && device >= 0 && device <= kDeviceMax);
  Shard& shard = shards_[hash(address) >> 58];
  const SpinLockHold hold(shard.lock);
  const Table* table = shard.table.load(std::memory_order_relaxed);
  if (table == nullptr || (shard.count + 1) * 2 > table->mask + 1) {
    grow(shard);
    table = shard.table.load(std::memory_order_relaxed);
  }
  Entry& entry = table->entries[find_place(*table, address)];
  QUARRY_CHECK_EQ(entry.key.load(std::memory_order_relaxed), std::uint64_t{0});
  write(entry, address | static_cast<std::uint64_t>(device), &block);
  ++shard.count;
}

void PointerMap::remove(Address address) noexcept {
  Shard& shard = shards_[hash(address) >> 58];
  const SpinLockHold hold(shard.lock);
  const Table& table = *shard.table.load(std::memory_order_relaxed);
  const auto get_key = [&table](std::size_t place) {
    return table.entries[place].key.load(std::memory_order_relaxed);
  };
  std::size_t hole = find_place(table, address);
  QUARRY_CHECK_EQ(get_key(hole) & kAddressMask, address);
  // Move back every later entry of the run whose home is not behind the hole.
  for (std::size_t i = (hole + 1) & table.mask; get_key(i) != 0; i = (i + 1) & table.mask) {
    const std::size_t home = hash(get_key(i) & kAddressMask) & table.mask;
    if (((i - home) & table.mask) < ((i - hole) & table.mask)) continue;
    const Entry& moved = table.entries[i];
    write(table.entries[hole], get_key(i), moved.block.load(std::memory_order_relaxed));
    hole = i;
  }
  table.entries[hole].key.store(0, std::memory_order_relaxed);
  --shard.count;
}

}  // namespace quarry
