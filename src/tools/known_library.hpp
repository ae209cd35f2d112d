// SPDX-License-Identifier: Apache-2.0
// Which shared libraries have to do with GPU memory, told by their file names. Pure functions.
#pragma once

#include <string_view>

namespace quarry::tools {

enum class LibraryKind {
  kUnknown,
  kQuarry,         // libquarry.so: an allocator of its own in each copy
  kQuarryShim,     // the LD_PRELOAD shim
  kCudaDriver,     // libcuda.so itself
  kCudaHook,       // stands between programs and the driver's allocation calls
  kGpuAllocator,   // caches GPU memory itself
  kHostAllocator,  // replaces malloc of host memory, or checks it
};

struct KnownLibrary {
  LibraryKind kind = LibraryKind::kUnknown;
  const char* name = "";  // for people
};

// `path` may be a bare file name. Version suffixes (".so.0.1.0") and " (deleted)" do not matter.
KnownLibrary recognise_library(std::string_view path);

}  // namespace quarry::tools
