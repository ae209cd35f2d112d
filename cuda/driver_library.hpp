// SPDX-License-Identifier: Apache-2.0
// libcuda.so.1, opened at run time, and the look-up of entry points in it. It knows no particular
// entry: those that the allocator needs are in driver_entries.hpp. Needs no CUDA header.
#pragma once

#include <string>

#include "base/status.hpp"

namespace quarry::cuda {

class DriverLibrary {
 public:
  // None: what a failed Result holds.
  DriverLibrary() = default;
  // The library then stays open for the life of the process. kNotSupported with the loader's own
  // text where there is none.
  static Result<DriverLibrary> open();

  // Asks the driver's own resolver for the ABI of one CUDA version; falls back on the plain
  // `symbol`, which is all that drivers before 11.3 have. nullptr if there is neither.
  void* find(const char* name, int version, const char* symbol) const;

  // Where the loader found the library.
  std::string get_path() const;
  // The name of the driver's own resolver; "dlsym" in drivers that have none.
  const char* get_resolver_name() const noexcept;

 private:
  explicit DriverLibrary(void* library);

  void* library_ = nullptr;
  void* resolver_v1_ = nullptr;  // cuGetProcAddress as in CUDA 11.3; null in older drivers
  void* resolver_v2_ = nullptr;  // as in CUDA 12.0
};

}  // namespace quarry::cuda
