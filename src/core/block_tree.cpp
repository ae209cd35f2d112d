// SPDX-License-Identifier: Apache-2.0
#include "core/block_tree.hpp"

namespace quarry {
namespace {

// A fixed mixing of the address: the tree's shape is random enough and yet the same in every run.
std::uint32_t mix(Address address) noexcept {
  std::uint64_t x = (address >> 9) * 0x9e3779b97f4a7c15ull;
  x ^= x >> 32;
  return static_cast<std::uint32_t>(x * 0xd6e8feb86659fd93ull >> 32);
}

}  // namespace

bool BlockTree::is_before(const Block& a, const Block& b) noexcept {
  if (a.size != b.size) return a.size < b.size;
  if (a.segment != b.segment) return a.segment->sequence < b.segment->sequence;
  return a.address < b.address;
}

void BlockTree::replace_child(Block* parent, const Block& old_child, Block* new_child) noexcept {
  if (parent == nullptr) {
    root_ = new_child;
  } else if (parent->left == &old_child) {
    parent->left = new_child;
  } else {
    parent->right = new_child;
  }
  if (new_child != nullptr) new_child->parent = parent;
}

// Makes `child` the parent of its parent, keeping the order.
void BlockTree::rotate_up(Block& child) noexcept {
  Block* const parent = child.parent;
  replace_child(parent->parent, *parent, &child);
  if (parent->left == &child) {
    parent->left = child.right;
    if (child.right != nullptr) child.right->parent = parent;
    child.right = parent;
  } else {
    parent->right = child.left;
    if (child.left != nullptr) child.left->parent = parent;
    child.left = parent;
  }
  parent->parent = &child;
}

void BlockTree::insert(Block& block) noexcept {
  block.left = block.right = block.parent = nullptr;
  block.priority = mix(block.address);
  Block** link = &root_;
  while (*link != nullptr) {
    block.parent = *link;
    link = is_before(block, **link) ? &(*link)->left : &(*link)->right;
  }
  *link = &block;
  while (block.parent != nullptr && block.parent->priority < block.priority)
    rotate_up(block);
}

void BlockTree::remove(Block& block) noexcept {
  while (block.left != nullptr && block.right != nullptr) {
    rotate_up(block.left->priority > block.right->priority ? *block.left : *block.right);
  }
  Block* const child = block.left != nullptr ? block.left : block.right;
  replace_child(block.parent, block, child);
  block.left = block.right = block.parent = nullptr;
}

void BlockTree::sort() noexcept {
  BlockTree unordered = *this;
  root_ = nullptr;
  while (Block* block = unordered.root_) {
    unordered.remove(*block);
    insert(*block);
  }
}

void BlockTree::flatten() noexcept {
  BlockTree ordered = *this;
  root_ = nullptr;
  Block* no_link = nullptr;
  while (Block* block = ordered.root_) {
    ordered.remove(*block);
    push(*block, no_link);
  }
}

Block* BlockTree::get_last() const noexcept {
  Block* block = root_;
  while (block != nullptr && block->right != nullptr)
    block = block->right;
  return block;
}

Block* BlockTree::find_at_least(Bytes size) const noexcept {
  Block* found = nullptr;
  for (Block* block = root_; block != nullptr;) {
    if (block->size >= size) {
      found = block;
      block = block->left;
    } else {
      block = block->right;
    }
  }
  return found;
}

Block* BlockTree::get_next(const Block& block) noexcept {
  if (block.right != nullptr) {
    Block* next = block.right;
    while (next->left != nullptr)
      next = next->left;
    return next;
  }
  const Block* child = &block;
  while (child->parent != nullptr && child->parent->right == child)
    child = child->parent;
  return child->parent;
}

Block* BlockTree::get_previous(const Block& block) noexcept {
  if (block.left != nullptr) {
    Block* previous = block.left;
    while (previous->right != nullptr)
      previous = previous->right;
    return previous;
  }
  const Block* child = &block;
  while (child->parent != nullptr && child->parent->left == child)
    child = child->parent;
  return child->parent;
}

}  // namespace quarry
