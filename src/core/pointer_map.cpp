// SPDX-License-Identifier: Apache-2.0
#include "core/pointer_map.hpp"

#include <algorithm>
#include <utility>

namespace quarry {

std::atomic<PointerMap::Table>& PointerMap::make_region(Address address) {
  const SpinLockHold hold(memory_lock_);
  if (std::atomic<Table>* const region = find_region(address)) return *region;
  spans_.reserve(spans_.size() + 1);
  auto made = std::make_unique<Span>();
  made->number = address >> kSpanBits;
  std::atomic<Span*>& root = roots_[made->number % kRoots];
  made->next = root.load(std::memory_order_relaxed);
  root.store(made.get(), std::memory_order_release);
  spans_.push_back(std::move(made));
  return *find_region(address);
}

// False if all entries that it may be in are taken.
bool PointerMap::try_put(Table table, Address address, std::uint64_t entry) {
  const std::size_t home = table.get_home(address);
  for (std::size_t i = 0; i < kReach; ++i) {
    Entry& place = table.at((home + i) & table.mask());
    const std::uint64_t there = place.load(std::memory_order_relaxed);
    QUARRY_CHECK((there & kKeyMask) != (entry & kKeyMask));
    if (there != 0) continue;
    place.store(entry, std::memory_order_release);
    return true;
  }
  return false;
}

// The table that is twice as large, or more if it takes that.
PointerMap::Table PointerMap::grow(std::atomic<Table>& region) {
  const Table old = region.load(std::memory_order_relaxed);
  unsigned log2_capacity = old.is_null() ? kLog2Least : old.log2_capacity() + 1;
  while (true) {
    QUARRY_CHECK_COMPARE(log2_capacity, <=, Table::kLog2Most);
    auto memory =
        std::make_unique<EntryLine[]>((sizeof(Entry) << log2_capacity) / sizeof(EntryLine));
    const Table larger(memory[0].entries, log2_capacity);
    bool is_room = true;
    for (std::size_t i = 0; !old.is_null() && i <= old.mask() && is_room; ++i) {
      const std::uint64_t entry = old.at(i).load(std::memory_order_relaxed);
      if (entry != 0) is_room = try_put(larger, (entry & (kIsEntry - 1)) << 9, entry);
    }
    if (is_room) {
      const SpinLockHold hold(memory_lock_);
      memory_.push_back(std::move(memory));
      region.store(larger, std::memory_order_release);
      return larger;
    }
    ++log2_capacity;
  }
}

// Counts a part of a large table only, which is as good: homes are spread evenly.
bool PointerMap::is_full(Table table, std::size_t home) noexcept {
  if (table.log2_capacity() == Table::kLog2Most) return false;
  constexpr std::size_t kCountedMost = 64;
  const std::size_t counted = std::min(table.mask() + 1, kCountedMost);
  const std::size_t first = home / counted * counted;
  std::size_t used = 0;
  for (std::size_t i = 0; i < counted; ++i)
    used += table.at(first + i).load(std::memory_order_relaxed) != 0 ? 1 : 0;
  return used * 2 >= counted;
}

void PointerMap::insert_elsewhere(Address address, std::uint64_t entry) {
  std::atomic<Table>* const found = find_region(address);
  std::atomic<Table>& region = found != nullptr ? *found : make_region(address);
  Table table = region.load(std::memory_order_acquire);
  if (table.is_null() || is_full(table, table.get_home(address))) table = grow(region);
  while (!try_put(table, address, entry))
    table = grow(region);
}

void PointerMap::insert_shared(Address address, std::uint64_t entry) {
  const SpinLockHold hold(get_lock(address));
  insert_alone(address, entry);
}

void PointerMap::remove_displaced(Table table, Address address) noexcept {
  const std::uint64_t key = make_key(address);
  std::size_t place = table.get_home(address);
  for (std::size_t tries = 1; (table.at(place).load(std::memory_order_relaxed) & kKeyMask) != key;
       ++tries) {
    QUARRY_CHECK_COMPARE(tries, <, kReach);
    place = (place + 1) & table.mask();
  }
  table.at(place).store(0, std::memory_order_relaxed);
}

void PointerMap::remove_shared(Address address) noexcept {
  const SpinLockHold hold(get_lock(address));
  remove_alone(address);
}

}  // namespace quarry
