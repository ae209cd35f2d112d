// SPDX-License-Identifier: Apache-2.0
// What the core remembers of the calling thread: a token that is never reused (thread ids are),
// whether the driver itself is calling it, and whether it is inside a function of the user.
#pragma once

#include <cstdint>

namespace quarry {

// Different for every thread that ever ran in this process; never 0.
std::uint64_t get_thread_token() noexcept;

namespace internal {

// Scopes that the thread is in. initial-exec: no call to find it, also in a shared library.
extern constinit thread_local int driver_callback_depth __attribute__((tls_model("initial-exec")));

}  // namespace internal

// Whether this thread is inside a DriverCallbackScope.
inline bool is_driver_callback_thread() noexcept {
  return internal::driver_callback_depth > 0;
}

// Marks the calling thread as one that the driver calls (a host function of a stream, a user
// object's destructor): the driver forbids calls from there. Inside, frees are queued for the next
// ordinary call, and requests are served from the cache or refused. Scopes may nest.
class DriverCallbackScope {
 public:
  DriverCallbackScope() noexcept;
  ~DriverCallbackScope();
  DriverCallbackScope(const DriverCallbackScope&) = delete;
  DriverCallbackScope& operator=(const DriverCallbackScope&) = delete;
};

// Whether this thread is inside a UserCallbackScope.
bool is_user_callback_thread() noexcept;

// Marks the calling thread as inside a callback of the user (callbacks.hpp), from which no further
// callbacks are called: one whose own request fails would call itself without end.
class UserCallbackScope {
 public:
  UserCallbackScope() noexcept;
  ~UserCallbackScope();
  UserCallbackScope(const UserCallbackScope&) = delete;
  UserCallbackScope& operator=(const UserCallbackScope&) = delete;
};

}  // namespace quarry
