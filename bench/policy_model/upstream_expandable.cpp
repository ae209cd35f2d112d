// SPDX-License-Identifier: Apache-2.0
#include "bench/policy_model/upstream_expandable.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "base/check.hpp"
#include "core/size_policy.hpp"

namespace quarry::policy_model {
namespace {

// One segment: upstream has one for each stream and family, and its addresses never run out. What
// is mapped is [0, mapped_end); all beyond is the one unmapped block.
class UpstreamSegment {
 public:
  explicit UpstreamSegment(Bytes page) : page_(page) {}

  // Takes the best fit among the free blocks. False where none is large enough.
  bool try_take(Bytes size, Address& address) {
    auto found = free_.lower_bound({size, 0});
    if (found == free_.end()) return false;
    // The last block counts with the addresses that follow it, so it comes after all others.
    if (is_last(*found) && std::next(found) != free_.end()) ++found;
    take(*found, size, address);
    return true;
  }

  // Maps as many pages as are missing behind the last block. Returns the bytes that were mapped.
  Bytes grow_and_take(Bytes size, Address& address) {
    Bytes have = 0;
    if (!blocks_.empty() && blocks_.rbegin()->second.is_free) have = blocks_.rbegin()->second.size;
    QUARRY_CHECK(have < size);
    const Bytes mapped = (size - have + page_ - 1) / page_ * page_;
    const Address begin = mapped_end_;
    mapped_end_ += mapped;
    blocks_.emplace(begin, Block{mapped, false});
    const Address merged = give(begin);
    take({blocks_.at(merged).size, merged}, size, address);
    return mapped;
  }

  // The block at `address` is free from now on; returns where the merged one begins.
  Address give(Address address) {
    auto block = blocks_.find(address);
    QUARRY_CHECK(block != blocks_.end() && !block->second.is_free);
    block->second.is_free = true;
    if (block != blocks_.begin()) {
      auto before = std::prev(block);
      if (before->second.is_free) {
        free_.erase({before->second.size, before->first});
        before->second.size += block->second.size;
        blocks_.erase(block);
        block = before;
      }
    }
    auto after = std::next(block);
    if (after != blocks_.end() && after->second.is_free) {
      free_.erase({after->second.size, after->first});
      block->second.size += after->second.size;
      blocks_.erase(after);
    }
    free_.emplace(block->second.size, block->first);
    return block->first;
  }

 private:
  struct Block {
    Bytes size;
    bool is_free;
  };
  using FreeBlock = std::pair<Bytes, Address>;

  bool is_last(const FreeBlock& block) const { return block.second + block.first == mapped_end_; }

  // With expandable segments every remainder is split off.
  void take(FreeBlock chosen, Bytes size, Address& address) {
    free_.erase(chosen);
    address = chosen.second;
    blocks_.at(address) = Block{size, false};
    if (chosen.first == size) return;
    blocks_.emplace(address + size, Block{chosen.first - size, true});
    free_.emplace(chosen.first - size, address + size);
  }

  Bytes page_;
  Address mapped_end_ = 0;
  std::map<Address, Block> blocks_;  // tile [0, mapped_end_)
  std::set<FreeBlock> free_;         // by size, then address
};

struct LiveBlock {
  UpstreamSegment* segment = nullptr;
  Address address = 0;
};

}  // namespace

UpstreamResult replay_upstream_expandable(const PolicyTrace& trace) {
  std::map<std::pair<std::uint32_t, StatFamily>, UpstreamSegment> segments;
  std::vector<LiveBlock> live(trace.slot_count);
  UpstreamResult result;
  for (const PolicyEvent& event : trace.events) {
    LiveBlock& block = live[event.slot];
    if (event.op == TraceOp::kFree && block.segment != nullptr) {
      block.segment->give(block.address);
      block = {};
    }
    if (event.op != TraceOp::kAlloc || event.bytes == 0) continue;
    const Bytes size = event.bytes;
    const StatFamily family = get_family(size);
    const Bytes page = family == StatFamily::kSmall ? kUpstreamSmallPage : kUpstreamLargePage;
    UpstreamSegment& segment = segments.try_emplace({event.stream, family}, page).first->second;
    block.segment = &segment;
    if (segment.try_take(size, block.address)) continue;
    const Bytes mapped = segment.grow_and_take(size, block.address);
    result.peak_reserved_bytes += mapped;
    result.pages += mapped / page;
    ++result.misses;
  }
  return result;
}

}  // namespace quarry::policy_model
