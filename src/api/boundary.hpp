// SPDX-License-Identifier: Apache-2.0
// The border between the library and C: no exception crosses it, a Status becomes a code and the
// thread's last-error text, addresses and streams become pointers, and structs are copied as far
// as their size says.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>

#include "api/process.hpp"
#include "base/status.hpp"
#include "driver/driver_types.hpp"
#include "quarry/quarry.h"

namespace quarry {

// Keeps the text for quarry_get_last_error if the status is a failure.
quarry_status to_code(const Status& status) noexcept;
const char* get_last_error() noexcept;
// For a catch-all handler: what the exception in flight becomes.
quarry_status to_code_from_exception() noexcept;

// Runs `body`, which returns a Status, on behalf of a C function.
template <class Body>
quarry_status run(Body&& body) noexcept {
  try {
    return to_code(body());
  } catch (...) {
    return to_code_from_exception();
  }
}

// Runs `body(Allocator& or PassThrough&)`, which returns a Status, with the process's allocator.
template <class Body>
quarry_status run_with_allocator(Body&& body) noexcept {
  return run([&]() -> Status {
    auto process = find_process();
    if (!process.is_ok()) return std::move(process).status();
    return process.value()->visit([&](auto& allocator) -> Status { return body(allocator); });
  });
}

// The value of a result into `*out`, or the status.
template <class T, class Out>
Status store(Result<T> result, Out* out) {
  if (!result.is_ok()) return std::move(result).status();
  *out = static_cast<Out>(std::move(result).value());
  return {};
}

inline Status require(const void* pointer, std::string_view argument) {
  if (pointer != nullptr) [[likely]]
    return {};
  return {StatusCode::kInvalidArgument, std::string(argument) + " is NULL; it must not be"};
}

// Larger sizes are struct_size fields that nobody has set.
inline constexpr std::size_t kLargestStruct = 4096;

inline Status check_struct_size(std::size_t size, std::string_view argument) {
  if (size >= sizeof(std::size_t) && size <= kLargestStruct) [[likely]]
    return {};
  return {StatusCode::kInvalidArgument, std::string(argument) + "->struct_size is " +
                                            std::to_string(size) +
                                            "; it must be the sizeof of the struct"};
}

// Fills the fields that the caller knows; `value.struct_size` is not written.
template <class T>
Status write_struct(const T& value, T* out, std::string_view argument) {
  if (Status status = require(out, argument); !status.is_ok()) return status;
  if (Status status = check_struct_size(out->struct_size, argument); !status.is_ok())
    return status;
  const std::size_t bytes = std::min(out->struct_size, sizeof(T));
  std::memcpy(reinterpret_cast<char*>(out) + sizeof(std::size_t),
              reinterpret_cast<const char*>(&value) + sizeof(std::size_t),
              bytes - sizeof(std::size_t));
  return {};
}

inline void* to_pointer(Address address) noexcept {
  return reinterpret_cast<void*>(address);
}
inline Address to_address(const void* pointer) noexcept {
  return reinterpret_cast<Address>(pointer);
}
inline StreamHandle to_handle(quarry_stream stream) noexcept {
  return StreamHandle{reinterpret_cast<std::uint64_t>(stream)};
}
inline quarry_stream to_stream(std::uint64_t handle) noexcept {
  return reinterpret_cast<quarry_stream>(handle);
}
inline quarry_stream to_stream(StreamHandle handle) noexcept {
  return to_stream(static_cast<std::uint64_t>(handle));
}
inline quarry_stream_cache to_c(const StreamCache& cache) noexcept {
  return {sizeof(quarry_stream_cache), to_stream(cache.stream), cache.cached_bytes,
          cache.largest_free_block};
}

}  // namespace quarry
