// SPDX-License-Identifier: Apache-2.0
// From the address of a block that a user holds to the block: what free(address) asks first. One
// for all devices. Lookups take no lock and write nothing. Points, never owns.
//
// Address space is divided into regions of 2 MiB, each with a small table of its own, found
// through two levels of pointers. An entry is one word that holds all a lookup wants, and it never
// moves: a lookup needs no second look. What begins in a region is inserted and removed by whoever
// guards the segment there, so that threads with segments of their own share neither lock nor
// cache line; only where segments may meet within a region a lock is taken (RegionUse). A table
// that was outgrown stays readable until the end; the sum of all such is less than those in use.
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
  static constexpr Bytes kRegion = 2_MiB;

  struct Found {
    Block* block = nullptr;  // null: no live block begins at the address
    DeviceId device = 0;
  };
  // Valid while the caller, or whoever has the block, does not free it.
  Found find(Address address) const noexcept;

  // Who else may insert or remove in the regions of the address's segment at the same time.
  enum class RegionUse {
    kAlone,   // nobody: the segment consists of whole regions, and the caller guards it
    kShared,  // whoever guards the segment beside it
  };
  static constexpr RegionUse get_region_use(Address segment, Bytes size) noexcept {
    return (segment | size) % kRegion == 0 ? RegionUse::kAlone : RegionUse::kShared;
  }

  // `address`, a multiple of 512, is in the map no more than once. May throw std::bad_alloc, with
  // nothing changed.
  void insert(Address address, DeviceId device, Block& block, RegionUse use = RegionUse::kShared);
  void remove(Address address, RegionUse use = RegionUse::kShared) noexcept;  // is in the map

 private:
  // From the high bits: the block's address without its 6 low bits, which are 0; the device; a bit
  // that is set; the number of the block's first unit of 512 bytes within its region. 0: empty.
  using Entry = std::atomic<std::uint64_t>;
  static constexpr int kUnitBits = 12;
  static constexpr std::uint64_t kIsEntry = 1 << kUnitBits;
  static constexpr std::uint64_t kKeyMask = 2 * kIsEntry - 1;
  static constexpr int kDeviceShift = kUnitBits + 1;
  static constexpr int kBlockShift = kDeviceShift + 9;
  static constexpr int kBlockLowBits = 6;
  static_assert(alignof(Block) >= 1 << kBlockLowBits);
  static constexpr int kHostAddressBits = 64 - kBlockShift + kBlockLowBits;
  static_assert(kHostAddressBits >= 48, "Linux gives more only to who asks for it");

  // A power of two of entries, and which: in one word, so that a lookup finds both with one load.
  // A block is in one of a few entries from its home on. A table that is half full around a home
  // grows when a block finds that home taken. In the largest every unit has a home of its own.
  class Table {
   public:
    static constexpr unsigned kLog2Most = kUnitBits;

    Table() = default;
    Table(Entry* entries, unsigned log2_capacity) noexcept
        : word_(reinterpret_cast<std::uintptr_t>(entries) | (32 - log2_capacity)) {}
    bool is_null() const noexcept { return word_ == 0; }
    unsigned log2_capacity() const noexcept { return 32 - shift(); }
    std::size_t mask() const noexcept { return ~0u >> shift(); }
    std::size_t get_home(Address address) const noexcept {
      // Multiplies within 12 bits, which are the high ones of 32; so nearby units lie far apart.
      constexpr std::uint32_t kGoldenPart = 2531u << (32 - kUnitBits);
      return static_cast<std::uint32_t>(address >> 9) * kGoldenPart >> shift();
    }
    Entry& at(std::size_t place) const noexcept {
      return reinterpret_cast<Entry*>(word_ & ~(kAlignment - 1))[place];
    }

   private:
    unsigned shift() const noexcept { return word_ & (kAlignment - 1); }

    std::uintptr_t word_ = 0;
  };
  static constexpr std::uintptr_t kAlignment = 64;
  struct alignas(kAlignment) EntryLine {
    Entry entries[kAlignment / sizeof(Entry)];
  };
  static constexpr std::size_t kReach = 8;  // entries in which a block may be
  static constexpr unsigned kLog2Least = 3;

  // The tables of 8 GiB.
  static constexpr int kRegionBits = 21;
  static constexpr int kSpanBits = 33;
  struct Span {
    std::uint64_t number = 0;  // address >> kSpanBits
    Span* next = nullptr;      // another at the same root
    std::atomic<Table> tables[1 << (kSpanBits - kRegionBits)];
  };
  static constexpr std::size_t kRoots = 256;

  static std::uint64_t make_key(Address address) noexcept {
    return (address >> 9 & (kIsEntry - 1)) | kIsEntry;
  }
  std::atomic<Table>* find_region(Address address) const noexcept;
  std::atomic<Table>& make_region(Address address);
  Table grow(std::atomic<Table>& region);
  [[gnu::always_inline]] static std::uint64_t find_displaced(Table table,
                                                             Address address) noexcept;
  static bool try_put(Table table, Address address, std::uint64_t entry);
  static bool is_full(Table table, std::size_t home) noexcept;
  void insert_alone(Address address, std::uint64_t entry);
  void insert_elsewhere(Address address, std::uint64_t entry);
  void insert_shared(Address address, std::uint64_t entry);
  void remove_alone(Address address) noexcept;
  static void remove_displaced(Table table, Address address) noexcept;
  void remove_shared(Address address) noexcept;
  SpinLock& get_lock(Address address) const noexcept {
    return shared_locks_[(address >> kRegionBits) % kSharedLocks];
  }

  std::atomic<Span*> roots_[kRoots] = {};  // by the low bits of Span::number
  static constexpr std::size_t kSharedLocks = 64;
  mutable SpinLock shared_locks_[kSharedLocks];
  SpinLock memory_lock_;  // after a shared lock
  std::vector<std::unique_ptr<Span>> spans_ QUARRY_GUARDED_BY(memory_lock_);
  std::vector<std::unique_ptr<EntryLine[]>> memory_ QUARRY_GUARDED_BY(memory_lock_);
};

