// SPDX-License-Identifier: Apache-2.0
#include "core/thread_state.hpp"

#include <atomic>

namespace quarry {
namespace {

std::atomic<std::uint64_t> next_token{1};
constinit thread_local std::uint64_t token = 0;
constinit thread_local int callback_depth = 0;

}  // namespace

std::uint64_t get_thread_token() noexcept {
  if (token == 0) token = next_token.fetch_add(1, std::memory_order_relaxed);
  return token;
}

bool is_driver_callback_thread() noexcept {
  return callback_depth > 0;
}

DriverCallbackScope::DriverCallbackScope() noexcept {
  ++callback_depth;
}
DriverCallbackScope::~DriverCallbackScope() {
  --callback_depth;
}

}  // namespace quarry
