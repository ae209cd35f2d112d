// SPDX-License-Identifier: Apache-2.0
#include "api/boundary.hpp"

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <new>

namespace quarry {
namespace {

constexpr std::size_t kTextBytes = 4096;

// The bytes are not thread-local themselves. As one of the library's thread-local variables is
// initial-exec, all are in the static block, and a process that loads the library late, as Python
// does after PyTorch, has a few hundred bytes of that to spare.
constinit thread_local const char* last_error = "";

void free_text(void* text) {
  last_error = "";
  std::free(text);
}

// 0: not made yet; else the key and 1. A loser of the race deletes its own: no lock that another
// thread could hold at a fork.
constinit std::atomic<std::uint64_t> text_key{0};

bool find_text_key(pthread_key_t& key) noexcept {
  std::uint64_t found = text_key.load(std::memory_order_acquire);
  if (found == 0) {
    if (pthread_key_create(&key, free_text) != 0) return false;
    if (text_key.compare_exchange_strong(found, std::uint64_t{key} + 1)) return true;
    pthread_key_delete(key);
  }
  key = static_cast<pthread_key_t>(found - 1);
  return true;
}

// The calling thread's kTextBytes, made at its first failure and freed when it ends; nullptr
// without host memory. Works in static destructors, after the thread's C++ objects are gone.
char* find_text() noexcept {
  pthread_key_t key{};
  if (!find_text_key(key)) return nullptr;
  if (void* text = pthread_getspecific(key)) return static_cast<char*>(text);
  void* text = std::malloc(kTextBytes);
  if (text != nullptr && pthread_setspecific(key, text) != 0) {
    std::free(text);
    text = nullptr;
  }
  return static_cast<char*>(text);
}

void keep_text(std::string_view text) noexcept {
  constexpr std::string_view kCut = "...";
  char* kept = find_text();
  if (kept == nullptr) {
    last_error = "no host memory for the text of this failure";
    return;
  }
  const std::size_t most = kTextBytes - 1;
  const std::size_t length = std::min(text.size(), most);
  std::memcpy(kept, text.data(), length);
  kept[length] = '\0';
  if (text.size() > most) std::memcpy(kept + most - kCut.size(), kCut.data(), kCut.size());
  last_error = kept;
}

}  // namespace

quarry_status to_code(const Status& status) noexcept {
  if (status.is_ok()) [[likely]]
    return QUARRY_OK;
  keep_text(status.message());
  return static_cast<quarry_status>(status.code());
}

const char* get_last_error() noexcept {
  return last_error;
}

quarry_status to_code_from_exception() noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    keep_text("no host memory");
  } catch (const std::exception& error) {
    keep_text(error.what());
  } catch (...) {
    keep_text("an exception of unknown type");
  }
  return QUARRY_ERROR_INTERNAL;
}

}  // namespace quarry
