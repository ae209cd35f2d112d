// SPDX-License-Identifier: Apache-2.0
// Section "extents": what creating, mapping and releasing physical memory costs, by size and with
// many extents mapped.
#include <algorithm>
#include <memory>

#include "bench/driver_facts/device_objects.hpp"
#include "bench/driver_facts/sections.hpp"
#include "bench/driver_facts/timing.hpp"

namespace quarry::facts {
namespace {

using Handle = CUmemGenericAllocationHandle;

struct ExtentCosts {
  double create, map, access_alone, access_bulk, unmap_alone, unmap_bulk, release;
};

void create(Handle& handle, std::uint64_t bytes) {
  const CUmemAllocationProp properties = make_extent_properties();
  require(cu().mem_create(&handle, bytes, &properties, 0), "cuMemCreate");
}

void map(CUdeviceptr address, std::uint64_t bytes, Handle handle) {
  require(cu().mem_map(address, bytes, 0, handle, 0), "cuMemMap");
}

void set_access(CUdeviceptr address, std::uint64_t bytes) {
  const CUmemAccessDesc access = make_read_write_access();
  require(cu().mem_set_access(address, bytes, &access, 1), "cuMemSetAccess");
}

// Maps all, makes them accessible and unmaps them, once in single calls and once in one.
ExtentCosts measure_size(std::uint64_t bytes, std::size_t count) {
  const AddressRange range(bytes * count);
  std::vector<Handle> handles(count);
  std::vector<double> creates, maps, accesses, unmaps, bulk_accesses, bulk_unmaps, releases;
  const auto at = [&](std::size_t i) { return range.address() + i * bytes; };
  for (Handle& handle : handles)
    creates.push_back(measure_once_us([&] { create(handle, bytes); }));
  for (int repeat = 0; repeat < 3; ++repeat) {
    for (std::size_t i = 0; i < count; ++i) {
      maps.push_back(measure_once_us([&] { map(at(i), bytes, handles[i]); }));
      accesses.push_back(measure_once_us([&] { set_access(at(i), bytes); }));
    }
    for (std::size_t i = 0; i < count; ++i)
      unmaps.push_back(measure_once_us([&] { unmap_extent(at(i), bytes); }));
    for (std::size_t i = 0; i < count; ++i)
      map(at(i), bytes, handles[i]);
    bulk_accesses.push_back(measure_once_us([&] { set_access(at(0), bytes * count); }));
    bulk_unmaps.push_back(measure_once_us([&] { unmap_extent(at(0), bytes * count); }));
  }
  for (Handle handle : handles)
    releases.push_back(measure_once_us([&] { require(cu().mem_release(handle), "release"); }));
  const double n = static_cast<double>(count);
  return {calculate_median(creates),  calculate_median(maps),
          calculate_median(accesses), calculate_median(bulk_accesses) / n,
          calculate_median(unmaps),   calculate_median(bulk_unmaps) / n,
          calculate_median(releases)};
}

void measure_sizes(Recorder& recorder) {
  recorder.start_table("", {"extent", "create", "map", "set access, alone", "set access, bulk",
                            "unmap, alone", "unmap, bulk", "release"});
  ExtentCosts small{};
  ExtentCosts large{};
  for (std::uint64_t bytes : {2 * kMiB, 8 * kMiB, 32 * kMiB, 64 * kMiB, 256 * kMiB, kGiB}) {
    const std::size_t count = std::clamp<std::size_t>(8 * kGiB / bytes, 8, 64);
    const ExtentCosts costs = measure_size(bytes, count);
    if (bytes == 2 * kMiB) small = costs;
    if (bytes == 64 * kMiB) large = costs;
    recorder.add_row({std::to_string(bytes / kMiB) + " MiB", costs.create, costs.map,
                      costs.access_alone, costs.access_bulk, costs.unmap_alone, costs.unmap_bulk,
                      costs.release});
  }
  // 32 times the bytes: a cost that went by the byte would be 32 times as high.
  const double ratio = (large.map + large.access_bulk + large.unmap_bulk) /
                       (small.map + small.access_bulk + small.unmap_bulk);
  recorder.add_rule(
      "moving a mapping of 64 MiB costs less than 4 times one of 2 MiB: the cost is "
      "of the mapping, not of the bytes (extent sizes grow with the pool)",
      ratio < 4);
}

void measure_addresses(Recorder& recorder) {
  recorder.start_table("Addresses", {"what", "result"});
  std::vector<double> reserves;
  std::vector<double> frees;
  for (int i = 0; i < 21; ++i) {
    CUdeviceptr address = 0;
    reserves.push_back(measure_once_us([&] {
      require(cu().mem_address_reserve(&address, 256 * kGiB, 0, 0, 0), "cuMemAddressReserve");
    }));
    frees.push_back(measure_once_us(
        [&] { require(cu().mem_address_free(address, 256 * kGiB), "cuMemAddressFree"); }));
  }
  recorder.add_row({"reserve 256 GiB, microseconds", calculate_median(reserves)});
  recorder.add_row({"free them, microseconds", calculate_median(frees)});
  std::vector<std::pair<CUdeviceptr, std::uint64_t>> reserved;
  for (std::uint64_t tebibytes : {64, 32, 16, 8, 4, 2, 1}) {
    const std::uint64_t bytes = tebibytes * 1024 * kGiB;
    int count = 0;
    CUdeviceptr address = 0;
    while (count < 128 && cu().mem_address_reserve(&address, bytes, 0, 0, 0) == CUDA_SUCCESS) {
      reserved.emplace_back(address, bytes);
      ++count;
    }
    recorder.add_row(
        {"then as many of " + std::to_string(tebibytes) + " TiB as succeed", double(count)});
  }
  for (const auto& [address, bytes] : reserved)
    require(cu().mem_address_free(address, bytes), "cuMemAddressFree");
}

// Grows to ever more mapped extents of 2 MiB, up to what the device has room for.
class ManyExtents {
 public:
  explicit ManyExtents(std::size_t most) : most_(most), range_((most + 1) * 2 * kMiB) {}
  ~ManyExtents() {
    for (std::size_t i = 0; i < handles_.size(); ++i)
      static_cast<void>(cu().mem_unmap(at(i), 2 * kMiB));
    for (Handle handle : handles_)
      static_cast<void>(cu().mem_release(handle));
  }
  ManyExtents(const ManyExtents&) = delete;
  ManyExtents& operator=(const ManyExtents&) = delete;

