// SPDX-License-Identifier: Apache-2.0
#include "bench/driver_facts/alias_coherence.hpp"

#include <chrono>

namespace quarry::facts {
namespace {

CUtensorMap encode(CUdeviceptr address, std::uint32_t rank, const cuuint64_t* sizes,
                   const cuuint64_t* strides, const cuuint32_t* box) {
  constexpr cuuint32_t ones[] = {1, 1};
  CUtensorMap map{};
  require(cu().tensor_map_encode_tiled(
              &map, CU_TENSOR_MAP_DATA_TYPE_UINT32, rank, reinterpret_cast<void*>(address), sizes,
              strides, box, ones, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
              CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
          "cuTensorMapEncodeTiled");
  return map;
}

}  // namespace

View make_view(CUdeviceptr address, std::uint64_t bytes) {
  View view;
  view.address = address;
  view.bytes = bytes;
  const cuuint64_t list_size[] = {bytes / 4};
  const cuuint32_t list_box[] = {kListBoxWords};
  // A list has no stride between rows, but the driver wants a pointer to strides.
  const cuuint64_t row_stride[] = {kRowWords * 4};
  view.list = encode(address, 1, list_size, row_stride, list_box);
  const cuuint64_t rows_size[] = {kRowWords, bytes / 4 / kRowWords};
  const cuuint32_t square[] = {kSquareWords, kSquareWords};
  view.rows = encode(address, 2, rows_size, row_stride, square);
  return view;
}

AliasLab::AliasLab(std::uint64_t bytes, bool has_alias)
    : bytes_(bytes),
      has_alias_(has_alias),
      extent_(bytes),
      ranges_{AddressRange(bytes), AddressRange(bytes)},
      plain_(bytes),
      counts_(sizeof(WordCounts)) {
  require(load_alias_kernels(), "loading the kernels");
  require(cu().mem_host_alloc(&host_, bytes, 0), "cuMemHostAlloc");
  map_extent(ranges_[0].address(), extent_);
  if (has_alias) map_extent(ranges_[1].address(), extent_);
  views_[0] = make_view(ranges_[0].address(), bytes);
  views_[1] = has_alias ? make_view(ranges_[1].address(), bytes) : views_[0];
  views_[2] = make_view(plain_.address(), bytes);
  require(cu().memset_d8_async(counts_.address(), 0, sizeof(WordCounts), stream()), "memset");
  require(cu().stream_synchronize(stream()), "cuStreamSynchronize");
}

AliasLab::~AliasLab() {
  static_cast<void>(cu().ctx_synchronize());
  static_cast<void>(cu().mem_unmap(ranges_[0].address(), bytes_));
  if (has_alias_) static_cast<void>(cu().mem_unmap(ranges_[1].address(), bytes_));
  static_cast<void>(cu().mem_free_host(host_));
}

WordCounts AliasLab::read_counts() const {
  require(cu().ctx_synchronize(), "cuCtxSynchronize");
  WordCounts counts;
  require(cu().memcpy_dtoh_async(&counts, counts_.address(), sizeof counts, stream()), "copy");
  require(cu().stream_synchronize(stream()), "cuStreamSynchronize");
  return counts;
}

AliasOutcome run_alias_trial(const AliasTrial& trial, std::uint64_t bytes, unsigned rounds,
                             bool has_alias) {
  enter_context();
  AliasLab lab(bytes, has_alias);
  AliasOutcome outcome;
  const auto start = std::chrono::steady_clock::now();
  outcome.expected = trial.run(lab, rounds);
  outcome.counts = lab.read_counts();
  outcome.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return outcome;
}

WordCounts count_spoiled_words(Way way, std::uint64_t bytes, unsigned spoiled) {
  enter_context();
  const AliasLab lab(bytes, true);
  const LaunchPlan plan{lab.stream(), false};
  require(launch_write(way, lab.old_view(0), 1, plan), "write");
  for (unsigned i = 0; i < spoiled; ++i) {
    // The offset in the tile differs from tile to tile.
    const std::uint64_t at = i * kTileBytes + (i * 4099ull % kTileWords) * 4;
    require(launch_spoil(lab.old_view(0).address + at, lab.stream()), "spoil");
  }
  require(launch_read(way, lab.new_view(0), 1, 0, lab.counts(), plan), "read");
  return lab.read_counts();
}

}  // namespace quarry::facts
