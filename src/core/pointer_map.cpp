// SPDX-License-Identifier: Apache-2.0
#include "core/pointer_map.hpp"

#include <new>
#include <utility>

namespace quarry {

PointerMap::Table* PointerMap::Table::make(std::size_t capacity) {
  static_assert(alignof(Table) % alignof(Entry) == 0);
  void* const memory =
      ::operator new(sizeof(Table) + capacity * sizeof(Entry), std::align_val_t(alignof(Table)));
  Table* const table = new (memory) Table{capacity - 1};
  for (std::size_t i = 0; i < capacity; ++i)
    new (&table->at(i)) Entry;
  return table;
}

void PointerMap::Table::Delete::operator()(Table* table) const noexcept {
  ::operator delete(table, std::align_val_t(alignof(Table)));
}

// Where `address` is, or the empty place where it belongs. For writers.
std::size_t PointerMap::find_place(const Table& table, Address address) noexcept {
  std::size_t place = hash(address) & table.mask;
  for (;; place = (place + 1) & table.mask) {
    const std::uint64_t key = table.at(place).key.load(std::memory_order_relaxed);
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
  auto larger = std::unique_ptr<Table, Table::Delete>(
      Table::make(old == nullptr ? 16 : (old->mask + 1) * 2));
  for (std::size_t i = 0; old != nullptr && i <= old->mask; ++i) {
    const std::uint64_t key = old->at(i).key.load(std::memory_order_relaxed);
    if (key == 0) continue;
    Entry& place = larger->at(find_place(*larger, key & kAddressMask));
    write(place, key, old->at(i).block.load(std::memory_order_relaxed));
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
  Shard& shard = get_shard(address);
  const SpinLockHold hold(shard.lock);
  const Table* table = shard.table.load(std::memory_order_relaxed);
  if (table == nullptr || (shard.count + 1) * 2 > table->mask + 1) {
    grow(shard);
    table = shard.table.load(std::memory_order_relaxed);
  }
  Entry& entry = table->at(find_place(*table, address));
  QUARRY_CHECK_EQ(entry.key.load(std::memory_order_relaxed), std::uint64_t{0});
  write(entry, address | static_cast<std::uint64_t>(device), &block);
  ++shard.count;
}

void PointerMap::remove(Address address) noexcept {
  Shard& shard = get_shard(address);
  const SpinLockHold hold(shard.lock);
  const Table& table = *shard.table.load(std::memory_order_relaxed);
  const auto get_key = [&table](std::size_t place) {
    return table.at(place).key.load(std::memory_order_relaxed);
  };
  std::size_t hole = find_place(table, address);
  QUARRY_CHECK_EQ(get_key(hole) & kAddressMask, address);
  // Move back every later entry of the run whose home is not behind the hole.
  for (std::size_t i = (hole + 1) & table.mask; get_key(i) != 0; i = (i + 1) & table.mask) {
    const std::size_t home = hash(get_key(i) & kAddressMask) & table.mask;
    if (((i - home) & table.mask) < ((i - hole) & table.mask)) continue;
    const Entry& moved = table.at(i);
    write(table.at(hole), get_key(i), moved.block.load(std::memory_order_relaxed));
    hole = i;
  }
  table.at(hole).key.store(0, std::memory_order_relaxed);
  --shard.count;
}

}  // namespace quarry
