// SPDX-License-Identifier: Apache-2.0
#include "core/address_tree.hpp"

#include <algorithm>

namespace quarry {
namespace {

Bytes get_largest(const Block* below) noexcept {
  return below == nullptr ? 0 : below->largest;
}

// A fixed mixing of the address: the tree's shape is random enough and yet the same in every run.
std::uint32_t mix(Address address) noexcept {
  std::uint64_t x = (address >> 9) * 0x9e3779b97f4a7c15ull;
  x ^= x >> 32;
  return static_cast<std::uint32_t>(x * 0xd6e8feb86659fd93ull >> 32);
}

}  // namespace

bool AddressTree::is_before(const Block& a, const Block& b) noexcept {
  if (a.segment != b.segment) return a.segment->sequence < b.segment->sequence;
  return a.address < b.address;
}

void AddressTree::update(Block& block) noexcept {
  block.largest = std::max({block.size, get_largest(block.left), get_largest(block.right)});
}

void AddressTree::update_upwards(Block* block) noexcept {
  for (; block != nullptr; block = block->parent)
    update(*block);
}

void AddressTree::replace_child(Block* parent, const Block& old_child, Block* new_child) noexcept {
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
void AddressTree::rotate_up(Block& child) noexcept {
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
  update(*parent);
  update(child);
}

void AddressTree::insert(Block& block) noexcept {
  block.left = block.right = block.parent = nullptr;
  block.priority = mix(block.address);
  block.largest = block.size;
  Block** link = &root_;
  while (*link != nullptr) {
    block.parent = *link;
    block.parent->largest = std::max(block.parent->largest, block.size);
    link = is_before(block, **link) ? &(*link)->left : &(*link)->right;
  }
  *link = &block;
  while (block.parent != nullptr && block.parent->priority < block.priority)
    rotate_up(block);
}

void AddressTree::remove(Block& block) noexcept {
  while (block.left != nullptr && block.right != nullptr) {
    rotate_up(block.left->priority > block.right->priority ? *block.left : *block.right);
  }
  Block* const child = block.left != nullptr ? block.left : block.right;
  Block* const parent = block.parent;
  replace_child(parent, block, child);
  update_upwards(parent);
  block.left = block.right = block.parent = nullptr;
}

Block* AddressTree::find_first(Block* below, Bytes size) noexcept {
  QUARRY_ASSERT(size > 0);
  if (get_largest(below) < size) return nullptr;
  while (true) {
    if (get_largest(below->left) >= size) {
      below = below->left;
    } else if (below->size >= size) {
      return below;
    } else {
      below = below->right;
    }
  }
}

Block* AddressTree::find_first(Bytes size) const noexcept {
  return find_first(root_, size);
}

Block* AddressTree::find_next(const Block& block, Bytes size) noexcept {
  if (Block* next = find_first(block.right, size)) return next;
  for (const Block* child = &block; child->parent != nullptr; child = child->parent) {
    Block* const parent = child->parent;
    if (parent->left != child) continue;
    if (parent->size >= size) return parent;
    if (Block* next = find_first(parent->right, size)) return next;
  }
  return nullptr;
}

bool AddressTree::is_consistent(const Block* block) noexcept {
  if (block == nullptr) return true;
  const auto is_below = [block](const Block* child) {
    return child == nullptr || (child->parent == block && child->priority <= block->priority);
  };
  return is_below(block->left) && is_below(block->right) &&
         (block->left == nullptr || is_before(*block->left, *block)) &&
         (block->right == nullptr || is_before(*block, *block->right)) &&
         block->largest ==
             std::max({block->size, get_largest(block->left), get_largest(block->right)}) &&
         is_consistent(block->left) && is_consistent(block->right);
}

}  // namespace quarry
