// SPDX-License-Identifier: Apache-2.0
#include "tools/known_library.hpp"

namespace quarry::tools {
namespace {

// The file's name begins so; names with a '/' stand for a part of the path.
struct Pattern {
  std::string_view begin;
  KnownLibrary library;
};

// The first that fits counts.
constexpr Pattern kPatterns[] = {
    {"libquarry_preload.", {LibraryKind::kQuarryShim, "Quarry's shim"}},
    {"libquarry.", {LibraryKind::kQuarry, "Quarry"}},
    {"libcuda.so", {LibraryKind::kCudaDriver, "the CUDA driver"}},
    {"libvgpu.", {LibraryKind::kCudaHook, "HAMi-core, limits a container's GPU memory"}},
    {"libvgpu-control.", {LibraryKind::kCudaHook, "vgpu-manager, limits GPU memory"}},
    {"libnvshare.", {LibraryKind::kCudaHook, "nvshare, GPU memory as managed memory"}},
    {"torch_memory_saver_hook", {LibraryKind::kCudaHook, "torch_memory_saver"}},
    {"librmm.", {LibraryKind::kGpuAllocator, "RMM"}},
    {"libc10_cuda.", {LibraryKind::kGpuAllocator, "PyTorch's allocator"}},
    {"xla_cuda_plugin.", {LibraryKind::kGpuAllocator, "JAX's allocator"}},
    {"xla_extension.", {LibraryKind::kGpuAllocator, "JAX's allocator"}},
    {"libtensorflow_framework.", {LibraryKind::kGpuAllocator, "TensorFlow's allocator"}},
    {"/cupy/cuda/memory.", {LibraryKind::kGpuAllocator, "CuPy's memory pool"}},
    {"libonnxruntime_providers_cuda.", {LibraryKind::kGpuAllocator, "ONNX Runtime's arena"}},
    {"libjemalloc.", {LibraryKind::kHostAllocator, "jemalloc"}},
    {"libtcmalloc", {LibraryKind::kHostAllocator, "tcmalloc"}},
    {"libmimalloc", {LibraryKind::kHostAllocator, "mimalloc"}},
    {"libasan.", {LibraryKind::kHostAllocator, "AddressSanitizer"}},
    {"libtsan.", {LibraryKind::kHostAllocator, "ThreadSanitizer"}},
};

}  // namespace

KnownLibrary recognise_library(std::string_view path) {
  const std::string_view file = path.substr(path.rfind('/') + 1);
  for (const Pattern& pattern : kPatterns) {
    const bool is_path = pattern.begin.starts_with('/');
    if (is_path ? path.find(pattern.begin) != std::string_view::npos
                : file.starts_with(pattern.begin)) {
      return pattern.library;
    }
  }
  return {};
}

}  // namespace quarry::tools
