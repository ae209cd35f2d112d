// SPDX-License-Identifier: Apache-2.0
// Kernels that write a pattern into memory and check it word by word, by every way a kernel can
// reach memory: plain loads and stores, the read-only path, bulk asynchronous copies, and tensor
// copies. Each takes part in programmatic dependent launch. Only alias_kernels.cu needs nvcc; it
// knows nothing of mappings. Functions return the runtime's code, 0 for success.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace quarry::facts {

enum class Way { kPlain, kReadOnly, kBulk, kTensor1d, kTensor2d };

// The kernels go through memory in tiles of this size, and take whole tiles only.
constexpr std::uint64_t kTileBytes = 16384;
constexpr std::uint32_t kTileWords = kTileBytes / 4;
// A tensor copy moves this many words at once from a list of words ...
constexpr std::uint32_t kListBoxWords = 256;
// ... or a square of words of this width from rows of kRowWords.
constexpr std::uint32_t kSquareWords = 64;
constexpr std::uint32_t kRowWords = 1024;

// Memory as a kernel is given it. The descriptors are read during the launch call only.
struct View {
  CUdeviceptr address = 0;
  std::uint64_t bytes = 0;  // whole tiles
  CUtensorMap list{};       // of rank 1, over the same memory
  CUtensorMap rows{};       // of rank 2
};

// Counted on the device.
struct WordCounts {
  unsigned long long compared = 0;
  unsigned long long wrong = 0;
};

struct LaunchPlan {
  CUstream stream = nullptr;
  bool is_programmatic = false;  // may start before the kernel in front of it ends
};

// Writes `value` mixed with each word's index. The kernel lets its dependents start at once, and
// waits for what it depends on before it writes.
int launch_write(Way way, const View& view, std::uint32_t value, const LaunchPlan& plan);

// Adds to `counts` the words compared, and those that launch_write did not write with this value.
// If `touched` is not 0, each thread first loads (and ignores) there the words that it will check,
// before it waits for what the kernel depends on.
int launch_read(Way way, const View& view, std::uint32_t value, CUdeviceptr touched,
                WordCounts* counts, const LaunchPlan& plan);

// As launch_read of plain words that all hold `value` itself, as a memset leaves them.
int launch_read_constant(const View& view, std::uint32_t value, WordCounts* counts,
                         const LaunchPlan& plan);

// Inverts the bits of one word.
int launch_spoil(CUdeviceptr address, CUstream stream);

// Loads every kernel, so that no capture meets a first launch.
int load_alias_kernels();

}  // namespace quarry::facts
