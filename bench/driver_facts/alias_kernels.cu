// SPDX-License-Identifier: Apache-2.0
#include "bench/driver_facts/alias_kernels.hpp"

#include <cuda_runtime.h>

namespace quarry::facts {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kMostBlocks = 264;  // two for each processor of an H200: leaves room for more

__device__ std::uint32_t make_word(std::uint32_t value, std::uint64_t index) {
  return value ^ static_cast<std::uint32_t>(index * 2654435761u);
}

// Nothing happens in a kernel without dependents, or that depends on nothing.
__device__ void allow_dependents() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
__device__ void wait_for_prerequisites() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

__device__ std::uint32_t to_shared(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

// Where word `i` of a tile lies in the memory.
template <Way way>
__device__ std::uint64_t find_word(std::uint64_t tile, std::uint32_t i) {
  if (way != Way::kTensor2d) return tile * kTileWords + i;
  constexpr std::uint32_t squares = kRowWords / kSquareWords;
  const std::uint64_t row = tile / squares * kSquareWords + i / kSquareWords;
  return row * kRowWords + tile % squares * kSquareWords + i % kSquareWords;
}

template <Way way>
__device__ void store_tile(std::uint32_t* words, const CUtensorMap* map, std::uint64_t tile,
                           const std::uint32_t* shared) {
  if (way == Way::kBulk) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(
                     words + tile * kTileWords),
                 "r"(to_shared(shared)), "r"(static_cast<std::uint32_t>(kTileBytes))
                 : "memory");
  } else if (way == Way::kTensor1d) {
    for (std::uint32_t i = 0; i < kTileWords; i += kListBoxWords) {
      asm volatile(
          "cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%0, {%1}], [%2];" ::"l"(map),
          "r"(static_cast<std::uint32_t>(tile * kTileWords + i)), "r"(to_shared(shared + i))
          : "memory");
    }
  } else if (way == Way::kTensor2d) {
    const std::uint64_t first = find_word<way>(tile, 0);
    asm volatile(
        "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map),
        "r"(static_cast<std::uint32_t>(first % kRowWords)),
        "r"(static_cast<std::uint32_t>(first / kRowWords)), "r"(to_shared(shared))
        : "memory");
  }
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

template <Way way>
__device__ void load_tile(const std::uint32_t* words, const CUtensorMap* map, std::uint64_t tile,
                          std::uint32_t* shared, std::uint64_t* barrier) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(to_shared(barrier)),
               "r"(static_cast<std::uint32_t>(kTileBytes))
               : "memory");
  if (way == Way::kBulk) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
        "[%3];" ::"r"(to_shared(shared)),
        "l"(words + tile * kTileWords), "r"(static_cast<std::uint32_t>(kTileBytes)),
        "r"(to_shared(barrier))
        : "memory");
  } else if (way == Way::kTensor1d) {
    for (std::uint32_t i = 0; i < kTileWords; i += kListBoxWords) {
      asm volatile(
          "cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes "
          "[%0], [%1, {%2}], [%3];" ::"r"(to_shared(shared + i)),
          "l"(map), "r"(static_cast<std::uint32_t>(tile * kTileWords + i)), "r"(to_shared(barrier))
          : "memory");
    }
  } else if (way == Way::kTensor2d) {
    const std::uint64_t first = find_word<way>(tile, 0);
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3}], [%4];" ::"r"(to_shared(shared)),
        "l"(map), "r"(static_cast<std::uint32_t>(first % kRowWords)),
        "r"(static_cast<std::uint32_t>(first / kRowWords)), "r"(to_shared(barrier))
        : "memory");
  }
}

__device__ void wait_for_tile(std::uint64_t* barrier, std::uint32_t parity) {
  std::uint32_t is_done = 0;
  while (is_done == 0) {
    asm volatile(
        "{\n.reg .pred done;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
        "selp.u32 %0, 1, 0, done;\n}"
        : "=r"(is_done)
        : "r"(to_shared(barrier)), "r"(parity)
        : "memory");
  }
}

