// SPDX-License-Identifier: Apache-2.0
// How functions inside Quarry say that they failed: a code for programs and a text for people.
// A Status of success is one machine word and allocates nothing. Exceptions exist only in
// include/quarry/quarry.hpp.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.hpp"

namespace quarry {

// The numbers are those of quarry_status in include/quarry/quarry.h; never renumber.
enum class StatusCode : int {
  kOk = 0,
  kInvalidArgument = 1,  // the caller's mistake; nothing was changed
  kOutOfMemory = 2,      // nothing that could be reclaimed was enough; nothing was changed
  kInvalidPointer = 3,   // not a block of this allocator (foreign, interior or stale)
  kDoubleFree = 4,       // a block that was freed already
  kSizeMismatch = 5,     // a sized free named another size; the block *was* freed
  kDriverError = 6,      // the driver failed with something other than out-of-memory
  kForked = 7,           // the process was forked after initialisation; the child has no device
  kNotSupported = 8,     // not on this machine, or not in this configuration
  kBusy = 9,             // a capture or a lock that the caller holds forbids it now
  kInternal = 10,        // a fault of this library
  kShutDown = 11,        // after quarry_shutdown, and no new allocator since
};

std::string_view get_name(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() noexcept = default;
  Status(StatusCode code, std::string message)
      : detail_(code == StatusCode::kOk ? nullptr
                                        : std::make_unique<Detail>(code, std::move(message))) {}

  static Status ok() noexcept { return {}; }

  bool is_ok() const noexcept { return detail_ == nullptr; }
  StatusCode code() const noexcept { return detail_ ? detail_->code : StatusCode::kOk; }
  // Empty for success. Valid as long as this object.
  std::string_view message() const noexcept {
    return detail_ ? std::string_view(detail_->message) : std::string_view();
  }

 private:
  struct Detail {
    Detail(StatusCode c, std::string m) : code(c), message(std::move(m)) {}
    StatusCode code;
    std::string message;
  };
  std::unique_ptr<Detail> detail_;
};

// A value, or the Status that says why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}         // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {  // NOLINT(google-explicit-constructor)
    QUARRY_ASSERT(!status_.is_ok());
  }

  bool is_ok() const noexcept { return status_.is_ok(); }
  StatusCode code() const noexcept { return status_.code(); }
  const Status& status() const& noexcept { return status_; }
  Status&& status() && noexcept { return std::move(status_); }
  const T& value() const& {
    QUARRY_ASSERT(is_ok());
    return value_;
  }
  T&& value() && {
    QUARRY_ASSERT(is_ok());
    return std::move(value_);
  }

 private:
  Status status_;
  T value_{};
};

}  // namespace quarry