  // Median of create, map and set access over the last of them.
  double grow_to(std::size_t count) {
    std::vector<double> costs;
    while (handles_.size() < count) {
      handles_.push_back(0);
      costs.push_back(measure_once_us([&] {
        create(handles_.back(), 2 * kMiB);
        map(at(handles_.size() - 1), 2 * kMiB, handles_.back());
        set_access(at(handles_.size() - 1), 2 * kMiB);
      }));
    }
    costs.erase(costs.begin(), costs.end() - std::min<std::ptrdiff_t>(1000, std::ssize(costs)));
    return calculate_median(costs);
  }

  // Of moving one to the spare address and back.
  double measure_move_us() {
    return measure_us(101,
                      [&] {
                        for (const auto& [from, to] :
                             {std::pair{at(7), at(most_)}, std::pair{at(most_), at(7)}}) {
                          unmap_extent(from, 2 * kMiB);
                          map(to, 2 * kMiB, handles_[7]);
                          set_access(to, 2 * kMiB);
                        }
                      }) /
           2;
  }

 private:
  CUdeviceptr at(std::size_t i) const { return range_.address() + i * 2 * kMiB; }

  const std::size_t most_;
  const AddressRange range_;
  std::vector<Handle> handles_;
};

void measure_scale(Recorder& recorder) {
  std::size_t free = 0;
  std::size_t total = 0;
  require(cu().mem_get_info(&free, &total), "cuMemGetInfo");
  const std::size_t most = std::min<std::size_t>(50'000, free / 10 * 9 / (2 * kMiB));
  if (most < 1'000) throw DriverError("less than 2 GiB of memory are free");
  recorder.start_table("With many extents of 2 MiB mapped, in microseconds for one",
                       {"mapped", "create + map + set access", "move (unmap, map, set access)"});
  ManyExtents extents(most);
  for (std::size_t count : {std::size_t{1'000}, std::size_t{10'000}, std::size_t{30'000}, most}) {
    if (count > most) continue;
    recorder.progress("extents mapped: up to " + std::to_string(count));
    const double growth = extents.grow_to(count);
    recorder.add_row({std::to_string(count), growth, extents.measure_move_us()});
  }
}

}  // namespace

void measure_extents(Recorder& recorder, const SectionOptions&) {
  recorder.step("cost by extent size", [&] { measure_sizes(recorder); });
  recorder.step("reserving addresses", [&] { measure_addresses(recorder); });
  recorder.step("many extents", [&] { measure_scale(recorder); });
}

}  // namespace quarry::facts
