// SPDX-License-Identifier: Apache-2.0
// Plain memory (cuMemAlloc) of one simulated device. Allocations of 2 MiB or more take whole
// driver pages; smaller ones share pages, 512 bytes apart. Waiting for the device is the caller's
// part.
#pragma once

#include <map>
#include <optional>

#include "driver/driver_types.hpp"
#include "sim/address_space.hpp"
#include "sim/physical_budget.hpp"

namespace quarry::sim {

inline constexpr Bytes kDriverPageBytes = 2ull << 20;
inline constexpr Bytes kPlainAlignment = 512;

// The oracle's number of one physical allocation. Never reused.
enum class PhysicalId : std::uint64_t { kNone = 0 };

struct PlainAllocation {
  Bytes bytes = 0;         // as asked for, rounded to the alignment
  Address small_page = 0;  // the shared page it lies in; 0: pages of its own
  PhysicalId physical = PhysicalId::kNone;
};

class PlainMemory {
 public:
  PlainMemory(Address begin, Bytes bytes, bool reuse_addresses, PhysicalBudget& budget)
      : space_(begin, bytes, reuse_addresses), reuse_(reuse_addresses), budget_(budget) {}

  DriverResult<Address> allocate(Bytes bytes, PhysicalId physical);
  // Nothing if `address` is not the begin of an allocation.
  std::optional<PlainAllocation> free(Address address);
  // True if `bytes` fit into a shared page that is open already.
  bool fits_open_page(Bytes bytes) const noexcept;

  bool is_small_page(Address page) const { return small_pages_.contains(page); }

  // All allocations by address; the caller may not change the addresses.
  const std::map<Address, PlainAllocation>& allocations() const noexcept { return allocations_; }

 private:
  struct SmallPage {
    AddressSpace space;
    std::uint64_t live = 0;
    Bytes bump_bytes = 0;  // used from the begin on, once
  };

  std::optional<Address> take_pages(Bytes bytes);
  void give_back_pages(Address address, Bytes bytes);
  DriverResult<Address> allocate_small(Bytes bytes, PhysicalId physical);
  Address place_in(Address page_address, SmallPage& page, Bytes bytes, PhysicalId physical);
  void free_small(Address address, const PlainAllocation& allocation);

  AddressSpace space_;
  const bool reuse_;
  PhysicalBudget& budget_;
  std::map<Address, PlainAllocation> allocations_;
  std::map<Address, SmallPage> small_pages_;
  Address open_page_ = 0;  // where small allocations go; 0: none
};

}  // namespace quarry::sim
