// SPDX-License-Identifier: Apache-2.0
// Host memory for the small objects of one device (blocks, segments, fences): slabs and a free
// list. An object's memory stays of its type until the pool ends. Not thread-safe; guarded by the
// device.
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/check.hpp"

namespace quarry {

template <class T>
class ObjectPool {
 public:
  ObjectPool() = default;
  ObjectPool(const ObjectPool&) = delete;
  ObjectPool& operator=(const ObjectPool&) = delete;

  // An object as T{} makes it; one that owns memory comes as it was given back, for its capacity.
  // Throws std::bad_alloc, with nothing changed.
  T* take() {
    if (free_.empty()) add_slab();
    T* const object = free_.back();
    free_.pop_back();
    if constexpr (std::is_trivially_destructible_v<T>) std::construct_at(object);
    return object;
  }
  // Never allocates: the free list has room for every object that exists.
  void give_back(T* object) noexcept { free_.push_back(object); }

  std::size_t live_count() const noexcept { return slabs_.size() * kSlabObjects - free_.size(); }
  std::size_t host_bytes() const noexcept {
    return slabs_.size() * kSlabObjects * (sizeof(T) + sizeof(T*));
  }

 private:
  static constexpr std::size_t kSlabObjects = 64;

  void add_slab() {
    free_.reserve((slabs_.size() + 1) * kSlabObjects);
    slabs_.push_back(std::make_unique<T[]>(kSlabObjects));
    for (std::size_t i = kSlabObjects; i > 0; --i)
      free_.push_back(&slabs_.back()[i - 1]);
  }

  std::vector<std::unique_ptr<T[]>> slabs_;
  std::vector<T*> free_;
};

}  // namespace quarry
