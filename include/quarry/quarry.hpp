// SPDX-License-Identifier: Apache-2.0
// Quarry for C++17 and later: exceptions and RAII, inline over the C interface of quarry.h, which
// states the rules (thread safety, streams, fork, exit). No ABI of its own: everything here is
// compiled into the caller.
//
// The inline namespace keeps the names apart from those inside libquarry.a, and code that is built
// for per-thread default streams apart from code that is not: a stream of 0 differs in them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "quarry/quarry.h"

namespace quarry {
#if defined(QUARRY_PER_THREAD_DEFAULT_STREAM)
inline namespace cpp_per_thread {
#else
inline namespace cpp {
#endif

// --- Errors ---

// What a failed call throws; the text is quarry_get_last_error.
class Error : public std::runtime_error {
 public:
  Error(quarry_status code, const std::string& text) : std::runtime_error(text), code_(code) {}
  quarry_status code() const noexcept { return code_; }

 private:
  quarry_status code_;
};

// QUARRY_ERROR_OUT_OF_MEMORY; the text is the report.
class OutOfMemory : public Error {
 public:
  explicit OutOfMemory(const std::string& text) : Error(QUARRY_ERROR_OUT_OF_MEMORY, text) {}
};

// Throws unless the status is QUARRY_OK. To be called on the thread of the failure, before
// another.
inline void check(quarry_status status) {
  if (status == QUARRY_OK) return;
  if (status == QUARRY_ERROR_OUT_OF_MEMORY) throw OutOfMemory(quarry_get_last_error());
  throw Error(status, quarry_get_last_error());
}

// --- Memory ---

// Sole owner of one block of device memory. Empty if moved from, released, or of 0 bytes.
class UniqueBlock {
 public:
  UniqueBlock() noexcept = default;
  // Throws OutOfMemory or Error.
  UniqueBlock(std::size_t bytes, int device, quarry_stream stream)
      : UniqueBlock(bytes, 512, device, stream) {}
  UniqueBlock(std::size_t bytes, std::size_t alignment, int device, quarry_stream stream)
      : bytes_(bytes) {
    check(quarry_malloc_aligned(&data_, bytes, alignment, device, stream));
  }
  // Owns a block of `bytes` bytes that the caller has to free.
  static UniqueBlock adopt(void* data, std::size_t bytes) noexcept {
    UniqueBlock block;
    block.data_ = data;
    block.bytes_ = data != nullptr ? bytes : 0;
    return block;
  }
  ~UniqueBlock() { reset(); }

  UniqueBlock(UniqueBlock&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  UniqueBlock& operator=(UniqueBlock&& other) noexcept {
    if (this == &other) return *this;
    reset();
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    return *this;
  }
  UniqueBlock(const UniqueBlock&) = delete;
  UniqueBlock& operator=(const UniqueBlock&) = delete;

  void* data() const noexcept { return data_; }
  template <class T>
  T* data_as() const noexcept {
    return static_cast<T*>(data_);
  }
  std::size_t bytes() const noexcept { return bytes_; }
  explicit operator bool() const noexcept { return data_ != nullptr; }

  // The block is also used on `stream`: see quarry_record_stream.
  void record_stream(quarry_stream stream) { check(quarry_record_stream(data_, stream)); }

  // Frees now. Empty afterwards.
  void reset() noexcept { quarry_free(release()); }
  // Frees to `stream`: see quarry_free_on_stream. Empty afterwards, unless it throws.
  void reset_on_stream(quarry_stream stream) {
    check(quarry_free_on_stream(data_, stream));
    static_cast<void>(release());
  }
  // The caller has to free it.
  [[nodiscard]] void* release() noexcept {
    bytes_ = 0;
    return std::exchange(data_, nullptr);
  }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// --- Guards ---

// While it lives no driver free begins in any thread: see quarry_driver_free_guard_lock. To be
// destroyed on the thread that made it.
class DriverFreeGuard {
 public:
  DriverFreeGuard() { check(quarry_driver_free_guard_lock()); }
  ~DriverFreeGuard() { static_cast<void>(quarry_driver_free_guard_unlock()); }
  DriverFreeGuard(const DriverFreeGuard&) = delete;
  DriverFreeGuard& operator=(const DriverFreeGuard&) = delete;
};

// While it lives the calling thread is one that the driver calls: see
// quarry_driver_callback_begin.
class DriverCallbackScope {
 public:
  DriverCallbackScope() { check(quarry_driver_callback_begin()); }
  ~DriverCallbackScope() { static_cast<void>(quarry_driver_callback_end()); }
  DriverCallbackScope(const DriverCallbackScope&) = delete;
  DriverCallbackScope& operator=(const DriverCallbackScope&) = delete;
};

// Sets the limit of a device in bytes, and the one before at the end. Not for two threads at once.
class LimitScope {
 public:
  LimitScope(int device, std::uint64_t bytes) : device_(device) {
    check(quarry_get_limit(device, &before_));
    check(quarry_set_limit(device, bytes));
  }
  ~LimitScope() { static_cast<void>(quarry_set_limit(device_, before_)); }
  LimitScope(const LimitScope&) = delete;
  LimitScope& operator=(const LimitScope&) = delete;

 private:
  int device_;
  std::uint64_t before_ = QUARRY_UNLIMITED;
};

// --- Callbacks ---

// A function that is called as long as this lives. The destructor waits for calls under way in
// other threads: see quarry_remove_callback. Not to be destroyed by its own function.
class Callback {
 public:
  static Callback on_oom(std::function<void(const quarry_oom_report&)> function) {
    Callback made;
    made.on_oom_ = std::make_unique<OomFunction>(std::move(function));
    check(quarry_add_oom_callback(&call_oom, made.on_oom_.get(), &made.id_));
    return made;
  }
  // The function returns whether it freed anything.
  static Callback on_memory_short(std::function<bool(int device, std::uint64_t bytes)> function) {
    Callback made;
    made.on_short_ = std::make_unique<ShortFunction>(std::move(function));
    check(quarry_add_free_memory_callback(&call_short, made.on_short_.get(), &made.id_));
    return made;
  }
  ~Callback() {
    if (id_ != 0) static_cast<void>(quarry_remove_callback(id_));
  }
  Callback(Callback&& other) noexcept
      : id_(std::exchange(other.id_, 0)),
        on_oom_(std::move(other.on_oom_)),
        on_short_(std::move(other.on_short_)) {}
  Callback& operator=(Callback&&) = delete;

 private:
  using OomFunction = std::function<void(const quarry_oom_report&)>;
  using ShortFunction = std::function<bool(int, std::uint64_t)>;

  Callback() = default;
  static void call_oom(const quarry_oom_report* report, void* user) {
    (*static_cast<OomFunction*>(user))(*report);
  }
  static int call_short(int device, std::uint64_t bytes, void* user) {
    return (*static_cast<ShortFunction*>(user))(device, bytes) ? 1 : 0;
  }

  quarry_callback_id id_ = 0;
  std::unique_ptr<OomFunction> on_oom_;
  std::unique_ptr<ShortFunction> on_short_;
};

// --- Statistics and configuration ---

inline quarry_stats get_stats(int device) {
  quarry_stats stats = {};
  stats.struct_size = sizeof(stats);
  check(quarry_get_stats(device, &stats));
  return stats;
}

// Every figure under its key.
inline std::map<std::string, std::int64_t> get_all_stats(int device) {
  std::map<std::string, std::int64_t> all;
  const quarry_stat_visitor add = [](const char* key, std::int64_t value, void* user) {
    static_cast<std::map<std::string, std::int64_t>*>(user)->emplace(key, value);
  };
  check(quarry_for_each_stat(device, add, &all));
  return all;
}

inline quarry_block_info get_block_info(const void* ptr) {
  quarry_block_info info = {};
  info.struct_size = sizeof(info);
  check(quarry_get_block_info(ptr, &info));
  return info;
}

inline void configure(const std::string& conf) {
  check(quarry_configure(conf.c_str()));
}

inline std::string get_conf() {
  std::size_t needed = 0;
  check(quarry_get_conf(nullptr, 0, &needed));
  std::string text(needed, '\0');
  check(quarry_get_conf(text.data(), text.size(), &needed));
  text.resize(needed - 1);
  return text;
}

}  // namespace cpp or cpp_per_thread
}  // namespace quarry

// Private pools and memory that others use too, over what is above.
#include "quarry/quarry_pool.hpp"
#include "quarry/quarry_sharing.hpp"
