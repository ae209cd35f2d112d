// SPDX-License-Identifier: Apache-2.0
#include "core/pointer_map.hpp"

#include <utility>

namespace quarry {

// Where `address` is, or the empty place where it belongs. For writers.
std::size_t PointerMap::find_place(Table table, Address address) noexcept {
  const std::size_t mask = table.mask();
  for (std::size_t place = table.get_home(address);; place = (place + 1) & mask) {
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
  constexpr unsigned kLeastLog2 = 4;
  const Table old = shard.table.load(std::memory_order_relaxed);
  const unsigned log2_capacity = old.is_null() ? kLeastLog2 : old.log2_capacity() + 1;
  auto memory =
      std::make_unique<EntryLine[]>((sizeof(Entry) << log2_capacity) / sizeof(EntryLine));
  const Table larger(memory[0].entries, log2_capacity);
  for (std::size_t i = 0; !old.is_null() && i <= old.mask(); ++i) {
    const std::uint64_t key = old.at(i).key.load(std::memory_order_relaxed);
    if (key == 0) continue;
    write(larger.at(find_place(larger, key & kAddressMask)), key,
          old.at(i).block.load(std::memory_order_relaxed));
  }
  shard.memory.push_back(std::move(memory));
  shard.table.store(larger, std::memory_order_release);
}

PointerMap::Found PointerMap::find_locked(Address address) const noexcept {
  const Shard& shard = get_shard(address);
  const SpinLockHold hold(shard.lock);
  const Table table = shard.table.load(std::memory_order_relaxed);
  return table.is_null() ? Found{} : find_in(table, address);
}

void PointerMap::insert(Address address, DeviceId device, Block& block) {
  QUARRY_ASSERT(address != 0 && device >= 0 && device <= kDeviceMax);
  Shard& shard = get_shard(address);
  const SpinLockHold hold(shard.lock);
  Table table = shard.table.load(std::memory_order_relaxed);
  if (table.is_null() || (shard.count + 1) * 2 > table.mask() + 1) {
    grow(shard);
    table = shard.table.load(std::memory_order_relaxed);
  }
  Entry& entry = table.at(find_place(table, address));
  QUARRY_CHECK_EQ(entry.key.load(std::memory_order_relaxed), std::uint64_t{0});
  write(entry, address | static_cast<std::uint64_t>(device), &block);
  ++shard.count;
}

void PointerMap::remove(Address address) noexcept {
  Shard& shard = get_shard(address);
  const SpinLockHold hold(shard.lock);
  const Table table = shard.table.load(std::memory_order_relaxed);
  const std::size_t mask = table.mask();
  const auto get_key = [&table](std::size_t place) {
    return table.at(place).key.load(std::memory_order_relaxed);
  };
  std::size_t hole = find_place(table, address);
  QUARRY_CHECK_EQ(get_key(hole) & kAddressMask, address);
  // Move back every later entry of the run whose home is not behind the hole.
  for (std::size_t i = (hole + 1) & mask; get_key(i) != 0; i = (i + 1) & mask) {
    const std::size_t home = table.get_home(get_key(i) & kAddressMask);
    if (((i - home) & mask) < ((i - hole) & mask)) continue;
    const Entry& moved = table.at(i);
    write(table.at(hole), get_key(i), moved.block.load(std::memory_order_relaxed));
    hole = i;
  }
  table.at(hole).key.store(0, std::memory_order_relaxed);
  --shard.count;
}

}  // namespace quarry