template <Way way>
__global__ void write_tiles(std::uint32_t* words, const __grid_constant__ CUtensorMap map,
                            std::uint64_t tiles, std::uint32_t value) {
  allow_dependents();
  wait_for_prerequisites();
  if constexpr (way == Way::kPlain) {
    for (std::uint64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
      for (std::uint32_t i = threadIdx.x; i < kTileWords; i += kThreads) {
        const std::uint64_t place = find_word<way>(tile, i);
        words[place] = make_word(value, place);
      }
    }
  } else {
    alignas(128) __shared__ std::uint32_t shared[kTileWords];
    for (std::uint64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
      for (std::uint32_t i = threadIdx.x; i < kTileWords; i += kThreads) {
        shared[i] = make_word(value, find_word<way>(tile, i));
      }
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      __syncthreads();
      if (threadIdx.x == 0) {
        store_tile<way>(words, &map, tile, shared);
        asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
      }
      __syncthreads();
    }
    if (threadIdx.x == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  }
}

// Loads what the thread will check, and makes sure that the compiler keeps the loads.
template <Way way>
__device__ void touch(const std::uint32_t* words, std::uint64_t tiles) {
  for (std::uint64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    for (std::uint32_t i = threadIdx.x; i < kTileWords; i += kThreads) {
      std::uint32_t ignored;
      asm volatile("ld.global.ca.u32 %0, [%1];"
                   : "=r"(ignored)
                   : "l"(words + find_word<way>(tile, i))
                   : "memory");
    }
  }
}

__device__ void count(WordCounts* counts, unsigned compared, unsigned wrong) {
  compared = __reduce_add_sync(0xffffffffu, compared);
  wrong = __reduce_add_sync(0xffffffffu, wrong);
  if (threadIdx.x % 32 != 0) return;
  atomicAdd(&counts->compared, compared);
  if (wrong != 0) atomicAdd(&counts->wrong, wrong);
}

template <Way way>
__device__ std::uint32_t load_word(const std::uint32_t* word) {
  if constexpr (way == Way::kReadOnly) return __ldg(word);
  return *word;
}

template <Way way>
__global__ void read_tiles(const std::uint32_t* words, const __grid_constant__ CUtensorMap map,
                           std::uint64_t tiles, std::uint32_t value, const std::uint32_t* touched,
                           WordCounts* counts) {
  allow_dependents();
  if (touched != nullptr) touch<way>(touched, tiles);
  wait_for_prerequisites();
  unsigned compared = 0;
  unsigned wrong = 0;
  const auto compare = [&](std::uint32_t word, std::uint64_t place) {
    ++compared;
    wrong += word != make_word(value, place) ? 1 : 0;
  };
  if constexpr (way == Way::kPlain || way == Way::kReadOnly) {
    for (std::uint64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
      for (std::uint32_t i = threadIdx.x; i < kTileWords; i += kThreads) {
        const std::uint64_t place = find_word<way>(tile, i);
        compare(load_word<way>(words + place), place);
      }
    }
  } else {
    alignas(128) __shared__ std::uint32_t shared[kTileWords];
    __shared__ std::uint64_t barrier;
    if (threadIdx.x == 0) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(to_shared(&barrier)) : "memory");
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
    std::uint32_t parity = 0;
    for (std::uint64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
      if (threadIdx.x == 0) load_tile<way>(words, &map, tile, shared, &barrier);
      wait_for_tile(&barrier, parity);
      for (std::uint32_t i = threadIdx.x; i < kTileWords; i += kThreads) {
        compare(shared[i], find_word<way>(tile, i));
      }
      __syncthreads();
      parity ^= 1;
    }
  }
  count(counts, compared, wrong);
}

__global__ void read_constant(const std::uint32_t* words, std::uint64_t words_in_all,
                              std::uint32_t value, WordCounts* counts) {
  allow_dependents();
  wait_for_prerequisites();
  unsigned compared = 0;
  unsigned wrong = 0;
  const std::uint64_t stride = static_cast<std::uint64_t>(gridDim.x) * kThreads;
  for (std::uint64_t i = blockIdx.x * kThreads + threadIdx.x; i < words_in_all; i += stride) {
    ++compared;
    wrong += words[i] != value ? 1 : 0;
  }
  count(counts, compared, wrong);
}

__global__ void spoil_word(std::uint32_t* word) {
  *word = ~*word;
}

class LaunchConfig {
 public:
  LaunchConfig(std::uint64_t tiles, const LaunchPlan& plan) {
    config_.gridDim = dim3(static_cast<unsigned>(tiles < kMostBlocks ? tiles : kMostBlocks));
    config_.blockDim = dim3(kThreads);
    config_.stream = plan.stream;
    attribute_.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute_.val.programmaticStreamSerializationAllowed = 1;
    config_.attrs = &attribute_;
    config_.numAttrs = plan.is_programmatic ? 1 : 0;
  }
  const cudaLaunchConfig_t* get() const { return &config_; }

