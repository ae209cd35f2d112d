// SPDX-License-Identifier: Apache-2.0
#include "core/pointer_map.hpp"

#include <utility>

namespace quarry {

// Where `address` is, or the empty place where it belongs.
std::size_t PointerMap::find_place(const std::vector<Entry>& entries, Address address) noexcept {
  const std::size_t mask = entries.size() - 1;
  std::size_t place = hash(address) & mask;
  while (entries[place].address != 0 && entries[place].address != address) {
    place = (place + 1) & mask;
  }
  return place;
}

void PointerMap::grow(std::vector<Entry>& entries) {
  std::vector<Entry> larger(entries.empty() ? 16 : entries.size() * 2);
  for (const Entry& entry : entries) {
    if (entry.address != 0) larger[find_place(larger, entry.address)] = entry;
  }
  entries = std::move(larger);
}

const PointerMap::Entry PointerMap::find_entry(Address address) const noexcept {
  const Shard& shard = get_shard(address);
  MutexLock lock(shard.mutex);
  if (shard.entries.empty()) return {};
  return shard.entries[find_place(shard.entries, address)];
}

DeviceId PointerMap::find_device(Address address) const noexcept {
  const Entry entry = find_entry(address);
  return entry.block != nullptr ? entry.device : -1;
}

Block* PointerMap::find(Address address) const noexcept {
  return find_entry(address).block;
}

void PointerMap::insert(Address address, DeviceId device, Block& block) {
  QUARRY_ASSERT(address != 0);
  Shard& shard = get_shard(address);
  MutexLock lock(shard.mutex);
  if ((shard.count + 1) * 2 > shard.entries.size()) grow(shard.entries);
  Entry& entry = shard.entries[find_place(shard.entries, address)];
  QUARRY_CHECK_EQ(entry.address, Address{0});
  entry = {address, &block, device};
  ++shard.count;
}

void PointerMap::remove(Address address) noexcept {
  Shard& shard = get_shard(address);
  MutexLock lock(shard.mutex);
  std::vector<Entry>& entries = shard.entries;
  const std::size_t mask = entries.size() - 1;
  std::size_t hole = find_place(entries, address);
  QUARRY_CHECK_EQ(entries[hole].address, address);
  // Move back every later entry of the run that may not stand behind the hole.
  for (std::size_t i = (hole + 1) & mask; entries[i].address != 0; i = (i + 1) & mask) {
    const std::size_t home = hash(entries[i].address) & mask;
    const bool is_home_between = ((i - home) & mask) < ((i - hole) & mask);
    if (is_home_between) continue;
    entries[hole] = entries[i];
    hole = i;
  }
  entries[hole] = Entry{};
  --shard.count;
}

}  // namespace quarry
