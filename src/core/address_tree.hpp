// SPDX-License-Identifier: Apache-2.0
// An ordered set of free blocks by (segment's sequence, address), linked through the blocks
// themselves, that finds the first one that is large enough: a treap in which each block knows the
// largest size of what hangs below it. Taking the lowest address keeps the high ones free, whose
// extents then are whole and can move. Owns nothing, allocates nothing. Guarded by the device.
#pragma once

#include "core/block.hpp"
#include "core/segment.hpp"

namespace quarry {

class AddressTree {
 public:
  bool is_empty() const noexcept { return root_ == nullptr; }

  void insert(Block& block) noexcept;
  void remove(Block& block) noexcept;  // `block` is in this tree

  // The first of at least `size` bytes; null if none.
  Block* find_first(Bytes size) const noexcept;
  // The next after `block`, in order, of at least `size` bytes; null if none.
  static Block* find_next(const Block& block, Bytes size) noexcept;
  // The first of the largest; null if empty.
  Block* find_largest() const noexcept {
    return root_ == nullptr ? nullptr : find_first(root_->largest);
  }

  // For validate().
  bool is_consistent() const noexcept { return is_consistent(root_); }

 private:
  static bool is_before(const Block& a, const Block& b) noexcept;
  static bool is_consistent(const Block* block) noexcept;
  static Block* find_first(Block* below, Bytes size) noexcept;
  static void update(Block& block) noexcept;
  static void update_upwards(Block* block) noexcept;
  void rotate_up(Block& child) noexcept;
  void replace_child(Block* parent, const Block& old_child, Block* new_child) noexcept;

  Block* root_ = nullptr;
};

}  // namespace quarry
