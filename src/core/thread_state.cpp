// SPDX-License-Identifier: Apache-2.0
#include "core/thread_state.hpp"

#include <atomic>

namespace quarry {
namespace internal {

constinit thread_local int driver_callback_depth = 0;

}  // namespace internal
namespace {

std::atomic<std::uint64_t> next_token{1};
constinit thread_local std::uint64_t token = 0;
constinit thread_local int user_callback_depth = 0;

}  // namespace

std::uint64_t get_thread_token() noexcept {
  if (token == 0) token = next_token.fetch_add(1, std::memory_order_relaxed);
  return token;
}

DriverCallbackScope::DriverCallbackScope() noexcept {
  ++internal::driver_callback_depth;
}
DriverCallbackScope::~DriverCallbackScope() {
  --internal::driver_callback_depth;
}

bool is_user_callback_thread() noexcept {
  return user_callback_depth > 0;
}

UserCallbackScope::UserCallbackScope() noexcept {
  ++user_callback_depth;
}
UserCallbackScope::~UserCallbackScope() {
  --user_callback_depth;
}

}  // namespace quarry
