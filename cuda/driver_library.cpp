// SPDX-License-Identifier: Apache-2.0
#include "driver_library.hpp"

#include <cudaTypedefs.h>
#include <dlfcn.h>
#include <link.h>

namespace quarry::cuda {

Result<DriverLibrary> DriverLibrary::open() {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library != nullptr) return DriverLibrary(library);
  const char* const cause = dlerror();
  return Status(StatusCode::kNotSupported, std::string("no CUDA driver: ") +
                                               (cause != nullptr ? cause : "unknown cause") +
                                               "; QUARRY_DRIVER=sim runs on a simulated device");
}

DriverLibrary::DriverLibrary(void* library)
    : library_(library),
      resolver_v1_(dlsym(library, "cuGetProcAddress")),
      resolver_v2_(dlsym(library, "cuGetProcAddress_v2")) {}

void* DriverLibrary::find(const char* name, int version, const char* symbol) const {
  void* entry = nullptr;
  constexpr cuuint64_t flags = CU_GET_PROC_ADDRESS_LEGACY_STREAM;
  CUresult code = CUDA_ERROR_NOT_FOUND;
  if (resolver_v2_ != nullptr) {
    const auto resolve = reinterpret_cast<PFN_cuGetProcAddress_v12000>(resolver_v2_);
    CUdriverProcAddressQueryResult found{};
    code = resolve(name, &entry, version, flags, &found);
  } else if (resolver_v1_ != nullptr) {
    const auto resolve = reinterpret_cast<PFN_cuGetProcAddress_v11030>(resolver_v1_);
    code = resolve(name, &entry, version, flags);
  }
  return code == CUDA_SUCCESS && entry != nullptr ? entry : dlsym(library_, symbol);
}

std::string DriverLibrary::get_path() const {
  const link_map* map = nullptr;
  if (dlinfo(library_, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr) return {};
  return map->l_name;
}

const char* DriverLibrary::get_resolver_name() const noexcept {
  if (resolver_v2_ != nullptr) return "cuGetProcAddress_v2";
  return resolver_v1_ != nullptr ? "cuGetProcAddress" : "dlsym";
}

}  // namespace quarry::cuda
