// SPDX-License-Identifier: Apache-2.0
// An ordered set of free blocks, linked through the blocks themselves: a treap by (size, segment's
// sequence, address). Owns nothing, allocates nothing. Guarded by the device's mutex.
#pragma once

#include "core/block.hpp"
#include "core/segment.hpp"

namespace quarry {

class BlockTree {
 public:
  bool is_empty() const noexcept { return root_ == nullptr; }

  void insert(Block& block) noexcept;
  // Puts `block` first whatever its order: for trees whose blocks are all as good as each other.
  // Afterwards `first` and `next` give every block once, in no order, until it is sorted.
  void push(Block& block, Block*& no_link) noexcept {
    block.left = block.parent = nullptr;
    block.right = root_;
    *(root_ != nullptr ? &root_->parent : &no_link) = &block;
    root_ = &block;
  }
  void remove(Block& block) noexcept;  // `block` is in this tree
  // The same for a tree that is a list: all blocks came by `push`, or it was flattened since.
  // `no_link` is written in place of what is not there: no branch, which nobody could foresee.
  void unlink(Block& block, Block*& no_link) noexcept {
    Block* const next = block.right;
    *(block.parent != nullptr ? &block.parent->right : &root_) = next;
    *(next != nullptr ? &next->parent : &no_link) = block.parent;
  }
  void sort() noexcept;
  void flatten() noexcept;  // into a list, in no order

  // The first in order; null if empty.
  Block* get_first() const noexcept {
    Block* block = root_;
    while (block != nullptr && block->left != nullptr)
      block = block->left;
    return block;
  }
  Block* get_last() const noexcept;
  // The first of at least `size` bytes; null if none.
  Block* find_at_least(Bytes size) const noexcept;
  // Neighbours in order; null at the ends.
  static Block* get_next(const Block& block) noexcept;
  static Block* get_previous(const Block& block) noexcept;

 private:
  static bool is_before(const Block& a, const Block& b) noexcept;
  void rotate_up(Block& child) noexcept;
  void replace_child(Block* parent, const Block& old_child, Block* new_child) noexcept;

  Block* root_ = nullptr;
};

}  // namespace quarry
