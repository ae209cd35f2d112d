// SPDX-License-Identifier: Apache-2.0
// Memory that others use too, for C++17 and later, inline over the C interface of
// quarry_sharing.h, which states the rules. A part of quarry.hpp, which includes it.
#pragma once

#include <cstddef>
#include <utility>

#include "quarry/quarry.hpp"
#include "quarry/quarry_sharing.h"

namespace quarry {
#if defined(QUARRY_PER_THREAD_DEFAULT_STREAM)
inline namespace cpp_per_thread {
#else
inline namespace cpp {
#endif

// See quarry_enable_peer_access. Throws Error.
inline void enable_peer_access(int device, int peer) {
  check(quarry_enable_peer_access(device, peer));
}

// While it lives the range keeps its memory: see quarry_pin. It may outlive the block. Empty if
// moved from, or made so.
class Pin {
 public:
  Pin() noexcept = default;
  // Throws Error.
  Pin(const void* data, std::size_t bytes) : data_(data), bytes_(bytes) {
    check(quarry_pin(data, bytes));
  }
  // The whole block, as far as was asked for.
  explicit Pin(const UniqueBlock& block) : Pin(block.data(), block.bytes()) {}
  ~Pin() { reset(); }

  Pin(Pin&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Pin& operator=(Pin&& other) noexcept {
    if (this == &other) return *this;
    reset();
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    return *this;
  }
  Pin(const Pin&) = delete;
  Pin& operator=(const Pin&) = delete;

  // Unpins now. Empty afterwards.
  void reset() noexcept {
    if (bytes_ != 0) static_cast<void>(quarry_unpin(data_, bytes_));
    data_ = nullptr;
    bytes_ = 0;
  }
  explicit operator bool() const noexcept { return bytes_ != 0; }

 private:
  const void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace cpp or cpp_per_thread
}  // namespace quarry
