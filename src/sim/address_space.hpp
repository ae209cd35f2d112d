// SPDX-License-Identifier: Apache-2.0
// A range of addresses and which of them are free. Gives out rising addresses until the range is
// used up and only then freed ones, or freed ones first. Knows nothing of what an address is for.
#pragma once

#include <map>
#include <optional>

#include "base/bytes.hpp"

namespace quarry::sim {

class AddressSpace {
 public:
  AddressSpace(Address begin, Bytes bytes, bool lowest_first)
      : tail_(begin), end_(begin + bytes), lowest_first_(lowest_first) {}

  // `bytes` > 0, `alignment` a power of two. Nothing if no free range is long enough.
  std::optional<Address> take(Bytes bytes, Bytes alignment);
  // A range that `take` returned, or the rest of one.
  void give_back(Address address, Bytes bytes);

 private:
  std::optional<Address> take_from_tail(Bytes bytes, Bytes alignment);
  std::optional<Address> take_from_freed(Bytes bytes, Bytes alignment);
  void merge_tail();

  std::map<Address, Bytes> freed_;  // below tail_; neighbours are merged
  Address tail_;                    // from here to end_ nothing was given out, or all came back
  const Address end_;
  const bool lowest_first_;
};

}  // namespace quarry::sim
