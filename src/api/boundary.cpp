// SPDX-License-Identifier: Apache-2.0
#include "api/boundary.hpp"

#include <exception>
#include <new>

namespace quarry {
namespace {

constexpr std::size_t kTextBytes = 4096;
// Plain bytes, so that a failure in a static destructor, after the thread's C++ objects are gone,
// still has a place for its text.
constinit thread_local char last_error[kTextBytes] = {};

void keep_text(std::string_view text) noexcept {
  constexpr std::string_view kCut = "...";
  const std::size_t most = kTextBytes - 1;
  const std::size_t length = std::min(text.size(), most);
  std::memcpy(last_error, text.data(), length);
  last_error[length] = '\0';
  if (text.size() > most) {
    std::memcpy(last_error + most - kCut.size(), kCut.data(), kCut.size());
  }
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
