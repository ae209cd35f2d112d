// SPDX-License-Identifier: Apache-2.0
#include "base/check.hpp"

#include <cstdio>
#include <cstdlib>

#include "base/status.hpp"

namespace quarry {

namespace internal {

void fail_check(const char* file, int line, const char* condition, const std::string& operands) {
  // Plain stderr and not the log: the failed invariant may be the log's own, or hold a lock.
  std::fprintf(stderr, "quarry: %s:%d: invariant does not hold: %s%s%s\n", file, line, condition,
               operands.empty() ? "" : ": ", operands.c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace internal

std::string_view get_name(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "ok";
    case StatusCode::kInvalidArgument:
      return "invalid argument";
    case StatusCode::kOutOfMemory:
      return "out of memory";
    case StatusCode::kInvalidPointer:
      return "invalid pointer";
    case StatusCode::kDoubleFree:
      return "double free";
    case StatusCode::kSizeMismatch:
      return "size mismatch";
    case StatusCode::kDriverError:
      return "driver error";
    case StatusCode::kForked:
      return "forked after initialisation";
    case StatusCode::kNotSupported:
      return "not supported";
    case StatusCode::kBusy:
      return "busy";
    case StatusCode::kInternal:
      return "internal error";
    case StatusCode::kShutDown:
      return "shut down";
  }
  return "unknown status";
}

}  // namespace quarry
