// SPDX-License-Identifier: Apache-2.0
// Section "load": kernels and mapping at the same time, and the speed of memory that is made of
// many extents.
#include <algorithm>
#include <atomic>
#include <memory>
#include <random>
#include <thread>

#include "bench/driver_facts/device_objects.hpp"
#include "bench/driver_facts/gpu_work.hpp"
#include "bench/driver_facts/sections.hpp"
#include "bench/driver_facts/timing.hpp"

namespace quarry::facts {
namespace {

// Device time of what `submit` puts on the stream, in milliseconds.
double measure_device_ms(CUstream stream, const std::function<void()>& submit) {
  const OwnEvent before(CU_EVENT_DEFAULT);
  const OwnEvent after(CU_EVENT_DEFAULT);
  require(cu().event_record(before.get(), stream), "cuEventRecord");
  submit();
  require(cu().event_record(after.get(), stream), "cuEventRecord");
  require(cu().event_synchronize(after.get()), "cuEventSynchronize");
  float ms = 0;
  require(cu().event_elapsed_time(&ms, before.get(), after.get()), "cuEventElapsedTime");
  return ms;
}

// Neighbouring addresses over extents of 2 MiB that were made in another order.
class ShuffledMemory {
 public:
  explicit ShuffledMemory(std::uint64_t bytes) : bytes_(bytes), range_(bytes) {
    for (std::uint64_t made = 0; made < bytes; made += 2 * kMiB)
      extents_.emplace_back(2 * kMiB);
    std::vector<std::size_t> order(extents_.size());
    for (std::size_t i = 0; i < order.size(); ++i)
      order[i] = i;
    std::shuffle(order.begin(), order.end(), std::mt19937(7));
    for (std::size_t i = 0; i < order.size(); ++i)
      map_extent(range_.address() + i * 2 * kMiB, extents_[order[i]]);
  }
  ~ShuffledMemory() { static_cast<void>(cu().mem_unmap(range_.address(), bytes_)); }
  ShuffledMemory(const ShuffledMemory&) = delete;
  ShuffledMemory& operator=(const ShuffledMemory&) = delete;
  CUdeviceptr address() const { return range_.address(); }

 private:
  const std::uint64_t bytes_;
  std::vector<Extent> extents_;
  AddressRange range_;
};

struct Speed {
  double copy_gb_s;
  double gather_g_s;
};

Speed measure_speed(CUdeviceptr address, std::uint64_t bytes, CUdeviceptr sink) {
  constexpr std::uint64_t kLoads = 1ull << 31;
  const OwnStream stream;
  std::vector<double> copies;
  std::vector<double> gathers;
  for (int i = 0; i < 5; ++i) {
    copies.push_back(measure_device_ms(stream.get(), [&] {
      require(submit_copy(address + bytes / 2, address, bytes / 2, stream.get()), "copy");
    }));
    gathers.push_back(measure_device_ms(stream.get(), [&] {
      require(submit_gather(address, bytes, kLoads, sink, stream.get()), "gather");
    }));
  }
  // A copy reads and writes half of the bytes each.
  return {static_cast<double>(bytes) / calculate_median(copies) / 1e6,
          static_cast<double>(kLoads) / calculate_median(gathers) / 1e6};
}

void measure_bandwidth(Recorder& recorder) {
  constexpr std::uint64_t kBytes = 8 * kGiB;
  const PlainMemory sink(512);
  recorder.start_table("8 GiB of memory",
                       {"made of", "copy, GB/s read and written", "random loads of 4 B, 10^9/s"});
  Speed plain{};
  {
    const PlainMemory memory(kBytes);
    plain = measure_speed(memory.address(), kBytes, sink.address());
    recorder.add_row({"one cuMemAlloc", plain.copy_gb_s, plain.gather_g_s});
  }
  recorder.progress("bandwidth of shuffled extents");
  const ShuffledMemory memory(kBytes);
  const Speed shuffled = measure_speed(memory.address(), kBytes, sink.address());
  recorder.add_row({"4096 shuffled extents of 2 MiB", shuffled.copy_gb_s, shuffled.gather_g_s});
  recorder.add_rule(
      "memory made of 2 MiB extents loses less than 2 % of copy and of random-load "
      "speed",
      shuffled.copy_gb_s > plain.copy_gb_s * 0.98 &&
          shuffled.gather_g_s > plain.gather_g_s * 0.98);
}

void measure_first_touch(Recorder& recorder) {
  const MappedExtent fresh(8 * kGiB);
  const OwnStream stream;
  recorder.start_table("Memset of a fresh extent of 8 GiB, device time", {"touch", "ms"});
  for (const char* name : {"first", "second"}) {
    recorder.add_row({name, measure_device_ms(stream.get(), [&] {
                        require(cu().memset_d8_async(fresh.address(), 1, 8 * kGiB, stream.get()),
                                "memset");
                      })});
  }
}

// A thread that maps and unmaps for its lifetime; counts what it does.
class Mapper {
 public:
  Mapper(std::uint64_t bytes, bool is_alias)
      : thread_([this, bytes, is_alias] { run(bytes, is_alias); }) {}
  ~Mapper() { stop(); }
  Mapper(const Mapper&) = delete;
  Mapper& operator=(const Mapper&) = delete;
  std::uint64_t stop() {
    is_stopping_ = true;
    if (thread_.joinable()) thread_.join();
    return count_;
  }