 private:
  cudaLaunchConfig_t config_{};
  cudaLaunchAttribute attribute_{};
};

std::uint32_t* to_words(CUdeviceptr address) {
  return reinterpret_cast<std::uint32_t*>(address);
}

const CUtensorMap& get_map(Way way, const View& view) {
  return way == Way::kTensor2d ? view.rows : view.list;
}

template <Way way>
int write(const View& view, std::uint32_t value, const LaunchPlan& plan) {
  const std::uint64_t tiles = view.bytes / kTileBytes;
  const LaunchConfig config(tiles, plan);
  return cudaLaunchKernelEx(config.get(), write_tiles<way>, to_words(view.address),
                            get_map(way, view), tiles, value);
}

template <Way way>
int read(const View& view, std::uint32_t value, CUdeviceptr touched, WordCounts* counts,
         const LaunchPlan& plan) {
  const std::uint64_t tiles = view.bytes / kTileBytes;
  const LaunchConfig config(tiles, plan);
  return cudaLaunchKernelEx(config.get(), read_tiles<way>,
                            static_cast<const std::uint32_t*>(to_words(view.address)),
                            get_map(way, view), tiles, value,
                            static_cast<const std::uint32_t*>(to_words(touched)), counts);
}

}  // namespace

int launch_write(Way way, const View& view, std::uint32_t value, const LaunchPlan& plan) {
  switch (way) {
    case Way::kBulk:
      return write<Way::kBulk>(view, value, plan);
    case Way::kTensor1d:
      return write<Way::kTensor1d>(view, value, plan);
    case Way::kTensor2d:
      return write<Way::kTensor2d>(view, value, plan);
    default:
      return write<Way::kPlain>(view, value, plan);
  }
}

int launch_read(Way way, const View& view, std::uint32_t value, CUdeviceptr touched,
                WordCounts* counts, const LaunchPlan& plan) {
  switch (way) {
    case Way::kReadOnly:
      return read<Way::kReadOnly>(view, value, touched, counts, plan);
    case Way::kBulk:
      return read<Way::kBulk>(view, value, touched, counts, plan);
    case Way::kTensor1d:
      return read<Way::kTensor1d>(view, value, touched, counts, plan);
    case Way::kTensor2d:
      return read<Way::kTensor2d>(view, value, touched, counts, plan);
    default:
      return read<Way::kPlain>(view, value, touched, counts, plan);
  }
}

int launch_read_constant(const View& view, std::uint32_t value, WordCounts* counts,
                         const LaunchPlan& plan) {
  const LaunchConfig config(view.bytes / kTileBytes, plan);
  return cudaLaunchKernelEx(config.get(), read_constant,
                            static_cast<const std::uint32_t*>(to_words(view.address)),
                            view.bytes / 4, value, counts);
}

int launch_spoil(CUdeviceptr address, CUstream stream) {
  spoil_word<<<1, 1, 0, stream>>>(to_words(address));
  return cudaGetLastError();
}

int load_alias_kernels() {
  // Asking for a kernel's attributes loads it.
  int code = 0;
  for (const void* kernel :
       {reinterpret_cast<const void*>(write_tiles<Way::kPlain>),
        reinterpret_cast<const void*>(write_tiles<Way::kBulk>),
        reinterpret_cast<const void*>(write_tiles<Way::kTensor1d>),
        reinterpret_cast<const void*>(write_tiles<Way::kTensor2d>),
        reinterpret_cast<const void*>(read_tiles<Way::kPlain>),
        reinterpret_cast<const void*>(read_tiles<Way::kReadOnly>),
        reinterpret_cast<const void*>(read_tiles<Way::kBulk>),
        reinterpret_cast<const void*>(read_tiles<Way::kTensor1d>),
        reinterpret_cast<const void*>(read_tiles<Way::kTensor2d>),
        reinterpret_cast<const void*>(read_constant), reinterpret_cast<const void*>(spoil_word)}) {
    cudaFuncAttributes attributes{};
    if (code == 0) code = cudaFuncGetAttributes(&attributes, kernel);
  }
  return code;
}

}  // namespace quarry::facts
