// SPDX-License-Identifier: Apache-2.0
// Section "plain": cuMemAlloc and cuMemFree, what they cost, refuse and wait for.
#include <cstring>
#include <thread>

#include "bench/driver_facts/device_objects.hpp"
#include "bench/driver_facts/gpu_work.hpp"
#include "bench/driver_facts/sections.hpp"
#include "bench/driver_facts/timing.hpp"

namespace quarry::facts {
namespace {

std::string format_bytes(std::uint64_t bytes) {
  if (bytes >= kGiB) return std::to_string(bytes / kGiB) + " GiB";
  if (bytes >= kMiB) return std::to_string(bytes / kMiB) + " MiB";
  return std::to_string(bytes) + " B";
}

void measure_pairs(Recorder& recorder) {
  recorder.start_table("cuMemAlloc and cuMemFree, in microseconds",
                       {"bytes", "allocate", "free", "both"});
  for (std::uint64_t bytes : {std::uint64_t{512}, 64 * 1024 + std::uint64_t{0}, kMiB, 2 * kMiB,
                              20 * kMiB, 256 * kMiB, 2 * kGiB}) {
    std::vector<double> allocations;
    std::vector<double> frees;
    for (int i = 0; i < 41; ++i) {
      CUdeviceptr address = 0;
      allocations.push_back(
          measure_once_us([&] { require(cu().mem_alloc(&address, bytes), "cuMemAlloc"); }));
      frees.push_back(measure_once_us([&] { require(cu().mem_free(address), "cuMemFree"); }));
    }
    const double allocate = calculate_median(allocations);
    const double free = calculate_median(frees);
    recorder.add_row({format_bytes(bytes), allocate, free, allocate + free});
  }
}

void measure_other_costs(Recorder& recorder) {
  recorder.start_table("Other costs, in microseconds", {"call", "cost"});
  {
    const PlainMemory open_page(512);
    recorder.add_row({"cuMemAlloc + cuMemFree of 512 B that fit an open 2 MiB page",
                      measure_us(101, [] { PlainMemory(512); })});
  }
  CUdeviceptr address = 0;
  recorder.add_row({"failing cuMemAlloc (16 TiB)", measure_us(21, [&] {
                      static_cast<void>(cu().mem_alloc(&address, 16384 * kGiB));
                    })});
  std::size_t free = 0;
  std::size_t total = 0;
  recorder.add_row({"cuMemGetInfo", measure_us(101, [&] {
                      require(cu().mem_get_info(&free, &total), "cuMemGetInfo");
                    })});
  const PlainMemory memory(2 * kMiB);
  CUipcMemHandle handle{};
  recorder.add_row(
      {"cuIpcGetMemHandle", measure_ns([&] {
                              require(cu().ipc_get_mem_handle(&handle, memory.address()), "ipc");
                            }) / 1000});
}

double measure_async_us(unsigned threads) {
  std::vector<double> costs(threads);
  std::vector<std::thread> workers;
  for (unsigned i = 0; i < threads; ++i) {
    workers.emplace_back([&costs, i] {
      try {
        enter_context();
        const OwnStream stream;
        costs[i] = measure_ns([&] {
                     CUdeviceptr address = 0;
                     require(cu().mem_alloc_async(&address, 65536, stream.get()), "allocate");
                     require(cu().mem_free_async(address, stream.get()), "free");
                   }) /
                   1000;
      } catch (const DriverError&) {
        costs[i] = -1;
      }
    });
  }
  for (std::thread& worker : workers)
    worker.join();
  return calculate_median(costs);
}

void measure_stream_ordered(Recorder& recorder) {
  recorder.start_table("cuMemAllocAsync + cuMemFreeAsync of 64 KiB, cached, own streams",
                       {"threads", "microseconds for each pair"});
  for (unsigned threads : {1u, 4u, 16u})
    recorder.add_row({std::to_string(threads), measure_async_us(threads)});
}

struct BusyStream {
  const char* name;
  CUstream stream;
};

// For how long each call takes behind a kernel of 30 ms, and whether that had ended.
void measure_waiting(Recorder& recorder) {
  constexpr std::uint64_t kKernelNs = 30'000'000;
  recorder.start_table("cuMemFree behind a kernel of 30 ms",
                       {"kernel on", "block", "cuMemFree took, ms", "kernel had ended"});
  const OwnStream blocking(CU_STREAM_DEFAULT);
  const OwnStream non_blocking(CU_STREAM_NON_BLOCKING);
  bool waits_always = true;
  for (const BusyStream& busy : {BusyStream{"legacy stream", CU_STREAM_LEGACY},
                                 {"blocking stream", blocking.get()},
                                 {"non-blocking stream", non_blocking.get()},
                                 {"per-thread stream", CU_STREAM_PER_THREAD}}) {
    for (std::uint64_t bytes : {std::uint64_t{512}, 20 * kMiB}) {
      CUdeviceptr address = 0;
      require(cu().mem_alloc(&address, bytes), "cuMemAlloc");
      require(submit_spin(busy.stream, kKernelNs), "spin");
      const double us = measure_once_us([&] { require(cu().mem_free(address), "cuMemFree"); });
      const bool has_ended = cu().stream_query(busy.stream) == CUDA_SUCCESS;
      waits_always &= has_ended;
      require(cu().stream_synchronize(busy.stream), "cuStreamSynchronize");
      recorder.add_row({busy.name, format_bytes(bytes), us / 1000, has_ended ? "yes" : "no"});
    }
  }
  recorder.add_rule(
      "cuMemFree waits for every kernel of the context, so it is called with no "
      "lock held",
      waits_always);
}

void measure_neighbours(Recorder& recorder) {
  std::size_t before = 0;
  std::size_t after = 0;
  std::size_t total = 0;
  std::vector<CUdeviceptr> blocks(4096);
  require(cu().mem_get_info(&before, &total), "cuMemGetInfo");
  for (CUdeviceptr& block : blocks)
    require(cu().mem_alloc(&block, 512), "cuMemAlloc");
  require(cu().mem_get_info(&after, &total), "cuMemGetInfo");
  recorder.add_row({"4096 blocks of 512 B take from the device",
                    format_bytes(before >= after ? before - after : 0)});
  recorder.add_row(
      {"distance of the first two of them",
       format_bytes(blocks[1] > blocks[0] ? blocks[1] - blocks[0] : blocks[0] - blocks[1])});
  for (CUdeviceptr block : blocks)
    require(cu().mem_free(block), "cuMemFree");
}

void measure_ipc_handle(Recorder& recorder) {
  const PlainMemory memory(4 * kMiB);
  CUipcMemHandle whole{};
  CUipcMemHandle inner{};
  require(cu().ipc_get_mem_handle(&whole, memory.address()), "cuIpcGetMemHandle");
  recorder.add_row({"cuIpcGetMemHandle of an interior pointer",
                    double(cu().ipc_get_mem_handle(&inner, memory.address() + kMiB))});
  recorder.add_row({"its handle is that of the whole allocation",
                    std::memcmp(&whole, &inner, sizeof whole) == 0 ? "yes" : "no"});
  int zero_bytes = 0;
  for (char byte : whole.reserved)
    zero_bytes += byte == 0 ? 1 : 0;
  recorder.add_row({"bytes of the 64 of that handle that are zero", double(zero_bytes)});
}

void measure_refusals(Recorder& recorder) {
  recorder.start_table("What it answers", {"attempt", "result"});
  CUdeviceptr address = 0;
  recorder.add_row({"cuMemAlloc of 0 bytes", double(cu().mem_alloc(&address, 0))});
  recorder.add_row({"cuMemFree of address 0", double(cu().mem_free(0))});
  require(cu().mem_alloc(&address, 4 * kMiB), "cuMemAlloc");
  recorder.add_row({"cuMemFree of an interior pointer", double(cu().mem_free(address + 512))});
  require(cu().mem_free(address), "cuMemFree");
  recorder.add_row({"cuMemFree a second time", double(cu().mem_free(address))});
  const OwnStream stream;
  require(cu().mem_alloc(&address, 4 * kMiB), "cuMemAlloc");
  recorder.add_row({"cuMemFreeAsync of memory of cuMemAlloc",
                    double(cu().mem_free_async(address, stream.get()))});
  require(cu().stream_synchronize(stream.get()), "cuStreamSynchronize");
  require(cu().mem_alloc_async(&address, 4 * kMiB, stream.get()), "cuMemAllocAsync");
  recorder.add_row({"cuMemFree of memory of cuMemAllocAsync", double(cu().mem_free(address))});
  measure_neighbours(recorder);
  measure_ipc_handle(recorder);
}

}  // namespace

void measure_plain_memory(Recorder& recorder, const SectionOptions&) {
  recorder.step("pairs of cuMemAlloc and cuMemFree", [&] { measure_pairs(recorder); });
  recorder.step("other costs", [&] { measure_other_costs(recorder); });
  recorder.step("stream-ordered allocation", [&] { measure_stream_ordered(recorder); });
  recorder.step("cuMemFree behind kernels", [&] { measure_waiting(recorder); });
  recorder.step("refusals", [&] { measure_refusals(recorder); });
}

}  // namespace quarry::facts
