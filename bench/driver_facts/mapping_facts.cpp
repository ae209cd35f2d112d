// SPDX-License-Identifier: Apache-2.0
// Section "mappings": which maps, unmaps and accesses the driver permits, which kinds of extent it
// makes, and what works on mapped memory.
#include <unistd.h>

#include <memory>

#include "bench/driver_facts/device_objects.hpp"
#include "bench/driver_facts/gpu_work.hpp"
#include "bench/driver_facts/sections.hpp"
#include "bench/driver_facts/timing.hpp"

namespace quarry::facts {
namespace {

constexpr std::uint64_t kExtent = 2 * kMiB;

void measure_granularity(Recorder& recorder) {
  const CUmemAllocationProp properties = make_extent_properties();
  std::size_t minimum = 0;
  std::size_t recommended = 0;
  require(cu().mem_get_granularity(&minimum, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
          "cuMemGetAllocationGranularity");
  require(
      cu().mem_get_granularity(&recommended, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
      "cuMemGetAllocationGranularity");
  recorder.add_row({"granularity, minimum, bytes", double(minimum)});
  recorder.add_row({"granularity, recommended, bytes", double(recommended)});
}

void measure_partial_maps(Recorder& recorder) {
  const Extent extent(2 * kExtent);
  const AddressRange range(4 * kExtent);
  const CUdeviceptr at = range.address();
  const CUmemAccessDesc access = make_read_write_access();
  const double half = cu().mem_map(at, kExtent, 0, extent.handle(), 0);
  const double offset = cu().mem_map(at, kExtent, kExtent, extent.handle(), 0);
  recorder.add_row({"map the first half of an extent", half});
  recorder.add_row({"map the second half (offset not 0)", offset});
  // A driver that permits it leaves mappings that would be in the way.
  if (half == 0 || offset == 0) static_cast<void>(cu().mem_unmap(at, kExtent));
  require(cu().mem_map(at, 2 * kExtent, 0, extent.handle(), 0), "cuMemMap");
  recorder.add_row(
      {"map it again over itself", double(cu().mem_map(at, 2 * kExtent, 0, extent.handle(), 0))});
  recorder.add_row(
      {"set access on a part of a mapping", double(cu().mem_set_access(at, kExtent, &access, 1))});
  recorder.add_row({"unmap a part of a mapping", double(cu().mem_unmap(at, kExtent))});
  const CUdeviceptr second = at + 2 * kExtent;
  recorder.add_row({"map it at a second address",
                    double(cu().mem_map(second, 2 * kExtent, 0, extent.handle(), 0))});
  recorder.add_row({"set access over both mappings in one call",
                    double(cu().mem_set_access(at, 4 * kExtent, &access, 1))});
  recorder.add_row({"unmap both in one call", double(cu().mem_unmap(at, 4 * kExtent))});
  recorder.add_row({"unmap addresses with no mapping", double(cu().mem_unmap(at, kExtent))});
}

// Does releasing the handle of a mapped extent give its memory back only with the mapping?
void measure_release_order(Recorder& recorder) {
  constexpr std::uint64_t kBytes = 256 * kMiB;
  const AddressRange range(kBytes);
  std::size_t free[3] = {};
  std::size_t total = 0;
  CUmemGenericAllocationHandle handle = 0;
  const CUmemAllocationProp properties = make_extent_properties();
  require(cu().mem_create(&handle, kBytes, &properties, 0), "cuMemCreate");
  require(cu().mem_map(range.address(), kBytes, 0, handle, 0), "cuMemMap");
  require(cu().mem_get_info(&free[0], &total), "cuMemGetInfo");
  require(cu().mem_release(handle), "cuMemRelease");
  require(cu().mem_get_info(&free[1], &total), "cuMemGetInfo");
  unmap_extent(range.address(), kBytes);
  require(cu().mem_get_info(&free[2], &total), "cuMemGetInfo");
  const bool stays = free[1] == free[0];
  const bool goes = free[2] >= free[1] + kBytes;
  recorder.add_row(
      {"memory stays after the release of a mapped extent's handle", stays ? "yes" : "no"});
  recorder.add_row({"memory goes back with its last mapping", goes ? "yes" : "no"});
  recorder.add_rule("a released extent lives until its last mapping is gone", stays && goes);
}

void measure_kinds(Recorder& recorder) {
  recorder.start_table("Kinds of extent, 2 MiB", {"what", "result"});
  CUmemGenericAllocationHandle handle = 0;
  CUmemAllocationProp properties = make_extent_properties();
  properties.allocFlags.gpuDirectRDMACapable = 1;
  const CUresult rdma = cu().mem_create(&handle, kExtent, &properties, 0);
  if (rdma == CUDA_SUCCESS) require(cu().mem_release(handle), "cuMemRelease");
  recorder.add_row({"create, RDMA-capable", double(rdma)});
  properties = make_extent_properties(CU_MEM_HANDLE_TYPE_FABRIC);
  const CUresult fabric = cu().mem_create(&handle, kExtent, &properties, 0);
  if (fabric == CUDA_SUCCESS) require(cu().mem_release(handle), "cuMemRelease");
  recorder.add_row({"create, fabric handle", double(fabric)});
  const auto kind = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  recorder.add_row({"create + release, file descriptor, microseconds",
                    measure_us(41, [&] { Extent(kExtent, kind); })});
  const Extent extent(kExtent, kind);
  std::vector<double> exports;
  std::vector<double> imports;
  for (int i = 0; i < 21; ++i) {
    int file = -1;
    exports.push_back(measure_once_us(
        [&] { require(cu().mem_export(&file, extent.handle(), kind, 0), "export"); }));
    imports.push_back(measure_once_us([&] {
      void* const os_handle = reinterpret_cast<void*>(static_cast<std::intptr_t>(file));
      require(cu().mem_import(&handle, os_handle, kind), "import");
    }));
    require(cu().mem_release(handle), "cuMemRelease");
    close(file);
  }
  recorder.add_row({"export to a file descriptor, microseconds", calculate_median(exports)});
  recorder.add_row({"import in the same process, microseconds", calculate_median(imports)});
}

void measure_on_mapped(Recorder& recorder) {
  recorder.start_table("On mapped memory", {"attempt", "result"});
  const Extent extents[2] = {Extent(kExtent), Extent(kExtent)};
  const AddressRange range(2 * kExtent);
  for (int i = 0; i < 2; ++i)
    map_extent(range.address() + static_cast<unsigned>(i) * kExtent, extents[i]);
  const CUdeviceptr inner = range.address() + kExtent + 4096;
  CUipcMemHandle ipc{};
  recorder.add_row({"cuIpcGetMemHandle", double(cu().ipc_get_mem_handle(&ipc, inner))});
  const unsigned on = 1;
  recorder.add_row(
      {"set CU_POINTER_ATTRIBUTE_SYNC_MEMOPS",
       double(cu().pointer_set_attribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, inner))});
  CUdeviceptr base = 0;
  std::size_t bytes = 0;
  recorder.add_row(
      {"cuMemGetAddressRange of an inner pointer of the second of two neighbouring mappings",
       double(cu().mem_get_address_range(&base, &bytes, inner))});
  const bool is_one_mapping = base == range.address() + kExtent && bytes == kExtent;
  recorder.add_row({"it answers with that one mapping", is_one_mapping ? "yes" : "no"});
  CUmemGenericAllocationHandle handle = 0;
  const CUresult retained = cu().mem_retain_handle(&handle, reinterpret_cast<void*>(inner));
  recorder.add_row({"cuMemRetainAllocationHandle of an inner pointer", double(retained)});
  if (retained == CUDA_SUCCESS) require(cu().mem_release(handle), "cuMemRelease");
  const OwnStream stream;
  recorder.add_row({"memset over both mappings in one call",
                    double(cu().memset_d8_async(range.address(), 0, 2 * kExtent, stream.get()))});
  require(cu().stream_synchronize(stream.get()), "cuStreamSynchronize");
  for (unsigned i = 0; i < 2; ++i)
    unmap_extent(range.address() + i * kExtent, kExtent);
}

void measure_early_free(Recorder& recorder) {
  const Extent extent(kExtent);
  const AddressRange range(kExtent);
  map_extent(range.address(), extent);
  recorder.start_table("Out of order", {"attempt", "result"});
  recorder.add_row({"free addresses with a mapping in them",
                    double(cu().mem_address_free(range.address(), kExtent))});
  recorder.add_row({"then unmap", double(cu().mem_unmap(range.address(), kExtent))});
}

// A call made while a kernel of 30 ms runs: did it wait?
void measure_waiting(Recorder& recorder) {
  recorder.start_table("Behind a kernel of 30 ms (on a stream that uses none of the memory)",
                       {"call", "microseconds", "kernel had ended"});
  const OwnStream stream;
  const AddressRange range(kExtent);
  std::unique_ptr<Extent> extent;
  bool waits = false;
  const auto measure = [&](const char* name, const std::function<void()>& call) {
    require(submit_spin(stream.get(), 30'000'000), "spin");
    const double us = measure_once_us(call);
    const bool has_ended = cu().stream_query(stream.get()) == CUDA_SUCCESS;
    waits |= has_ended;
    require(cu().stream_synchronize(stream.get()), "cuStreamSynchronize");
    recorder.add_row({name, us, has_ended ? "yes" : "no"});
  };
  const CUmemAccessDesc access = make_read_write_access();
  measure("cuMemCreate", [&] { extent = std::make_unique<Extent>(kExtent); });
  measure("cuMemMap", [&] {
    require(cu().mem_map(range.address(), kExtent, 0, extent->handle(), 0), "cuMemMap");
  });
  measure("cuMemSetAccess", [&] {
    require(cu().mem_set_access(range.address(), kExtent, &access, 1), "cuMemSetAccess");
  });
  measure("cuMemUnmap", [&] { unmap_extent(range.address(), kExtent); });
  measure("cuMemRelease", [&] { extent.reset(); });
  recorder.add_rule(
      "no call on extents waits for kernels, cuMemUnmap neither: the allocator must "
      "know that nothing uses the range",
      !waits);
}

}  // namespace

void measure_mappings(Recorder& recorder, const SectionOptions&) {
  recorder.start_table("Map, access, unmap", {"attempt", "result"});
  recorder.step("granularity", [&] { measure_granularity(recorder); });
  recorder.step("partial maps", [&] { measure_partial_maps(recorder); });
  recorder.step("order of release and unmap", [&] { measure_release_order(recorder); });
  recorder.step("kinds of extent", [&] { measure_kinds(recorder); });
  recorder.step("calls on mapped memory", [&] { measure_on_mapped(recorder); });
  recorder.step("calls behind a kernel", [&] { measure_waiting(recorder); });
  // Last: what it leaves behind, if it succeeds, is unknown.
  recorder.step("freeing mapped addresses", [&] { measure_early_free(recorder); });
}

}  // namespace quarry::facts
