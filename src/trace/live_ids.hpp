// SPDX-License-Identifier: Apache-2.0
// The allocations that live at a point of a trace: from the program's id to a slot, a small dense
// number under which users keep what they know of the allocation. A hash table with open
// addressing that allocates only when more live than ever before. Not thread-safe.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/bytes.hpp"
#include "base/check.hpp"

namespace quarry {

// Below LiveIds::slot_count(); used again after the allocation's end.
using TraceSlot = std::uint32_t;

class LiveIds {
 public:
  struct Entry {
    std::uint64_t id = 0;
    // For the owner; not interpreted here.
    Bytes bytes = 0;
    std::uint64_t stream = 0;
    TraceSlot slot = kNoSlot;
  };
  static constexpr TraceSlot kNoSlot = ~TraceSlot{0};

  LiveIds() : entries_(kStartCapacity) {}

  // Null if `id` does not live. Valid until the next insert or erase.
  const Entry* find(std::uint64_t id) const noexcept {
    for (std::size_t i = home(id);; i = next(i)) {
      const Entry& entry = entries_[i];
      if (entry.slot == kNoSlot) return nullptr;
      if (entry.id == id) return &entry;
    }
  }

  // Null if `id` lives already, else its new entry.
  const Entry* insert(std::uint64_t id, Bytes bytes, std::uint64_t stream) {
    if (size_ * 2 >= entries_.size()) grow();
    std::size_t i = home(id);
    for (; entries_[i].slot != kNoSlot; i = next(i)) {
      if (entries_[i].id == id) return nullptr;
    }
    entries_[i] = {id, bytes, stream, take_slot()};
    ++size_;
    return &entries_[i];
  }

  // `entry` is one that find() returned.
  void erase(const Entry* entry) {
    free_slots_.push_back(entry->slot);
    --size_;
    auto hole = static_cast<std::size_t>(entry - entries_.data());
    // Entries behind the hole that it keeps from their home move up.
    for (std::size_t i = next(hole); entries_[i].slot != kNoSlot; i = next(i)) {
      const std::size_t distance = (i - home(entries_[i].id)) & (entries_.size() - 1);
      if (distance < ((i - hole) & (entries_.size() - 1))) continue;
      entries_[hole] = entries_[i];
      hole = i;
    }
    entries_[hole].slot = kNoSlot;
  }

  std::size_t size() const noexcept { return size_; }
  // The most that lived at once.
  TraceSlot slot_count() const noexcept { return slot_count_; }

 private:
  static constexpr std::size_t kStartCapacity = 1024;  // a power of two, as all capacities

  std::size_t home(std::uint64_t id) const noexcept {
    // Fibonacci hashing: the high bits of the product spread ids in sequence evenly.
    return (id * 0x9E3779B97F4A7C15u) >> shift_;
  }
  std::size_t next(std::size_t i) const noexcept { return (i + 1) & (entries_.size() - 1); }

  TraceSlot take_slot() {
    if (free_slots_.empty()) {
      QUARRY_CHECK(slot_count_ != kNoSlot);
      return slot_count_++;
    }
    const TraceSlot slot = free_slots_.back();
    free_slots_.pop_back();
    return slot;
  }

  void grow() {
    std::vector<Entry> old(entries_.size() * 2);
    old.swap(entries_);
    --shift_;
    for (const Entry& entry : old) {
      if (entry.slot == kNoSlot) continue;
      std::size_t i = home(entry.id);
      while (entries_[i].slot != kNoSlot)
        i = next(i);
      entries_[i] = entry;
    }
  }

  std::vector<Entry> entries_;  // at most half full
  std::vector<TraceSlot> free_slots_;
  std::size_t size_ = 0;
  TraceSlot slot_count_ = 0;
  int shift_ = 64 - std::countr_zero(kStartCapacity);
};

}  // namespace quarry
