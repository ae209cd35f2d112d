// SPDX-License-Identifier: Apache-2.0
#include "driver_entries.hpp"

#include <dlfcn.h>

#include <string>

namespace quarry::cuda {
namespace {

// Asks the driver's own resolver for the ABI of one CUDA version; falls back on the plain symbol,
// which is all that drivers before 11.3 have.
class Resolver {
 public:
  explicit Resolver(void* library) : library_(library) {
    v2_ = reinterpret_cast<PFN_cuGetProcAddress_v12000>(dlsym(library, "cuGetProcAddress_v2"));
    v1_ = reinterpret_cast<PFN_cuGetProcAddress_v11030>(dlsym(library, "cuGetProcAddress"));
  }

  void* find(const char* name, int version, const char* symbol) const {
    void* entry = nullptr;
    constexpr cuuint64_t flags = CU_GET_PROC_ADDRESS_LEGACY_STREAM;
    if (v2_ != nullptr) {
      CUdriverProcAddressQueryResult found{};
      if (v2_(name, &entry, version, flags, &found) == CUDA_SUCCESS && entry != nullptr) {
        return entry;
      }
    } else if (v1_ != nullptr) {
      if (v1_(name, &entry, version, flags) == CUDA_SUCCESS && entry != nullptr) return entry;
    }
    return dlsym(library_, symbol);
  }

 private:
  void* library_;
  PFN_cuGetProcAddress_v12000 v2_ = nullptr;
  PFN_cuGetProcAddress_v11030 v1_ = nullptr;
};

}  // namespace

Result<DriverEntries> load_driver_entries() {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const cause = dlerror();
    return Status(StatusCode::kNotSupported, std::string("no CUDA driver: ") +
                                                 (cause != nullptr ? cause : "unknown cause") +
                                                 "; QUARRY_DRIVER=sim runs on a simulated device");
  }
  const Resolver resolver(library);
  DriverEntries entries;
#define QUARRY_RESOLVE(member, name, version, symbol) \
  entries.member =                                    \
      reinterpret_cast<PFN_##name##_v##version>(resolver.find(#name, version, symbol));
#define QUARRY_REQUIRE(member, name, version, symbol)                                       \
  if (entries.member == nullptr) {                                                          \
    return Status(StatusCode::kNotSupported, "the CUDA driver is too old: it has no " #name \
                                             " (CUDA 11.3 or later is needed)");            \
  }
  QUARRY_REQUIRED_ENTRIES(QUARRY_RESOLVE)
  QUARRY_OPTIONAL_ENTRIES(QUARRY_RESOLVE)
  QUARRY_REQUIRED_ENTRIES(QUARRY_REQUIRE)
#undef QUARRY_RESOLVE
#undef QUARRY_REQUIRE
  return entries;
}

}  // namespace quarry::cuda