 private:
  void run(std::uint64_t bytes, bool is_alias) {
    try {
      enter_context();
      const Extent extent(bytes);
      const AddressRange ranges[2] = {AddressRange(bytes), AddressRange(bytes)};
      if (is_alias) map_extent(ranges[1].address(), extent);
      while (!is_stopping_) {
        map_extent(ranges[0].address(), extent);
        unmap_extent(ranges[0].address(), bytes);
        ++count_;
      }
      if (is_alias) unmap_extent(ranges[1].address(), bytes);
    } catch (const DriverError&) {
      // The count says that nothing was mapped.
    }
  }

  std::atomic<bool> is_stopping_ = false;
  std::atomic<std::uint64_t> count_ = 0;
  std::thread thread_;
};

void measure_disturbance(Recorder& recorder) {
  constexpr std::uint64_t kBytes = 2 * kGiB;
  const PlainMemory memory(kBytes);
  const OwnStream stream;
  const auto copy = [&] {
    return measure_device_ms(stream.get(), [&] {
      for (int i = 0; i < 500; ++i)
        require(
            submit_copy(memory.address() + kBytes / 2, memory.address(), kBytes / 2, stream.get()),
            "copy");
    });
  };
  const auto launch = [&] {
    const double us = measure_us(2001, [&] { require(submit_nothing(stream.get()), "launch"); });
    require(cu().stream_synchronize(stream.get()), "cuStreamSynchronize");
    return us;
  };
  recorder.start_table("500 copies of 1 GiB while another thread maps",
                       {"the other thread", "moves a second", "device ms", "launch, us"});
  copy();
  recorder.add_row({"does nothing", 0.0, copy(), launch()});
  struct Kind {
    const char* name;
    std::uint64_t bytes;
    bool is_alias;
  };
  for (const Kind& kind : {Kind{"maps and unmaps 2 MiB", 2 * kMiB, false},
                           {"maps and unmaps a second address of 2 MiB", 2 * kMiB, true},
                           {"maps and unmaps 32 MiB", 32 * kMiB, false}}) {
    recorder.progress(kind.name);
    Mapper mapper(kind.bytes, kind.is_alias);
    double device_ms = 0;
    double launch_us = 0;
    const double us = measure_once_us([&] {
      device_ms = copy();
      launch_us = launch();
    });
    const double count = static_cast<double>(mapper.stop());
    recorder.add_row({kind.name, count / (us / 1e6), device_ms, launch_us});
  }
}

}  // namespace

void measure_load(Recorder& recorder, const SectionOptions&) {
  recorder.step("bandwidth of plain memory", [&] { measure_bandwidth(recorder); });
  recorder.step("first touch", [&] { measure_first_touch(recorder); });
  recorder.step("mapping beside kernels", [&] { measure_disturbance(recorder); });
}

}  // namespace quarry::facts