// Inline: on the way of every free, and of every request that no magazine serves.
inline std::atomic<PointerMap::Table>* PointerMap::find_region(Address address) const noexcept {
  const std::uint64_t number = address >> kSpanBits;
  Span* span = roots_[number % kRoots].load(std::memory_order_acquire);
  while (span != nullptr && span->number != number)
    [[unlikely]] span = span->next;
  if (span == nullptr) [[unlikely]]
    return nullptr;
  return &span->tables[(address >> kRegionBits) % (1 << (kSpanBits - kRegionBits))];
}

// The entry of a block that is not at home; 0 if there is none. No call, which would cost a
// hit registers.
inline std::uint64_t PointerMap::find_displaced(Table table, Address address) noexcept {
  const std::uint64_t key = make_key(address);
  std::size_t place = table.get_home(address);
  for (std::size_t tries = 1; tries < kReach; ++tries) {
    place = (place + 1) & table.mask();
    const std::uint64_t entry = table.at(place).load(std::memory_order_acquire);
    if ((entry & kKeyMask) == key) return entry;
  }
  return 0;
}

inline PointerMap::Found PointerMap::find(Address address) const noexcept {
  const std::atomic<Table>* const region = find_region(address);
  if (region == nullptr || address % 512 != 0) [[unlikely]]
    return {};
  const Table table = region->load(std::memory_order_acquire);
  if (table.is_null()) [[unlikely]]
    return {};
  std::uint64_t entry = table.at(table.get_home(address)).load(std::memory_order_acquire);
  if ((entry & kKeyMask) != make_key(address)) [[unlikely]]
    entry = find_displaced(table, address);
  const std::uintptr_t block = entry >> kBlockShift << kBlockLowBits;
  return {reinterpret_cast<Block*>(block),
          static_cast<DeviceId>(entry >> kDeviceShift & kDeviceMax)};
}

// At home, if nobody is there.
inline void PointerMap::insert_alone(Address address, std::uint64_t entry) {
  const std::atomic<Table>* const region = find_region(address);
  const Table table = region != nullptr ? region->load(std::memory_order_acquire) : Table();
  if (!table.is_null()) [[likely]] {
    Entry& home = table.at(table.get_home(address));
    if (home.load(std::memory_order_relaxed) == 0) [[likely]] {
      home.store(entry, std::memory_order_release);
      return;
    }
  }
  insert_elsewhere(address, entry);
}

inline void PointerMap::insert(Address address, DeviceId device, Block& block, RegionUse use) {
  QUARRY_ASSERT(address != 0 && address % 512 == 0 && device >= 0 && device <= kDeviceMax);
  const auto host_address = reinterpret_cast<std::uintptr_t>(&block);
  QUARRY_ASSERT_EQ(host_address >> kHostAddressBits, std::uintptr_t{0});
  const std::uint64_t entry = make_key(address) |
                              static_cast<std::uint64_t>(device) << kDeviceShift |
                              host_address >> kBlockLowBits << kBlockShift;
  use == RegionUse::kAlone ? insert_alone(address, entry) : insert_shared(address, entry);
}

inline void PointerMap::remove_alone(Address address) noexcept {
  const std::atomic<Table>* const region = find_region(address);
  QUARRY_CHECK(region != nullptr);
  const Table table = region->load(std::memory_order_acquire);
  QUARRY_CHECK(!table.is_null());
  Entry& home = table.at(table.get_home(address));
  if ((home.load(std::memory_order_relaxed) & kKeyMask) == make_key(address)) [[likely]] {
    home.store(0, std::memory_order_relaxed);
  } else {
    remove_displaced(table, address);
  }
}

inline void PointerMap::remove(Address address, RegionUse use) noexcept {
  use == RegionUse::kAlone ? remove_alone(address) : remove_shared(address);
}

}  // namespace quarry
