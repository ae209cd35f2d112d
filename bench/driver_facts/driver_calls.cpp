// SPDX-License-Identifier: Apache-2.0
#include "bench/driver_facts/driver_calls.hpp"

#include <dlfcn.h>

namespace quarry::facts {
namespace {

#define QUARRY_FACTS_QUOTE(text) #text
#define QUARRY_FACTS_SYMBOL(entry) QUARRY_FACTS_QUOTE(entry)

DriverCalls load() {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw DriverError("no CUDA driver: libcuda.so.1 does not open");
  DriverCalls calls;
#define QUARRY_FACTS_LOAD(member, entry)                                                    \
  calls.member =                                                                            \
      reinterpret_cast<decltype(calls.member)>(dlsym(library, QUARRY_FACTS_SYMBOL(entry))); \
  if (calls.member == nullptr) {                                                            \
    throw DriverError("the CUDA driver is too old: it has no " QUARRY_FACTS_SYMBOL(entry)); \
  }
  QUARRY_FACTS_ENTRIES(QUARRY_FACTS_LOAD)
#undef QUARRY_FACTS_LOAD
  return calls;
}

}  // namespace

const DriverCalls& cu() {
  static const DriverCalls calls = load();
  return calls;
}

void require(int code, const char* what) {
  if (code != 0) throw DriverError(std::string(what) + ": error " + std::to_string(code));
}

CUcontext enter_context() {
  static const CUcontext context = [] {
    require(cu().init(0), "cuInit");
    CUdevice device = 0;
    require(cu().device_get(&device, 0), "cuDeviceGet");
    CUcontext made = nullptr;
    require(cu().primary_ctx_retain(&made, device), "cuDevicePrimaryCtxRetain");
    return made;
  }();
  require(cu().ctx_set_current(context), "cuCtxSetCurrent");
  return context;
}

}  // namespace quarry::facts
