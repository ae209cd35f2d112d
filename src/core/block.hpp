// SPDX-License-Identifier: Apache-2.0
// START HERE. The vocabulary of the core, and its unit: the Block.
//
//   Segment     one contiguous device address range: plain, one allocation of the driver's; or
//               expandable, reserved addresses into which extents are mapped as they are needed
//   Extent      physical memory that is mapped whole, into an expandable segment
//   Block       a subrange of a Segment, the unit handed out; blocks tile their segment
//   BlockPool   index of the free blocks of one size family
//   MemPool     a reuse domain: its segments and their two BlockPools
//   Stream      a queue of the device; every block belongs to one, or to the idle owner
//   Fence       a point in GPU time: "everything submitted to stream S before now"
//   requested   what the user asked for;          allocated  rounded, held by the user
//   active      allocated + pending;              reserved   held from the driver
//   pending     freed by the user, another stream may still use it
//   parked      freed by the user, in a thread's magazine; allocated for the tree
//   idle        free, and no stream can still use it: any stream may take it
//   hole        addresses of an expandable segment with no memory
//   passed      of a free block: the host has seen its last use done
//
// The tree Allocator -> DeviceAllocator -> MemPool -> Segment -> Block owns; pools, the pointer
// map and fences only point. Everything is guarded by the device's mutex, and most of what belongs
// to one stream by that stream's lane as well (lane.hpp).
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include "base/bytes.hpp"
#include "base/check.hpp"
#include "driver/driver_types.hpp"

namespace quarry {

struct Segment;
struct Stream;
struct ForeignUse;

enum class BlockState : std::uint8_t {
  kFree,       // in its BlockPool
  kAllocated,  // held by the user, or parked in a magazine; in the pointer map
  kPending,    // freed by the user; waits for fences, or for a thread that may call the driver
  kRetiring,   // in the driver's hands, or its addresses wait for a fence; in no BlockPool
  kUnmapped,   // a hole of an expandable segment
};

std::string_view get_name(BlockState state);

struct alignas(64) Block {
  // The first cache line: all that a request or a free by way of a magazine touches.
  Address address = 0;
  Bytes size = 0;
  Bytes requested_bytes = 0;  // by the user; 0 while free
  Segment* segment = nullptr;
  Stream* owner = nullptr;  // whose order makes reuse safe
  union {
    // The magazine in which it may park with no further question (magazine.hpp); 0: ask them all.
    std::uint64_t home = 0;
    Bytes largest;  // while free, in an AddressTree: of it and of what hangs below it
  };
  Block* left = nullptr;             // see below
  std::uint32_t pending_fences = 0;  // fences that must pass before the block is free
  bool is_oversize_counted = false;  // in DeviceStats::oversize_allocations
  // Whether a user has it. Differs from kAllocated while the block is parked in a magazine;
  // whoever exchanges it to false has the sole right to free the block, which catches a double
  // free.
  std::atomic<bool> is_held{false};

 private:
  BlockState state_ = BlockState::kFree;

 public:
  Block* previous = nullptr;  // neighbours by address, within the segment
  Block* next = nullptr;
  // Links of the index (BlockTree) while free, with `left`, which also links parked blocks of a
  // magazine.
  Block* right = nullptr;
  Block* parent = nullptr;
  ForeignUse* foreign_uses = nullptr;  // other streams that use it; only while allocated or queued
  std::uint32_t priority = 0;
  std::uint32_t age_base = 0;  // the pool's search count when the block became free
  // The capture that the block was given to; none for any other, and while it is free.
  CaptureId capture{};
  // While free: the number of the owner's fence that comes after its last use
  // (Stream::fence_number).
  std::uint64_t fence_number = 0;

  BlockState state() const noexcept { return state_; }
  bool is_free() const noexcept { return state_ == BlockState::kFree; }
  // Held by the user or by work of the device.
  bool is_active() const noexcept {
    return state_ == BlockState::kAllocated || state_ == BlockState::kPending;
  }
  // A part of its segment and not the whole.
  bool is_split() const noexcept { return previous != nullptr || next != nullptr; }
  Address end() const noexcept { return address + size; }

  // The transitions that exist; anything else is a fault of ours.
  void become_allocated() noexcept { change(BlockState::kFree, BlockState::kAllocated); }
  void become_pending() noexcept { change(BlockState::kAllocated, BlockState::kPending); }
  void become_retiring() noexcept { change(BlockState::kFree, BlockState::kRetiring); }
  void return_from_retiring() noexcept { change(BlockState::kRetiring, BlockState::kFree); }
  void become_hole() noexcept { change(BlockState::kRetiring, BlockState::kUnmapped); }
  void leave_hole() noexcept { change(BlockState::kUnmapped, BlockState::kRetiring); }
  void become_free() noexcept {
    QUARRY_ASSERT_EQ(pending_fences, 0u);
    change(BlockState::kPending, BlockState::kFree);
  }

 private:
  void change(BlockState from, BlockState to) noexcept {
    QUARRY_CHECK_EQ(static_cast<int>(state_), static_cast<int>(from));
    state_ = to;
  }
};
static_assert(sizeof(Block) == 128, "two cache lines");

// One stream other than the owner that uses a block. A singly linked list; owned by the device's
// object pool.
struct ForeignUse {
  Stream* stream = nullptr;
  ForeignUse* next = nullptr;
  CaptureId capture{};  // that the stream was in, where the block was given to a capture too
};

}  // namespace quarry
